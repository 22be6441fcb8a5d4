"""What a broker's diskless half wants done: frozen messages to the shell, which only performs them.

Each is one call of the coordinator or of the store. What the call gave, or the StorageFault that it
raised, comes back with the very effect: `Diskless.answered(effect, result, now_ms)`. Calls may be
made side by side; the machine itself keeps them in order where order counts.

    PrepareObjects  coordinator.prepare    -> list[Prepared]
    PutObject       store.put              -> None
    EndPuts         every put of an object is given up; neither they nor this have an answer
    CommitObject    coordinator.commit     -> Committed
    AskOutcome      coordinator.outcome    -> Committed
    RefuseObjects   coordinator.refuse     -> None
    AskStates       coordinator.states     -> list[LogState | None]
    FindRuns        coordinator.find       -> list[Found]
    FindByTime      coordinator.by_time, or newest -> Run | None
    DeleteBefore    coordinator.delete_before -> list[LogState | None]
    ReadObject      store.read             -> list[Buffer]
    LookAtFacts     facts.look             -> Facts | None
    CallClaims      a call of the tiering claims -> what it gives
    ReadOn          connections that were held up are read again; it has no answer
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeAlias

import msgspec

from anabranch.core.diskless.rows import Commit, LogKey, Wanted
from anabranch.core.types import Buffer


class PrepareObjects(msgspec.Struct, frozen=True, eq=False):
    """Get ids for objects to come."""

    count: int
    lease_ms: int


class PutObject(msgspec.Struct, frozen=True, eq=False):
    """Store an object; several are put side by side."""

    object_id: int
    object_key: str
    buffers: Sequence[Buffer]
    byte_size: int


class EndPuts(msgspec.Struct, frozen=True, eq=False):
    """Puts of an object that are still under way are of no use any more."""

    object_id: int


class CommitObject(msgspec.Struct, frozen=True, eq=False):
    """Have offsets given to an object's batches. One is under way at a time."""

    commit: Commit


class AskOutcome(msgspec.Struct, frozen=True, eq=False):
    """What became of the object whose commit had no answer."""

    object_id: int
    object_key: str


class RefuseObjects(msgspec.Struct, frozen=True, eq=False):
    """These were not stored, and will not be committed."""

    object_ids: tuple[int, ...]


class ReadOn(msgspec.Struct, frozen=True, eq=False):
    """There is room again for what producers send."""


class AskStates(msgspec.Struct, frozen=True, eq=False):
    """Where partitions stand. `number` counts questions: an answer is as new as its question."""

    keys: tuple[LogKey, ...]
    number: int


class FindRuns(msgspec.Struct, frozen=True, eq=False):
    """Where records lie."""

    wanted: tuple[Wanted, ...]


class FindByTime(msgspec.Struct, frozen=True, eq=False):
    """The first run, from an offset on, that is not older than a timestamp; None: the one with the
    greatest."""

    key: LogKey
    timestamp: int | None
    number: int
    first: int = 0


class DeleteBefore(msgspec.Struct, frozen=True, eq=False):
    """Raise the starts of partitions. One is under way at a time."""

    wanted: tuple[tuple[LogKey, int], ...]


class ReadObject(msgspec.Struct, frozen=True, eq=False):
    """Read (position, length) ranges of an object. `is_far`: for readers that are far behind."""

    object_key: str
    ranges: tuple[tuple[int, int], ...]
    is_far: bool


class LookAtFacts(msgspec.Struct, frozen=True, eq=False):
    """The facts of a partition's remote segments, which should reach up to an offset."""

    key: LogKey
    upto: int


class CallClaims(msgspec.Struct, frozen=True, eq=False):
    """A call that a tiering job makes through this broker, by its name in `TieringClaims`."""

    number: int
    call: str
    arguments: tuple[Any, ...]


Effect: TypeAlias = (
    PrepareObjects
    | PutObject
    | EndPuts
    | CommitObject
    | AskOutcome
    | RefuseObjects
    | ReadOn
    | AskStates
    | FindRuns
    | FindByTime
    | DeleteBefore
    | ReadObject
    | LookAtFacts
    | CallClaims
)
