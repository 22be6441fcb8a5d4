"""What a tenure wants done: frozen messages to the shell, which performs them in order.

Calls of the metadata store (`StoreCall`) go out at once and are answered by an event that carries
the very call, or by `StoreFailed`; an answer to a call that is not under way any more is left
alone. All times are of the node's steady clock.
"""

from __future__ import annotations

from typing import Any, TypeAlias

import msgspec

from anabranch.core.controller.brokers.hints import Probe
from anabranch.core.controller.result import Reason
from anabranch.core.controller.tenure.lease import LeaseTaker
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.store import Lease, StoredBatch
from anabranch.core.wire.own_fields import SaidReason


class ReadEnd(msgspec.Struct, frozen=True, eq=False):
    """Read where the store's log ends, and its batch that begins at `last_base_offset`."""

    last_base_offset: int


class ReadLease(msgspec.Struct, frozen=True, eq=False):
    """Look at the lease."""


class TakeLease(msgspec.Struct, frozen=True, eq=False):
    """Take the lease if it is still as `seen`."""

    seen: Lease | None
    me: LeaseTaker


class RenewLease(msgspec.Struct, frozen=True, eq=False):
    """One beat more."""

    lease: Lease
    asked_ms: int


class ReadLog(msgspec.Struct, frozen=True, eq=False):
    """Read everything that is committed: the newest snapshot and the batches after it."""


class Append(msgspec.Struct, frozen=True, eq=False):
    """Commit all batches or none. Without batches: ask whether the log really ends there."""

    lease: Lease
    first_offset: int
    batches: tuple[StoredBatch, ...]
    asked_ms: int


class WriteSnapshot(msgspec.Struct, frozen=True, eq=False):
    """Store a snapshot of a committed image (`snapshots.encoded`), and let go of the batches that
    end at or before `keep_log_from`."""

    log: CommittedLog
    image: MetadataImage
    said: tuple[SaidReason, ...]
    keep_log_from: int


class ReleaseLease(msgspec.Struct, frozen=True, eq=False):
    """Give the lease back. Nothing waits for the answer."""

    lease: Lease


class Watch(msgspec.Struct, frozen=True):
    """Watch the process that holds this lease in place of the one before, None: watch nobody. When
    nobody listens there any more, `HolderGone` comes."""

    lease: Lease | None


class Dial(msgspec.Struct, frozen=True):
    """Dial a broker; `Probed` brings the answer."""

    epoch: int
    probe: Probe


class Answer(msgspec.Struct, frozen=True):
    """Everything that this answer stands on is committed: it may leave."""

    ticket: Any
    response: Any


class Refuse(msgspec.Struct, frozen=True):
    """The decision was not committed, or that is not known: the answer is NOT_CONTROLLER."""

    ticket: Any


class Moved(msgspec.Struct, frozen=True):
    """The committed log is longer, or no longer served: whoever waits for it looks again."""


class Began(msgspec.Struct, frozen=True):
    """Tell people: this node is the active controller."""

    epoch: int
    end_offset: int


class Resigned(msgspec.Struct, frozen=True):
    """Tell people: it is no longer."""

    epoch: int
    why: str


class Decided(msgspec.Struct, frozen=True):
    """Tell people why something was decided."""

    reasons: tuple[Reason, ...]


class Troubled(msgspec.Struct, frozen=True):
    """Tell people what went wrong with the store; the tenure goes on by itself."""

    sentence: str


class Stop(msgspec.Struct, frozen=True):
    """This node must end: a person has to look at it."""

    sentence: str


StoreCall: TypeAlias = (
    ReadEnd | ReadLease | TakeLease | RenewLease | ReadLog | Append | WriteSnapshot | ReleaseLease
)
Told: TypeAlias = Decided | Troubled
Effect: TypeAlias = (
    StoreCall | Watch | Dial | Answer | Refuse | Moved | Began | Resigned | Told | Stop
)
