"""Arguments of handlers: views of objects, patches, diffs, memos, indices."""
