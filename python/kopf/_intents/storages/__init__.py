"""Where an operator keeps its notes on an object: the progress of handlers and the last handled essence.

It owns the formats. They are a contract with operators of other versions: never change what is already
written.
"""
