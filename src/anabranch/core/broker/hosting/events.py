"""What hosting is told: answers to its effects, and what requests and disks ran into."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.broker.hosting.effects import SyncLog
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.files import DiskFull
    from anabranch.core.log.log import Log
    from anabranch.core.log.logs import FoundPartition, LogFolder
    from anabranch.core.types import TopicPartition


@dataclass(frozen=True, slots=True, eq=False)
class FolderOpened:
    """A folder works: what lies in it, and the size of its volume (0: it keeps no reserve)."""

    folder: LogFolder
    found: Sequence[FoundPartition]
    volume_bytes: int


@dataclass(frozen=True, slots=True)
class FolderFailed:
    """A disk refused something for another reason than room."""

    path: str
    fault: StorageFault


@dataclass(frozen=True, slots=True, eq=False)
class LogOpened:
    """The log that was asked for last is open."""

    place: TopicPartition
    log: Log


@dataclass(frozen=True, slots=True)
class OpeningFailed:
    """The log that was asked for last is not open; the kind of fault says what follows."""

    place: TopicPartition
    fault: StorageFault


@dataclass(frozen=True, slots=True)
class NameTaken:
    """Where a log was to begin, another folder lies that was not found at the start."""

    place: TopicPartition


@dataclass(frozen=True, slots=True)
class Refused:
    """A disk had no room for something."""

    path: str
    fault: DiskFull


@dataclass(frozen=True, slots=True)
class FreeSeen:
    """So much is free in a full folder."""

    path: str
    free_bytes: int


@dataclass(frozen=True, slots=True)
class Reserved:
    """The reserve is allocated again."""

    path: str


@dataclass(frozen=True, slots=True)
class NotReserved:
    """The reserve could not be allocated."""

    path: str


@dataclass(frozen=True, slots=True)
class SyncEnded:
    """A sync round ended, with a fault or without."""

    asked: SyncLog
    fault: StorageFault | None


Event: TypeAlias = (
    FolderOpened
    | FolderFailed
    | LogOpened
    | OpeningFailed
    | NameTaken
    | Refused
    | FreeSeen
    | Reserved
    | NotReserved
    | SyncEnded
)
