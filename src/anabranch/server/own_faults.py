"""What goes wrong in a node and is not its clients' doing: counted by kind, said with its cause.

What: a node has one `OwnFaults`. A connection that it closes for a reason of its own is one kind;
an exception that no code expected, in a request, a callback or a task, is the other. Code that
lives on after any exception (rounds that go on, calls that must end) hands it to `tell_unexpected`,
which passes it to the event loop, as the loop does with what nobody caught; the node that `watch`es
the loop notes it. Rules kept: a sound node has none, so tests and chaos fail when there is one; the
log gets a line for each, so many a second at most. Not here: faults of disks, stores and peers,
which happen to a sound node.
"""

from __future__ import annotations

import asyncio
import contextlib
import traceback
from asyncio import AbstractEventLoop
from typing import Any

from anabranch.core.errors import ApiError, ProtocolError, StorageFault
from anabranch.server.clocks import steady_ms
from anabranch.server.line_limit import LineLimit
from anabranch.server.logs import logger

LOG = logger("own_faults")

CONNECTION, EXCEPTION = "connection", "exception"
LINES_A_SECOND = 20
"""A fault that each request of a client meets may not fill the disk; all are counted."""

EXPECTED = (ApiError, StorageFault, ProtocolError, OSError, EOFError, asyncio.CancelledError)
"""What refusals, disks, stores, sockets (a timeout, too) and the end of a task look like."""


class OwnFaults:
    """Counts, and writes the log."""

    def __init__(self) -> None:
        self.counts = {CONNECTION: 0, EXCEPTION: 0}
        self._lines = LineLimit(LINES_A_SECOND)

    def note(self, kind: str, sentence: str, **about: Any) -> None:
        """One more of a kind."""
        self.counts[kind] += 1
        more = self._lines.take(steady_ms())
        if more is not None:
            LOG.warning(sentence, **about, **more)

    def note_exception(self, sentence: str, fault: BaseException, **about: Any) -> None:
        """An exception that no code expected: what it is, and where it was raised."""
        self.note(EXCEPTION, sentence, **about, fault=described(fault))
        if LOG.is_debug:
            LOG.debug("where it failed", trace="".join(traceback.format_exception(fault)))

    def watch(self, loop: AbstractEventLoop) -> None:
        """Note from now on what no code of a loop catches; the latest node of a loop does."""
        loop.set_exception_handler(self._uncaught)

    def _uncaught(self, loop: AbstractEventLoop, context: dict[str, Any]) -> None:
        fault = context.get("exception")
        if fault is None:  # words only, such as of a task that was left behind at the end
            loop.default_exception_handler(context)
            return
        where = str(context.get("message", ""))
        self.note_exception("an exception that no code expected", fault, where=where)
        host = getattr(context.get("protocol"), "host", None)
        if host is not None:
            self.note(CONNECTION, "closing a connection", peer=host, why=described(fault))


def tell_unexpected(fault: BaseException, doing: str) -> None:
    """Code goes on after an exception: note it if no code expected it. What ends with its loop, as
    a node that a test kills, is told that the loop is closed: that is no fault."""
    if isinstance(fault, EXPECTED):
        return
    with contextlib.suppress(RuntimeError):  # there is no loop any more
        loop = asyncio.get_running_loop()
        loop.call_exception_handler({"message": doing, "exception": fault})


def described(fault: BaseException) -> str:
    """An exception as one line: its class, what it says, the file and line that raised it."""
    frames = traceback.extract_tb(fault.__traceback__, limit=-1)
    where = f" at {frames[0].filename.rpartition('/')[2]}:{frames[0].lineno}" if frames else ""
    return f"{type(fault).__name__}: {fault}{where}"
