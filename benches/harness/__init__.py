"""What the benchmarks are made of: clusters, contestants, load, workloads, tables. It must not know `kopf`:
contestants are other processes."""
