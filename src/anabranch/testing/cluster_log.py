"""What the nodes of a cluster log: kept for each cluster, and out of the test's own output.

A node logs through the standard library's logger `anabranch`. While a cluster runs, its memory gets
every event from INFO on, and the logger with its handlers works as without us: a test run that
shows warnings shows warnings. Rule kept: no handler, level or propagation of the process changes
while a cluster runs, because pytest gives a logger that does not propagate handlers of its own. An
event belongs to the cluster on one of whose threads it was logged.
"""

from __future__ import annotations

import logging
import threading
import warnings
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.server.logs import ROOT, WATCHERS, TextLines

logging.getLogger(ROOT).addHandler(logging.NullHandler())
"""As libraries do: in a process that configured no logging, Python would print each warning of a
node as bare words on standard error."""

LINES_KEPT = 2_000
"""Events that are kept of each cluster: a test that fails late still shows how it began."""


OWN_FAULTS = " own_faults: "
"""What stands in each line of `server.own_faults`."""

SHOWN = 5
"""Such lines in a warning."""


class ClusterLog:
    """The newest events of one cluster, from every thread that runs a node of it."""

    def __init__(self) -> None:
        self._events: deque[logging.LogRecord] = deque(maxlen=LINES_KEPT)

    @property
    def text(self) -> str:
        """A line for each event, the newest one last."""
        form = TextLines()
        return "\n".join(form.format(event) for event in tuple(self._events))

    def keep(self, event: logging.LogRecord) -> None:
        """Add an event; the oldest one goes when there are too many."""
        self._events.append(event)

    @contextmanager
    def of_this_thread(self) -> Iterator[None]:
        """Keep what is logged on this thread; several threads may share a log."""
        thread_id = threading.get_ident()
        _ROUTER.add(thread_id, self)
        try:
            yield
        finally:
            _ROUTER.remove(thread_id)


def tell_own_faults(log: str) -> None:
    """Warn of what brokers say that no client and no disk of theirs can be blamed for: it is a bug
    of Anabranch, and what a test saw after it may come from it."""
    found = [line for line in log.splitlines() if OWN_FAULTS in line]
    if found:
        shown = "\n".join(found[:SHOWN])
        warnings.warn(f"a broker had a fault of its own:\n{shown}", RuntimeWarning, stacklevel=3)


class _Router:
    """Gives each event to the log of its thread; it watches while there is such a log."""

    def __init__(self) -> None:
        self._logs: dict[int, ClusterLog] = {}
        self._found_level = logging.NOTSET

    def __call__(self, event: logging.LogRecord) -> None:
        """Keep an event of a cluster's thread."""
        log = self._logs.get(event.thread or 0)
        if log is not None:
            log.keep(event)

    def add(self, thread_id: int, log: ClusterLog) -> None:
        """Route a thread's events into a log."""
        with _CHANGING:
            if not self._logs:
                self._found_level = logging.getLogger(ROOT).level
                WATCHERS.append(self)
            self._logs[thread_id] = log

    def remove(self, thread_id: int) -> None:
        """Forget a thread; the last one takes back a level that an admin client set meanwhile."""
        with _CHANGING:
            del self._logs[thread_id]
            if not self._logs:
                WATCHERS.remove(self)
                logging.getLogger(ROOT).setLevel(self._found_level)


_CHANGING = threading.Lock()
_ROUTER = _Router()
