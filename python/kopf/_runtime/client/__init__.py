"""The API client for users' code. It is imported at its first use."""
