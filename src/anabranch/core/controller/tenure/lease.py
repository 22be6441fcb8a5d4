"""The lease as this node knows it: when it was confirmed, and how long its holder has been silent.

What: `HeldLease` is the holder's side: the lease's time counts from when a confirmation was asked
for, not from when it came. `Silence` is the taker's: an unchanged row, by its own steady clock.
Rules kept: neither trusts another node's clock. A holder whose steady clock stood still believes in
its lease for longer than others do; its next append or renewal shows it, and changes nothing.
Not here: calling the store (`tenure.py`); what makes an early taking safe (`core/metadata/store`).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from anabranch.core.metadata.store import NOBODY, Lease


@dataclass(frozen=True, slots=True)
class LeaseTimes:
    """How long what lasts."""

    lease_timeout_ms: int = 6_000
    """Silence after which another process takes the lease, and the holder stops itself."""
    renew_ms: int = 2_000
    watch_ms: int = 500
    """How often a waiting controller looks at the lease."""
    idle_ms: int = 1_000
    """How often the clock is looked at when nothing is due: a wake-up more for the forgiving of
    what was not heard while this process did not run."""


class LeaseTaker(NamedTuple):
    """Who takes leases: node, process, and where it can be watched."""

    node_id: int
    incarnation: str
    endpoint: str


@dataclass(slots=True)
class HeldLease:
    """A lease of this node, confirmed by what was asked at `confirmed_ms`."""

    lease: Lease
    confirmed_ms: int

    def confirm(self, asked_ms: int) -> None:
        """The store did something that only the holder may ask for; answers may be out of order."""
        self.confirmed_ms = max(self.confirmed_ms, asked_ms)

    def is_over(self, now_ms: int, timing: LeaseTimes) -> bool:
        """Whether others may have taken it for want of a renewal."""
        return now_ms - self.confirmed_ms > timing.lease_timeout_ms


class Silence:
    """What a waiting controller has seen of the lease, by its own steady clock."""

    def __init__(self) -> None:
        self.lease: Lease | None = None
        self._since_ms: int | None = None
        self._gone_epoch = -1
        self._said_gone: dict[int, Lease] = {}
        """By node: the last lease of its whose holder was said to be gone."""
        self._lived_on: dict[int, str] = {}
        """By node: its process that took another lease after it was said to be gone."""
        self.newest_epoch = 0
        """Of all leases that were seen: in a sound store it never goes back."""

    def begin(self) -> None:
        """Forget what was seen: the silence begins with the next look."""
        self._since_ms = None

    def look(self, lease: Lease | None, now_ms: int) -> None:
        """The lease was read."""
        if self._since_ms is None or lease != self.lease:
            self.lease, self._since_ms = lease, now_ms
        self.newest_epoch = max(self.newest_epoch, _epoch(lease))

    def went_back(self, lease: Lease | None, followed_epoch: int) -> int:
        """The epoch that was seen, where the lease is of an older one; else 0. `followed_epoch` is
        that of the metadata which this node followed when it asked: a store that was filled from
        such a copy has no lease at first."""
        seen = self.newest_epoch if lease is None else max(self.newest_epoch, followed_epoch)
        return seen if _epoch(lease) < seen else 0

    def holder_gone(self, epoch: int) -> None:
        """Nobody listens where its holder did: an append of its is refused once it is taken, so
        that its time need not be waited for. Not believed of a process that lived on when that was
        said of it: two that cannot reach each other would take the lease in turn for ever."""
        lease = self.lease
        if lease is not None and lease.epoch == epoch:
            if self._lived_on.get(lease.holder) == lease.process:
                return
            self._said_gone[lease.holder] = lease
        self._gone_epoch = epoch

    def finds_living(self, lease: Lease | None) -> bool:
        """Whether this lease shows, for the first time, that a process that was said to be gone
        lived on."""
        gone = None if lease is None else self._said_gone.get(lease.holder)
        if lease is None or gone is None or gone.process != lease.process:
            return False
        if lease.epoch <= gone.epoch or self._lived_on.get(lease.holder) == lease.process:
            return False
        self._lived_on[lease.holder] = lease.process
        return True

    def is_long(self, now_ms: int, timing: LeaseTimes) -> bool:
        """Whether the holder has been silent for so long that another may take the lease."""
        if self.lease is not None and self.lease.epoch == self._gone_epoch:
            return True
        since_ms = now_ms if self._since_ms is None else self._since_ms
        return now_ms - since_ms > timing.lease_timeout_ms


def is_free(lease: Lease | None, me: LeaseTaker) -> bool:
    """Whether nobody can be active: not an earlier process of this node either, since its listener
    or folder is held by this one. Another of this id may be alive."""
    if lease is None or lease.holder == NOBODY:
        return True
    return lease.was_given(me.node_id, me.incarnation, me.endpoint)


def is_a_twin_s(lease: Lease | None, me: LeaseTaker) -> bool:
    """Whether it is held by another process of this node's id."""
    if lease is None:
        return False
    return lease.holder == me.node_id and lease.process != me.incarnation


def _epoch(lease: Lease | None) -> int:
    return lease.epoch if lease is not None else 0
