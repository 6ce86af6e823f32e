"""Shared by the tests with real processes: clusters, operators, proxies, fixtures."""
