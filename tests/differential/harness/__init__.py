"""The harness of the differential suite: it runs operators under two Kopfs, and compares what they do."""
