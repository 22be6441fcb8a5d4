"""What happens to a node that follows the metadata log, and what it wants done: frozen messages.

`Fetch` and `FetchSnapshot` go to the active controller, one of them at a time; what came of it
comes back as one event. The other effects are performed in order before that. `WriteSnapshot` alone
may take its time, and ends in an event of its own.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from anabranch.core.log.files import DiskFull
    from anabranch.core.metadata.image import MetadataDelta, MetadataImage
    from anabranch.core.types import TopicId
    from anabranch.core.wire.messages.fetch import FetchRequest, FetchResponse
    from anabranch.core.wire.messages.fetch_snapshot import (
        FetchSnapshotRequest,
        FetchSnapshotResponse,
    )

# Events.


class Begin(msgspec.Struct, frozen=True):
    """The node follows from now on."""


class Fetched(msgspec.Struct, frozen=True, eq=False):
    """A controller answered a `Fetch`. `connection` numbers the connection that it came over; a
    greater number is a newer one."""

    response: FetchResponse
    connection: int


class PieceFetched(msgspec.Struct, frozen=True, eq=False):
    """A controller answered a `FetchSnapshot`, over the connection of that number."""

    response: FetchSnapshotResponse
    connection: int


class Unanswered(msgspec.Struct, frozen=True):
    """No active controller answered, or not as it should; `why` is for people."""

    why: str


class RoomMade(msgspec.Struct, frozen=True):
    """What became of `MakeRoom`: whether there is room now."""

    is_made: bool


class SnapshotWritten(msgspec.Struct, frozen=True):
    """`WriteSnapshot` was performed."""


class SnapshotFailed(msgspec.Struct, frozen=True):
    """`WriteSnapshot` could not be performed; `why` is for people."""

    why: str


class Registered(msgspec.Struct, frozen=True):
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


class Fetch(msgspec.Struct, frozen=True, eq=False):
    """Ask the active controller for the log; `Fetched` or `Unanswered` follows."""

    request: FetchRequest

    def answered(self, response: FetchResponse, connection: int) -> Fetched:
        """A controller's answer."""
        return Fetched(response, connection)


class FetchSnapshot(msgspec.Struct, frozen=True, eq=False):
    """Ask the active controller for a piece of a snapshot; `PieceFetched` or `Unanswered`
    follows."""

    request: FetchSnapshotRequest

    def answered(self, response: FetchSnapshotResponse, connection: int) -> PieceFetched:
        """A controller's answer."""
        return PieceFetched(response, connection)


class Leave(msgspec.Struct, frozen=True):
    """The controller that was asked is of no use: the next question goes to another one."""


class Complain(msgspec.Struct, frozen=True):
    """An operator shall hear of an obstacle: what does not work, and why."""

    what: str
    why: str


class ControllerMet(msgspec.Struct, frozen=True):
    """An active controller answered over a new connection, and its log agrees with the copy."""


class Publish(msgspec.Struct, frozen=True, eq=False):
    """The metadata moved: for a controller, which may use what a copy from before says."""

    image: MetadataImage
    delta: MetadataDelta


class Act(msgspec.Struct, frozen=True, eq=False):
    """The metadata moved: for the broker, which now follows it. `published` is what changed since
    the image that it followed before; None the first time: the image is to be taken as a whole."""

    image: MetadataImage
    delta: MetadataDelta
    published: MetadataDelta | None
    deleted_before: frozenset[str] = frozenset()
    """The first time: names of topics that were deleted since the copy was opened. What lies here
    under such a name may be of another topic than that which has it now."""
    deleted_ids: frozenset[TopicId] = frozenset()
    """The first time: ids of topics of whose deletion the log tells, also where the copy had it:
    the process before may have ended before it removed them."""


class WriteSnapshot(msgspec.Struct, frozen=True, eq=False):
    """Write a snapshot of this image into the copy; `SnapshotWritten` or `SnapshotFailed`
    follows."""

    image: MetadataImage


class MakeRoom(msgspec.Struct, frozen=True, eq=False):
    """The copy's disk is full: give back what is reserved there; `RoomMade` follows."""

    fault: DiskFull


class Stop(msgspec.Struct, frozen=True):
    """This node must not go on; why, for people."""

    sentence: str


Question: TypeAlias = Fetch | FetchSnapshot
Effect: TypeAlias = (
    Question | Leave | Complain | ControllerMet | Publish | Act | WriteSnapshot | MakeRoom | Stop
)
