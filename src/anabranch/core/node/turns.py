"""Whose requests are run next, and for how long, before the loop looks at its sockets again.

What: a turn is what a node's loop does between two looks at its sockets and timers. What arrives is
run at once while the turn has time left (`is_open`). From then on, requests are queued and their
connections stand in line. A connection that is picked runs for `SLICE_NS`, or one request.

    open --time is over, or a connection lines up--> closed --a turn leaves all lines empty--> open

There are four lines (`Rank`): brokers, clients whose requests are short, clients that are new, and
clients that keep the loop for long, with long requests or with many. Rules kept: the first line
that is not empty is served until the turn's `TURN_NS` are over; then each line that waited and was
not served yet is served once, so that none starves. Within a line, connections are served in the
order in which they came. So a client whose requests are short waits for a turn or two, whatever the
others ask for, and however many they are. Which clients are such ones is learnt from how long
their slices took (`learn`). Times are in nanoseconds of a clock that never goes back.
Source: multilevel feedback queues (Corbato 1962). Not here: the order of one connection's requests
and answers, bounds in bytes, quotas.
"""

from __future__ import annotations

from collections import deque
from enum import IntEnum
from typing import Generic, Protocol, TypeVar

TURN_NS = 3_000_000
"""About thirty plain requests. A broker's heartbeat, the renewal of a lease and a client with short
requests wait for two turns at most, which stays far below any of their timeouts."""

SLICE_NS = 2_000_000
"""Of a connection, before the next is picked. It is long enough that the answers to a pipeline of
small requests leave together, in few writes."""

SHORT_NS = 500_000
"""A client is served among the first if its slices take no longer: several plain requests, or a
large batch."""

QUIET_NS = 50_000
"""The loop looked at its sockets when no request was run for this long. A shorter pause may lie
between two sockets that the loop serves one after the other."""

NEW, SHORT, LONG, LONGEST = -1, 0, 3, 4
"""What is known of a client's slices: nothing; from `SHORT` on how many were long, of late."""
ONE_LONG = 2
"""What a slice that was long adds. One alone may be chance: garbage was collected, or the machine
did something else. A short one takes away 1."""


class Rank(IntEnum):
    """The lines, in the order in which they are served."""

    BROKER = 0
    SHORT = 1
    NEW = 2
    LONG = 3


class Member(Protocol):
    """A connection as the lines see it."""

    is_broker: bool
    """It has made requests that only brokers make, and may make them."""
    length: int
    """What is known of its slices: `NEW` to `LONGEST`."""
    is_in_line: bool


M = TypeVar("M", bound=Member)


def learn(member: Member, took_ns: int) -> None:
    """A slice of a connection has taken so long."""
    if took_ns <= SHORT_NS:
        member.length = max(SHORT, member.length - 1)
    elif member.length == NEW:
        member.length = LONG
    else:
        member.length = min(LONGEST, member.length + ONE_LONG)


def rank_of(member: Member) -> Rank:
    """In which line a connection stands."""
    if member.is_broker:
        return Rank.BROKER
    if member.length == NEW:
        return Rank.NEW
    return Rank.LONG if member.length >= LONG else Rank.SHORT


class Turns(Generic[M]):
    """The turns of one loop. Its shell calls `begun` and `is_over` around what is run at once, and
    `start`, `pick`, `served` or `pass_over`, and `end` while a connection is in line."""

    __slots__ = ("_began_ns", "_is_owed", "_lines", "_seen_ns", "is_open")

    def __init__(self) -> None:
        self.is_open = True
        """Whether what arrives is run at once."""
        self._lines: tuple[deque[M], ...] = tuple(deque() for _ in Rank)
        self._is_owed = [False for _ in Rank]
        """Which lines are to be served in this turn, and were not yet."""
        self._began_ns = self._seen_ns = 0

    def begun(self, now_ns: int) -> None:
        """Something has arrived: the turn is a new one if the loop was quiet before."""
        if now_ns - self._seen_ns > QUIET_NS:
            self._began_ns = now_ns

    def is_over(self, now_ns: int) -> bool:
        """Whether the turn has no time left: until its end nothing is run at once any more."""
        self._seen_ns = now_ns
        if now_ns - self._began_ns <= TURN_NS:
            return False
        self.is_open = False
        return True

    def line_up(self, member: M) -> None:
        """Wait for a slice, unless it does already."""
        if not member.is_in_line:
            member.is_in_line = True
            self.is_open = False
            self._lines[rank_of(member)].append(member)

    def start(self, now_ns: int) -> None:
        """A turn of those in line begins."""
        self._began_ns = now_ns
        self._is_owed = [bool(line) for line in self._lines]

    def pick(self, now_ns: int) -> M | None:
        """Who has the next slice; None: the turn is over."""
        has_time = now_ns - self._began_ns <= TURN_NS
        for rank, line in enumerate(self._lines):
            if line and (has_time or self._is_owed[rank]):
                self._is_owed[rank] = False
                return line.popleft()
        return None

    def served(self, member: M, took_ns: int) -> None:
        """The member that was picked has had its slice. It may line up again."""
        learn(member, took_ns)
        member.is_in_line = False

    def pass_over(self, member: M) -> None:
        """The member that was picked wants nothing any more, or may not have it now."""
        member.is_in_line = False

    def end(self, now_ns: int) -> None:
        """The turn is over: what arrives now is run at once if there is no line."""
        self._began_ns = self._seen_ns = now_ns
        self.is_open = not any(self._lines)
