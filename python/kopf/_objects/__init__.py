"""What a handler receives: views of objects, patches, diffs, memos, indices. It must not know how handlers
are run.
"""
