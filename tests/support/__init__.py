"""What the tests with real processes share: clusters, operators, proxies, fixtures."""
