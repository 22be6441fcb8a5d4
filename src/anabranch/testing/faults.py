"""What is wrong with the machine of one node: its links, its disk, its clock.

What: a table of numbers that a test writes and the node's own loop, files and clock look at before
they act (`faulty_loop.py`, `faulty_files.py`, `server/clocks.py`). Why a table and no messages: a
fault holds from the moment when its call returns, also for a node that is paused or busy, and in
another process, which sees the same memory. Rule kept: a node only reads.
"""

from __future__ import annotations

import mmap
import os
from collections.abc import Iterable
from typing import NamedTuple

MOST_BROKERS = 100
REPLICATION, CONTROLLER = 1, 2
BOTH = REPLICATION | CONTROLLER
"""Which connections of a link: to listeners of brokers, to those of controllers. A cut's cell holds
those that are cut."""

_AHEAD_MS, _DISK_MS, _DISK_FULL, _LINKS = range(4)
"""The clock's cell is the first: `server.clocks` reads it there."""
_CUT_OUT, _CUT_IN, _DELAY_OUT_MS, _DELAY_IN_MS, _CELLS_A_LINK = range(5)
_CELL_BYTES = 8
_SIZE_BYTES = _CELL_BYTES * (_LINKS + _CELLS_A_LINK * (MOST_BROKERS + 1))


class Lane(NamedTuple):
    """One direction of a link, as the node that looks sees it."""

    is_cut: bool
    delay_ms: int


class NodeFaults:
    """The table of one node, in memory of this process or shared with another one."""

    def __init__(self, memory: mmap.mmap | bytearray) -> None:
        self._memory = memory
        self.cells = memoryview(memory).cast("q")

    @classmethod
    def private(cls) -> NodeFaults:
        """A table for a node in this process."""
        return cls(bytearray(_SIZE_BYTES))

    @classmethod
    def shared(cls, descriptor: int) -> NodeFaults:
        """The table in an open file, which is made large enough."""
        if os.fstat(descriptor).st_size < _SIZE_BYTES:
            os.ftruncate(descriptor, _SIZE_BYTES)
        return cls(mmap.mmap(descriptor, _SIZE_BYTES))

    # Links. The node's own id as the peer is never asked for.

    def outgoing(self, peer: int, links: int = BOTH) -> Lane:
        """What happens to bytes from this node to another one."""
        at = _LINKS + _CELLS_A_LINK * peer
        return Lane(bool(self.cells[at + _CUT_OUT] & links), self.cells[at + _DELAY_OUT_MS])

    def incoming(self, peer: int, links: int = BOTH) -> Lane:
        """What happens to bytes from another node to this one."""
        at = _LINKS + _CELLS_A_LINK * peer
        return Lane(bool(self.cells[at + _CUT_IN] & links), self.cells[at + _DELAY_IN_MS])

    def is_cut(self, peer: int, links: int = BOTH) -> bool:
        """Whether no connection can be made: it needs both directions."""
        return self.outgoing(peer, links).is_cut or self.incoming(peer, links).is_cut

    def cut(self, peer: int, *, outgoing: bool, incoming: bool, links: int = BOTH) -> None:
        """Let no byte pass in these directions."""
        at = _LINKS + _CELLS_A_LINK * peer
        self.cells[at + _CUT_OUT] |= links * outgoing
        self.cells[at + _CUT_IN] |= links * incoming

    def delay(self, peer: int, ms: int) -> None:
        """Let every byte pass later, in both directions."""
        at = _LINKS + _CELLS_A_LINK * peer
        self.cells[at + _DELAY_OUT_MS] = self.cells[at + _DELAY_IN_MS] = ms

    def heal_links(self, peers: Iterable[int]) -> None:
        """Let everything pass again."""
        for peer in peers:
            at = _LINKS + _CELLS_A_LINK * peer
            for cell in range(_CELLS_A_LINK):
                self.cells[at + cell] = 0

    # The disk and the clock.

    @property
    def disk_ms(self) -> int:
        """How much longer the disk takes for what it is asked."""
        return self.cells[_DISK_MS]

    @disk_ms.setter
    def disk_ms(self, ms: int) -> None:
        self.cells[_DISK_MS] = ms

    @property
    def disk_is_full(self) -> bool:
        """Whether nothing more fits on the disk."""
        return bool(self.cells[_DISK_FULL])

    @disk_is_full.setter
    def disk_is_full(self, is_full: bool) -> None:
        self.cells[_DISK_FULL] = is_full

    @property
    def ahead_ms(self) -> int:
        """How far the wall clock is ahead of the machine's."""
        return self.cells[_AHEAD_MS]

    @ahead_ms.setter
    def ahead_ms(self, ms: int) -> None:
        self.cells[_AHEAD_MS] = ms
