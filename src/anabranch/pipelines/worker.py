"""What a Python worker of Spark does once: when it imports this package, and after its first task.

Why: Spark uses a worker again and collects garbage after each of its tasks. With pyarrow, numba and
this package imported, a collection looks at hundreds of thousands of objects that are there to
stay, and takes longer than a small task. And Spark ends a worker by closing its connection, which
prints a traceback (decision 69). Rule kept: a process that Spark did not start for tasks is left
alone.
"""

from __future__ import annotations

import functools
import gc
import sys
import traceback
from types import ModuleType
from typing import Any

DAEMON = "pyspark.daemon"
"""The module that Spark runs workers with; each is a fork of it."""
CLOSED = (BrokenPipeError, ConnectionResetError, EOFError)
"""What ends a worker after Spark has closed its connection. The faults of a task are sent to Spark,
and do not come as far as the daemon's module."""


def end_silently() -> None:
    """In a worker: print no traceback when Spark has closed its connection, and any other one."""
    if main_module() == DAEMON:
        quiet = ModuleType(traceback.__name__)
        vars(quiet).update(vars(traceback), print_exc=_print_unless_closed)
        vars(sys.modules["__main__"])["traceback"] = quiet


def _print_unless_closed(*arguments: Any, **named: Any) -> None:
    if not isinstance(sys.exception(), CLOSED):
        traceback.print_exc(*arguments, **named)


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
