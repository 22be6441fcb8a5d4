"""What happens to a tenure: answers of the store, findings, decisions to be made durable.

An answer of the store carries the call that it answers.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from anabranch.core.controller.brokers.hints import Answer
from anabranch.core.controller.history import History
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.store import Appended, Lease, Snapshot


class Start(msgspec.Struct, frozen=True):
    """The process has started."""


class EndRead(msgspec.Struct, frozen=True):
    """Where the store's log ends, and its batch that was asked for, None if it has none there."""

    asked: effects.ReadEnd
    end_offset: int
    batch: bytes | None


class LeaseRead(msgspec.Struct, frozen=True):
    """The lease as it stands."""

    asked: effects.ReadLease
    lease: Lease | None


class LeaseTaken(msgspec.Struct, frozen=True):
    """The lease that was taken, None when it had moved meanwhile."""

    asked: effects.TakeLease
    lease: Lease | None


class LeaseRenewed(msgspec.Struct, frozen=True):
    """The renewed lease, None when it is another's."""

    asked: effects.RenewLease
    lease: Lease | None


class LogRead(msgspec.Struct, frozen=True):
    """Everything committed, as the store told it."""

    asked: effects.ReadLog
    image: MetadataImage
    log: CommittedLog
    history: History


class AppendEnded(msgspec.Struct, frozen=True):
    """Committed, deposed, or unknown."""

    asked: effects.Append
    outcome: Appended


class SnapshotStored(msgspec.Struct, frozen=True):
    """A snapshot is in the store."""

    asked: effects.WriteSnapshot
    snapshot: Snapshot


class StoreFailed(msgspec.Struct, frozen=True):
    """A call was not answered: nobody knows whether it was done. `for_good`: it never can be."""

    asked: effects.StoreCall
    why: str
    for_good: bool = False


class HolderGone(msgspec.Struct, frozen=True):
    """Nobody listens where the holder of the lease of this epoch did."""

    epoch: int


class Decide(msgspec.Struct, frozen=True):
    """Make a decision durable; `ticket` is whom the answer is for."""

    result: Result[Any]
    ticket: Any


class ConnectionClosed(msgspec.Struct, frozen=True):
    """A connection on which a broker sent heartbeats has closed, for any cause."""

    broker_id: int
    broker_epoch: int


class Probed(msgspec.Struct, frozen=True):
    """What dialling a broker found."""

    asked: effects.Dial
    answer: Answer


class GiveWay(msgspec.Struct, frozen=True):
    """Leave the lease to others for a while."""

    why: str


class Leave(msgspec.Struct, frozen=True):
    """The process stops in order."""


class Broke(msgspec.Struct, frozen=True):
    """Something failed that must not: a controller with only some of its parts is none."""

    sentence: str


StoreAnswer: TypeAlias = (
    EndRead | LeaseRead | LeaseTaken | LeaseRenewed | LogRead | AppendEnded | SnapshotStored
    | StoreFailed
)  # fmt: skip
Event: TypeAlias = (
    StoreAnswer | Start | HolderGone | Decide | ConnectionClosed | Probed | GiveWay | Leave | Broke
)
