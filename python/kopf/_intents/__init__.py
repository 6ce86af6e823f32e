"""What an author declares: handlers, filters, selectors, storages, settings. It must not know how they are
run.
"""
