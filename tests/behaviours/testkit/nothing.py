"""No handlers at all: they are in the registry that the runner was given."""
