"""What a tenure wants done: frozen messages to the shell, which performs them in order.

Calls of the metadata store (`StoreCall`) go out at once and are answered by an event that carries
the very call, or by `StoreFailed`; an answer to a call that is not under way any more is left
alone. All times are of the node's steady clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.core.controller.brokers.hints import Probe
from anabranch.core.controller.result import Reason
from anabranch.core.controller.tenure.lease import Me
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.store import Lease, StoredBatch
from anabranch.core.wire.own_fields import SaidReason


@dataclass(frozen=True, slots=True, eq=False)
class ReadEnd:
    """Read where the store's log ends, and its batch that begins at `last_base_offset`."""

    last_base_offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadLease:
    """Look at the lease."""


@dataclass(frozen=True, slots=True, eq=False)
class TakeLease:
    """Take the lease if it is still as `seen`."""

    seen: Lease | None
    me: Me


@dataclass(frozen=True, slots=True, eq=False)
class RenewLease:
    """One beat more."""

    lease: Lease
    asked_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadLog:
    """Read everything that is committed: the newest snapshot and the batches after it."""


@dataclass(frozen=True, slots=True, eq=False)
class Append:
    """Commit all batches or none. Without batches: ask whether the log really ends there."""

    lease: Lease
    first_offset: int
    batches: tuple[StoredBatch, ...]
    asked_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class WriteSnapshot:
    """Store a snapshot of a committed image (`snapshots.encoded`), and let go of the batches that
    end at or before `keep_log_from`."""

    log: CommittedLog
    image: MetadataImage
    said: tuple[SaidReason, ...]
    keep_log_from: int


@dataclass(frozen=True, slots=True, eq=False)
class ReleaseLease:
    """Give the lease back. Nothing waits for the answer."""

    lease: Lease


@dataclass(frozen=True, slots=True)
class Watch:
    """Watch the process that holds this lease in place of the one before, None: watch nobody. When
    nobody listens there any more, `HolderGone` comes."""

    lease: Lease | None


@dataclass(frozen=True, slots=True)
class Dial:
    """Dial a broker; `Probed` brings the answer."""

    epoch: int
    probe: Probe


@dataclass(frozen=True, slots=True)
class Answer:
    """Everything that this answer stands on is committed: it may leave."""

    ticket: Any
    response: Any


@dataclass(frozen=True, slots=True)
class Refuse:
    """The decision was not committed, or that is not known: the answer is NOT_CONTROLLER."""

    ticket: Any


@dataclass(frozen=True, slots=True)
class Moved:
    """The committed log is longer, or no longer served: whoever waits for it looks again."""


@dataclass(frozen=True, slots=True)
class Began:
    """Tell people: this node is the active controller."""

    epoch: int
    end_offset: int


@dataclass(frozen=True, slots=True)
class Resigned:
    """Tell people: it is no longer."""

    epoch: int
    why: str


@dataclass(frozen=True, slots=True)
class Decided:
    """Tell people why something was decided."""

    reasons: tuple[Reason, ...]


@dataclass(frozen=True, slots=True)
class Troubled:
    """Tell people what went wrong with the store; the tenure goes on by itself."""

    sentence: str


@dataclass(frozen=True, slots=True)
class Stop:
    """This node must end: a person has to look at it."""

    sentence: str


StoreCall: TypeAlias = (
    ReadEnd | ReadLease | TakeLease | RenewLease | ReadLog | Append | WriteSnapshot | ReleaseLease
)
Told: TypeAlias = Decided | Troubled
Effect: TypeAlias = (
    StoreCall | Watch | Dial | Answer | Refuse | Moved | Began | Resigned | Told | Stop
)
