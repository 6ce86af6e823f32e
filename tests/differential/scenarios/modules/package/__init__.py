"""A package with a module of the operator."""
