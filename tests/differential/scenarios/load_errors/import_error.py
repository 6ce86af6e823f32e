"""An operator that imports a module that does not exist."""
