"""The benchmark harness: clusters, contestants, load, workloads, tables. It does not import `kopf`:
contestants are separate processes."""
