"""What hosting wants done: frozen messages to the performer, which does them in order.

Those with an answer say which events answer them (`events.py`). None may be done twice.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import msgspec

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.config import LogConfig
    from anabranch.core.log.files import Syncable
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicId, TopicPartition


class OpenFolder(msgspec.Struct, frozen=True):
    """Read what lies in a folder. Answer: FolderOpened or FolderFailed."""

    path: str


class OpenLog(msgspec.Struct, frozen=True):
    """Open a log that lies in a folder. Answer: LogOpened or OpeningFailed."""

    path: str
    place: TopicPartition
    topic_id: TopicId
    config: LogConfig


class CreateLog(msgspec.Struct, frozen=True):
    """Begin an empty log. Answer: LogOpened, OpeningFailed, or NameTaken (and nothing is made)."""

    path: str
    place: TopicPartition
    topic_id: TopicId
    config: LogConfig


class RemoveLeftover(msgspec.Struct, frozen=True):
    """Remove what a full disk let through of a log that was to be made. Answer: FolderFailed."""

    path: str
    place: TopicPartition


class SetAside(msgspec.Struct, frozen=True):
    """Rename a log's folder so that nothing takes it for this partition's; keep its bytes.

    Answer: FolderFailed when that fails."""

    path: str
    place: TopicPartition
    what: str
    """Whose log it is, for people."""


class SettleNames(msgspec.Struct, frozen=True):
    """Sync a folder's names: no power cut gives a log that was taken away there its place again.
    Answer: FolderFailed."""

    path: str


class DeleteLog(msgspec.Struct, frozen=True):
    """Take a log away: rename its folder now, remove it after the delay. Answer: FolderFailed."""

    path: str
    place: TopicPartition


class Checkpoint(msgspec.Struct, frozen=True):
    """Write recovery points and log starts of a folder. Answer: Refused or FolderFailed."""

    path: str


class SaveHighWatermarks(msgspec.Struct, frozen=True):
    """Write the high watermarks of a folder, sync it. Answer: Refused or FolderFailed."""

    path: str


class RemoveDeleted(msgspec.Struct, frozen=True):
    """Remove files whose delay is over. Answer: Refused or FolderFailed."""

    path: str


class SyncLog(msgspec.Struct, frozen=True, eq=False):
    """Sync files of a log. Answer: SyncEnded."""

    replica: Replica
    end_offset: int
    files: tuple[Syncable, ...]


class PrepareMove(msgspec.Struct, frozen=True, eq=False):
    """Sync files of a copy that is to move here, or bring in what it is made from, in a thread.
    Answer: MovePrepared."""

    path: str
    files: tuple[Syncable, ...]


class KeepReserve(msgspec.Struct, frozen=True):
    """Allocate the reserve of a folder that was just opened. Answer: Refused or FolderFailed."""

    path: str
    size_bytes: int


class GiveBack(msgspec.Struct, frozen=True):
    """Free the reserve of a folder."""

    path: str


class LookForRoom(msgspec.Struct, frozen=True):
    """Ask how much is free. Answer: FreeSeen, none when the disk does not say."""

    path: str


class TakeReserve(msgspec.Struct, frozen=True):
    """Allocate the reserve of a folder again. Answer: Reserved or NotReserved."""

    path: str
    size_bytes: int


class CleanLogs(msgspec.Struct, frozen=True):
    """Roll segments that are too old, apply retention and forget idle producers: `clean_one` for
    every hosted replica, some at a time. No answer: faults are left in `broker.faults`."""


class TellHosted(msgspec.Struct, frozen=True, eq=False):
    """A replica was opened, or its log was made (`is_found` False)."""

    replica: Replica
    is_found: bool


class TellController(msgspec.Struct, frozen=True):
    """The controller is to hear now which folders failed and which are full."""

    is_failure: bool = False


class TellUnusable(msgspec.Struct, frozen=True):
    """The controller is to hear of logs that cannot serve although their folders work."""


class Ready(msgspec.Struct, frozen=True):
    """The controller may let this broker in: what was published is followed, and what recovery
    found is on disk. Once a process."""


class Stop(msgspec.Struct, frozen=True):
    """The process must end: no folder is left to work with."""

    why: str


class Report(msgspec.Struct, frozen=True):
    """Tell an operator. `level` is "error", "warning" or "info"."""

    level: str
    sentence: str
    place: TopicPartition | None = None
    path: str = ""
    why: str | StorageFault = ""
    cut_bytes: int = 0
    remedy: str = ""
    """What to do about it."""


Effect: TypeAlias = (
    OpenFolder
    | OpenLog
    | CreateLog
    | RemoveLeftover
    | SetAside
    | SettleNames
    | DeleteLog
    | Checkpoint
    | SaveHighWatermarks
    | RemoveDeleted
    | SyncLog
    | PrepareMove
    | KeepReserve
    | GiveBack
    | LookForRoom
    | TakeReserve
    | CleanLogs
    | TellHosted
    | TellController
    | TellUnusable
    | Ready
    | Stop
    | Report
)
