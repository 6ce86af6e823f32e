"""Toolkits for handlers: hierarchies, Kubernetes events, webhook servers and tunnels."""
