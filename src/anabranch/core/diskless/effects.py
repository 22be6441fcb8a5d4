"""What a broker's diskless half wants done: frozen messages to the shell, which only performs them.

Each is one call of the coordinator or of the store. What the call gave, or the StorageFault that it
raised, comes back with the very effect: `Diskless.answered(effect, result, now_ms)`. Calls may be
made side by side; the machine itself keeps them in order where order counts.

    PrepareObjects  coordinator.prepare    -> list[Prepared]
    PutObject       store.put              -> None
    CommitObject    coordinator.commit     -> Committed
    AskOutcome      coordinator.outcome    -> Committed
    RefuseObjects   coordinator.refuse     -> None
    AskStates       coordinator.states     -> list[LogState | None]
    FindRuns        coordinator.find       -> list[Found]
    FindByTime      coordinator.by_time, or newest -> Run | None
    DeleteBefore    coordinator.delete_before -> list[LogState | None]
    ReadObject      store.read             -> list[Buffer]
    ReadOn          connections that were held up are read again; it has no answer
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TypeAlias

from anabranch.core.diskless.rows import Commit, LogKey, Wanted
from anabranch.core.types import Buffer


@dataclass(frozen=True, slots=True, eq=False)
class PrepareObjects:
    """Get ids for objects to come."""

    count: int
    lease_ms: int


@dataclass(frozen=True, slots=True, eq=False)
class PutObject:
    """Store an object; several are put side by side."""

    object_id: int
    object_key: str
    buffers: Sequence[Buffer]
    byte_size: int


@dataclass(frozen=True, slots=True, eq=False)
class CommitObject:
    """Have offsets given to an object's batches. One is under way at a time."""

    commit: Commit


@dataclass(frozen=True, slots=True, eq=False)
class AskOutcome:
    """What became of the object whose commit had no answer."""

    object_id: int
    object_key: str


@dataclass(frozen=True, slots=True, eq=False)
class RefuseObjects:
    """These were not stored, and will not be committed."""

    object_ids: tuple[int, ...]


@dataclass(frozen=True, slots=True, eq=False)
class ReadOn:
    """There is room again for what producers send."""


@dataclass(frozen=True, slots=True, eq=False)
class AskStates:
    """Where partitions stand. `number` counts questions: an answer is as new as its question."""

    keys: tuple[LogKey, ...]
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class FindRuns:
    """Where records lie."""

    wanted: tuple[Wanted, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FindByTime:
    """The first run that is not older than a timestamp; None: the one with the greatest."""

    key: LogKey
    timestamp: int | None
    number: int


@dataclass(frozen=True, slots=True, eq=False)
class DeleteBefore:
    """Raise the start of a partition."""

    key: LogKey
    offset: int


@dataclass(frozen=True, slots=True, eq=False)
class ReadObject:
    """Read (position, length) ranges of an object. `is_far`: for readers that are far behind."""

    object_key: str
    ranges: tuple[tuple[int, int], ...]
    is_far: bool


Effect: TypeAlias = (
    PrepareObjects
    | PutObject
    | CommitObject
    | AskOutcome
    | RefuseObjects
    | ReadOn
    | AskStates
    | FindRuns
    | FindByTime
    | DeleteBefore
    | ReadObject
)
