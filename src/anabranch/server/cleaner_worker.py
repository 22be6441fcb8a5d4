"""The process that compacts: it reads segments and writes new ones beside them, nothing else.

What: `python -m anabranch.server.cleaner_worker` reads orders from standard input, one at a time,
and writes what becomes of each to standard output: its progress, then `Done` or `Failed`. Frames
are a length (4 bytes, big-endian) and MessagePack. Why a process: walking a gigabyte of records
keeps an interpreter busy for seconds, and a thread would share the one that serves clients
(decision 0012). Rule kept: it touches no file that a reader could see, so it may be killed at any
time; it ends when the node that started it is gone. Not here: which log, when, and the swap
(`cleaner.py`).
"""

from __future__ import annotations

import contextlib
import ctypes
import gc
import os
import select
import signal
import struct
import sys
import time
from collections.abc import Callable
from typing import IO

import msgspec

from anabranch.core.errors import StorageFault
from anabranch.core.log import compaction
from anabranch.core.log.cleaner import PassEnd, end_of
from anabranch.server.files import RealFiles

NICENESS = 10
"""RequestShell clients comes first where processors are few."""
STEP_BYTES = 1 << 20
"""Bytes between looks at the clock and at the parent."""
MAX_SLEEP_S = 0.25
"""So that a low rate does not keep a worker past its parent's end."""
PR_SET_PDEATHSIG = 1
LENGTH = struct.Struct(">I")


class Order(msgspec.Struct, frozen=True, tag=True):
    """Do this pass, at no more bytes a second."""

    job: compaction.Job
    bytes_per_second: float


class Progress(msgspec.Struct, frozen=True, tag=True):
    """Bytes read and written since the last one."""

    done_bytes: int


class Done(msgspec.Struct, frozen=True, tag=True):
    """The pass is over; its files are synced."""

    outcome: compaction.Outcome


class Failed(msgspec.Struct, frozen=True, tag=True):
    """The pass ended otherwise; `why` is for people."""

    end: PassEnd
    why: str


Report = Progress | Done | Failed
ORDERS = msgspec.msgpack.Decoder(Order)
REPORTS: msgspec.msgpack.Decoder[Report] = msgspec.msgpack.Decoder(Report)


def send(stream: IO[bytes], message: Order | Report) -> None:
    """Write one frame."""
    encoded = msgspec.msgpack.encode(message)
    stream.write(LENGTH.pack(len(encoded)) + encoded)
    stream.flush()


def receive(stream: IO[bytes]) -> bytes | None:
    """Read one frame; None when the other side is gone."""
    head = stream.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (length,) = LENGTH.unpack(head)
    encoded = stream.read(length)
    return encoded if len(encoded) == length else None


class Pace:
    """Holds a rate of bytes."""

    def __init__(
        self,
        bytes_per_second: float,
        clock: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._rate = max(1.0, bytes_per_second)
        self._clock = clock
        self._sleep = sleep
        self._due = clock()

    def spend(self, count: int) -> None:
        """Wait until so many bytes more are within the rate; an idle while is not made up for."""
        now = self._clock()
        self._due = max(self._due, now) + count / self._rate
        while (left := self._due - self._clock()) > 0 and _parent_is_there():
            self._sleep(min(left, MAX_SLEEP_S))


def _parent_is_there() -> bool:
    """Whether standard input is open: the parent sends nothing while a pass runs."""
    return not select.select([0], [], [], 0)[0]


def work(order: Order, report: Callable[[Report], None]) -> Report:
    """One pass; how it ended."""
    pace = Pace(order.bytes_per_second)
    pending = 0
    try:
        for step in compaction.run(RealFiles(), order.job):
            if isinstance(step, compaction.Outcome):
                return Done(step)
            pending += step
            if pending >= STEP_BYTES:
                report(Progress(pending))
                pace.spend(pending)
                pending = 0
                if not _parent_is_there():
                    raise SystemExit
    except StorageFault as fault:
        return Failed(end_of(fault), str(fault))
    except Exception as fault:
        return Failed(PassEnd.BUG, f"{type(fault).__name__}: {fault}")
    return Failed(PassEnd.BUG, "the pass ended without an outcome")


def _end_with_parent() -> None:
    """Have the kernel end this process when the node dies, also in the middle of a sync."""
    parent = os.getppid()
    if sys.platform == "linux":
        with contextlib.suppress(OSError, AttributeError):
            ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        raise SystemExit


def main() -> None:
    """Take orders until standard input ends."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C is for the node; it ends this one
    _end_with_parent()
    with contextlib.suppress(OSError):
        os.nice(NICENESS)
    gc.disable()  # a pass makes millions of tuples and no cycle
    orders = sys.stdin.buffer
    reports = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # nothing else may write between the frames
    with contextlib.suppress(BrokenPipeError):
        while (encoded := receive(orders)) is not None:
            send(reports, work(ORDERS.decode(encoded), lambda each: send(reports, each)))


if __name__ == "__main__":
    main()
