"""Clusters for tests and for development: in memory, started from binaries, or those that are there already.

`cluster.py` is what users have; `client.py` talks HTTP; `controlplane.py` starts a real one; `catalog.py`
knows where objects of a kind live; `state.py` keeps the objects between runs.
"""
