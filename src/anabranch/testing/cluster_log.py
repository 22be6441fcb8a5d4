"""What the nodes of a cluster log: kept for each cluster, and out of the test's own output.

A node logs through the standard library's logger `anabranch`, at INFO. While a cluster runs that
logger writes into the clusters' memories; other handlers of the process get only what they would
have got without us, so a test run that shows warnings shows warnings. Rule kept: when the last
cluster has ended, the logger is as it was found. An event belongs to the cluster on one of whose
threads it was logged.
"""

from __future__ import annotations

import logging
import threading
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager

from anabranch.server.logs import ROOT, TextLines

LINES_KEPT = 2_000
"""Events that are kept of each cluster: a test that fails late still shows how it began."""


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


class _Router(logging.Handler):
    """Gives each event to the log of its thread; installed while there is such a log."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self._logs: dict[int, ClusterLog] = {}
        self._found = (logging.NOTSET, True)
        self._passed_level = logging.WARNING

    def emit(self, record: logging.LogRecord) -> None:
        """Keep the event, and pass it on where it would have gone without us."""
        log = self._logs.get(record.thread or 0)
        if log is not None:
            log.keep(record)
        above = logging.getLogger(ROOT).parent
        if above is not None and self._found[1] and record.levelno >= self._passed_level:
            if above.hasHandlers():
                above.callHandlers(record)

    def add(self, thread_id: int, log: ClusterLog) -> None:
        """Route a thread's events into a log."""
        with _CHANGING:
            if not self._logs:
                self._install(logging.getLogger(ROOT))
            self._logs[thread_id] = log

    def remove(self, thread_id: int) -> None:
        """Forget a thread; the last one leaves the logger as it was found."""
        with _CHANGING:
            del self._logs[thread_id]
            if not self._logs:
                ours = logging.getLogger(ROOT)
                ours.removeHandler(self)
                level, ours.propagate = self._found
                ours.setLevel(level)

    def _install(self, ours: logging.Logger) -> None:
        self._found = (ours.level, ours.propagate)
        self._passed_level = ours.getEffectiveLevel()
        ours.addHandler(self)
        ours.propagate = False
        ours.setLevel(min(self._passed_level, logging.INFO))


_CHANGING = threading.Lock()
_ROUTER = _Router()
