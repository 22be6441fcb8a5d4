"""What happens to a tenure: answers of the store, findings, decisions to be made durable.

An answer of the store carries the call that it answers.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.core.controller.brokers.hints import Answer
from anabranch.core.controller.history import History
from anabranch.core.controller.result import Result
from anabranch.core.controller.tenure import effects
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.store import Appended, Lease, Snapshot


@dataclass(frozen=True, slots=True)
class Start:
    """The process has started."""


@dataclass(frozen=True, slots=True)
class EndRead:
    """Where the store's log ends, and its batch that was asked for, None if it has none there."""

    asked: effects.ReadEnd
    end_offset: int
    batch: bytes | None


@dataclass(frozen=True, slots=True)
class LeaseRead:
    """The lease as it stands."""

    asked: effects.ReadLease
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class LeaseTaken:
    """The lease that was taken, None when it had moved meanwhile."""

    asked: effects.TakeLease
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class LeaseRenewed:
    """The renewed lease, None when it is another's."""

    asked: effects.RenewLease
    lease: Lease | None


@dataclass(frozen=True, slots=True)
class LogRead:
    """Everything committed, as the store told it."""

    asked: effects.ReadLog
    image: MetadataImage
    log: CommittedLog
    history: History


@dataclass(frozen=True, slots=True)
class AppendEnded:
    """Committed, deposed, or unknown."""

    asked: effects.Append
    outcome: Appended


@dataclass(frozen=True, slots=True)
class SnapshotStored:
    """A snapshot is in the store."""

    asked: effects.WriteSnapshot
    snapshot: Snapshot


@dataclass(frozen=True, slots=True)
class StoreFailed:
    """A call was not answered: nobody knows whether it was done. `for_good`: it never can be."""

    asked: effects.StoreCall
    why: str
    for_good: bool = False


@dataclass(frozen=True, slots=True)
class HolderGone:
    """Nobody listens where the holder of the lease of this epoch did."""

    epoch: int


@dataclass(frozen=True, slots=True)
class Decide:
    """Make a decision durable; `ticket` is whom the answer is for."""

    result: Result[Any]
    ticket: Any


@dataclass(frozen=True, slots=True)
class ConnectionClosed:
    """A connection on which a broker sent heartbeats has closed, for any cause."""

    broker_id: int
    broker_epoch: int


@dataclass(frozen=True, slots=True)
class Probed:
    """What dialling a broker found."""

    asked: effects.Dial
    answer: Answer


@dataclass(frozen=True, slots=True)
class GiveWay:
    """Leave the lease to others for a while."""

    why: str


@dataclass(frozen=True, slots=True)
class Leave:
    """The process stops in order."""


@dataclass(frozen=True, slots=True)
class Broke:
    """Something failed that must not: a controller with only some of its parts is none."""

    sentence: str


StoreAnswer: TypeAlias = (
    EndRead | LeaseRead | LeaseTaken | LeaseRenewed | LogRead | AppendEnded | SnapshotStored
    | StoreFailed
)  # fmt: skip
Event: TypeAlias = (
    StoreAnswer | Start | HolderGone | Decide | ConnectionClosed | Probed | GiveWay | Leave | Broke
)
