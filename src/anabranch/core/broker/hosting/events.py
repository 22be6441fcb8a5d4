"""What hosting is told: answers to its effects, and what requests and disks ran into."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from collections.abc import Sequence

    from anabranch.core.broker.hosting.effects import SyncLog
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.files import DiskFull
    from anabranch.core.log.log import Log
    from anabranch.core.log.logs import FoundPartition, LogFolder
    from anabranch.core.types import TopicPartition


class FolderOpened(msgspec.Struct, frozen=True, eq=False):
    """A folder works: what lies in it, and the size of its volume (0: it keeps no reserve)."""

    folder: LogFolder
    found: Sequence[FoundPartition]
    volume_bytes: int


class FolderFailed(msgspec.Struct, frozen=True):
    """A disk refused something for another reason than room."""

    path: str
    fault: StorageFault


class LogOpened(msgspec.Struct, frozen=True, eq=False):
    """The log that was asked for last is open."""

    place: TopicPartition
    log: Log


class OpeningFailed(msgspec.Struct, frozen=True):
    """The log that was asked for last is not open; the kind of fault says what follows."""

    place: TopicPartition
    fault: StorageFault


class NameTaken(msgspec.Struct, frozen=True):
    """Where a log was to begin, another folder lies that was not found at the start."""

    place: TopicPartition


class Refused(msgspec.Struct, frozen=True):
    """A disk had no room for something."""

    path: str
    fault: DiskFull


class FreeSeen(msgspec.Struct, frozen=True):
    """So much is free in a full folder."""

    path: str
    free_bytes: int


class Reserved(msgspec.Struct, frozen=True):
    """The reserve is allocated again."""

    path: str


class NotReserved(msgspec.Struct, frozen=True):
    """The reserve could not be allocated."""

    path: str


class SyncEnded(msgspec.Struct, frozen=True):
    """A sync round ended, with a fault or without."""

    asked: SyncLog
    fault: StorageFault | None


class MovePrepared(msgspec.Struct, frozen=True):
    """What was asked for last for a copy is done, or its disk refused it."""

    fault: StorageFault | None
    wall_ms: int


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
    | MovePrepared
)
