"""Implementation of `kopf.testing`."""
