"""The default executor of synchronous handlers."""

from __future__ import annotations

import concurrent.futures
import os


class HandlerPool(concurrent.futures.ThreadPoolExecutor):
    """The default executor of synchronous handlers: a pool of threads whose size is known."""

    def __init__(self, size: int | None = None) -> None:
        self.size = size if size is not None else min(32, (os.cpu_count() or 1) + 4)
        super().__init__(max_workers=self.size)
