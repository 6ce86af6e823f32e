"""No handlers: they are in the registry that is passed to the runner."""
