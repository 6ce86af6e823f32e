"""Storages of handler progress and of the last handled essence.

The formats are shared with operators of other versions: never change what is already written.
"""
