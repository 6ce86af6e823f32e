"""Declarations of an operator: handlers, filters, selectors, storages, settings."""
