"""What happens to a node that follows the metadata log, and what it wants done: frozen messages.

`Fetch` and `FetchSnapshot` go to the active controller, one of them at a time; what came of it
comes back as one event. The other effects are performed in order before that. `WriteSnapshot` alone
may take its time, and ends in an event of its own.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from anabranch.core.log.files import DiskFull
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.core.wire.messages.fetch import FetchRequest, FetchResponse
    from anabranch.core.wire.messages.fetch_snapshot import (
        FetchSnapshotRequest,
        FetchSnapshotResponse,
    )

# Events.


@dataclass(frozen=True, slots=True)
class Begin:
    """The node follows from now on."""


@dataclass(frozen=True, slots=True, eq=False)
class Fetched:
    """A controller answered a `Fetch`. `connection` numbers the connection that it came over; a
    greater number is a newer one."""

    response: FetchResponse
    connection: int


@dataclass(frozen=True, slots=True, eq=False)
class PieceFetched:
    """A controller answered a `FetchSnapshot`, over the connection of that number."""

    response: FetchSnapshotResponse
    connection: int


@dataclass(frozen=True, slots=True)
class Unanswered:
    """No active controller answered, or not as it should; `why` is for people."""

    why: str


@dataclass(frozen=True, slots=True)
class RoomMade:
    """What became of `MakeRoom`: whether there is room now."""

    is_made: bool


@dataclass(frozen=True, slots=True)
class SnapshotWritten:
    """`WriteSnapshot` was performed."""


@dataclass(frozen=True, slots=True)
class SnapshotFailed:
    """`WriteSnapshot` could not be performed; `why` is for people."""

    why: str


@dataclass(frozen=True, slots=True)
class Registered:
    """The controller gave this process its broker epoch."""

    broker_epoch: int


Event: TypeAlias = (
    Begin
    | Fetched
    | PieceFetched
    | Unanswered
    | RoomMade
    | SnapshotWritten
    | SnapshotFailed
    | Registered
)

# Effects.


@dataclass(frozen=True, slots=True, eq=False)
class Fetch:
    """Ask the active controller for the log; `Fetched` or `Unanswered` follows."""

    request: FetchRequest


@dataclass(frozen=True, slots=True, eq=False)
class FetchSnapshot:
    """Ask the active controller for a piece of a snapshot; `PieceFetched` or `Unanswered`
    follows."""

    request: FetchSnapshotRequest


@dataclass(frozen=True, slots=True)
class Leave:
    """The controller that was asked is of no use: the next question goes to another one."""


@dataclass(frozen=True, slots=True)
class Complain:
    """An operator shall hear of an obstacle: what does not work, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class Met:
    """An active controller answered over a new connection, and its log agrees with the copy."""


@dataclass(frozen=True, slots=True, eq=False)
class Publish:
    """The metadata moved: for a controller, which may use what a copy from before says."""

    image: MetadataImage
    delta: MetadataDelta


@dataclass(frozen=True, slots=True, eq=False)
class Act:
    """The metadata moved: for the broker, which now follows it. `since_last` is False the first
    time: the image is to be taken as a whole."""

    image: MetadataImage
    delta: MetadataDelta
    since_last: bool


@dataclass(frozen=True, slots=True, eq=False)
class WriteSnapshot:
    """Write a snapshot of this image into the copy; `SnapshotWritten` or `SnapshotFailed`
    follows."""

    image: MetadataImage


@dataclass(frozen=True, slots=True, eq=False)
class MakeRoom:
    """The copy's disk is full: give back what is reserved there; `RoomMade` follows."""

    fault: DiskFull


@dataclass(frozen=True, slots=True)
class Stop:
    """This node must not go on; why, for people."""

    sentence: str


Question: TypeAlias = Fetch | FetchSnapshot
Effect: TypeAlias = (
    Question | Leave | Complain | Met | Publish | Act | WriteSnapshot | MakeRoom | Stop
)
