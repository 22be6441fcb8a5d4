"""What a Python worker of Spark does once, after its first task.

Why: Spark uses a worker again and collects garbage after each of its tasks. With pyarrow, numba and
this package imported, a collection looks at hundreds of thousands of objects that are there to
stay, and takes longer than a small task. Rule kept: a process that Spark did not start for tasks is
left alone.
"""

from __future__ import annotations

import functools
import gc
import sys

DAEMON = "pyspark.daemon"
"""The module that Spark runs workers with; each is a fork of it."""


@functools.cache
def leave_out_of_collections() -> None:
    """Keep what is in memory now out of later collections, in a worker; only the first call does
    anything. Nothing is freed later than before but what is garbage in a cycle just now."""
    if main_module() == DAEMON:
        gc.collect()
        gc.freeze()


def main_module() -> str:
    """The module that this process was started with by `python -m`, else an empty text."""
    return getattr(getattr(sys.modules.get("__main__"), "__spec__", None), "name", "") or ""
