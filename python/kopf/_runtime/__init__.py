"""Execution of handlers, and the connection to the engine (`bridge`)."""
