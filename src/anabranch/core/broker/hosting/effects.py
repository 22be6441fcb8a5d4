"""What hosting wants done: frozen messages to the performer, which does them in order.

Those with an answer say which events answer them (`events.py`). None may be done twice.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.config import LogConfig
    from anabranch.core.log.files import Syncable
    from anabranch.core.replication.replica import Replica
    from anabranch.core.types import TopicId, TopicPartition


@dataclass(frozen=True, slots=True)
class OpenFolder:
    """Read what lies in a folder. Answer: FolderOpened or FolderFailed."""

    path: str


@dataclass(frozen=True, slots=True)
class OpenLog:
    """Open a log that lies in a folder. Answer: LogOpened or OpeningFailed."""

    path: str
    place: TopicPartition
    topic_id: TopicId
    config: LogConfig


@dataclass(frozen=True, slots=True)
class CreateLog:
    """Begin an empty log. Answer: LogOpened, OpeningFailed, or NameTaken (and nothing is made)."""

    path: str
    place: TopicPartition
    topic_id: TopicId
    config: LogConfig


@dataclass(frozen=True, slots=True)
class RemoveLeftover:
    """Remove what a full disk let through of a log that was to be made. Answer: FolderFailed."""

    path: str
    place: TopicPartition


@dataclass(frozen=True, slots=True)
class SetAside:
    """Rename a log's folder so that nothing takes it for this partition's; keep its bytes.

    Answer: FolderFailed when that fails."""

    path: str
    place: TopicPartition
    what: str
    """Whose log it is, for people."""


@dataclass(frozen=True, slots=True)
class DeleteLog:
    """Take a log away: rename its folder now, remove it after the delay. Answer: FolderFailed."""

    path: str
    place: TopicPartition


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """Write recovery points and log starts of a folder. Answer: Refused or FolderFailed."""

    path: str


@dataclass(frozen=True, slots=True)
class SaveHighWatermarks:
    """Write the high watermarks of a folder, sync it. Answer: Refused or FolderFailed."""

    path: str


@dataclass(frozen=True, slots=True)
class RemoveDeleted:
    """Remove files whose delay is over. Answer: Refused or FolderFailed."""

    path: str


@dataclass(frozen=True, slots=True, eq=False)
class SyncLog:
    """Sync files of a log. Answer: SyncEnded."""

    replica: Replica
    end_offset: int
    files: tuple[Syncable, ...]


@dataclass(frozen=True, slots=True)
class KeepReserve:
    """Allocate the reserve of a folder that was just opened. Answer: Refused or FolderFailed."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class GiveBack:
    """Free the reserve of a folder."""

    path: str


@dataclass(frozen=True, slots=True)
class LookForRoom:
    """Ask how much is free. Answer: FreeSeen, none when the disk does not say."""

    path: str


@dataclass(frozen=True, slots=True)
class TakeReserve:
    """Allocate the reserve of a folder again. Answer: Reserved or NotReserved."""

    path: str
    size_bytes: int


@dataclass(frozen=True, slots=True)
class CleanLogs:
    """Roll segments that are too old, apply retention and forget idle producers: `clean_one` for
    every hosted replica, some at a time. No answer: faults are left in `broker.faults`."""


@dataclass(frozen=True, slots=True, eq=False)
class TellHosted:
    """A replica was opened, or its log was made (`is_found` False)."""

    replica: Replica
    is_found: bool


@dataclass(frozen=True, slots=True)
class TellController:
    """The controller is to hear now which folders failed and which are full."""

    is_failure: bool = False


@dataclass(frozen=True, slots=True)
class TellUnusable:
    """The controller is to hear of logs that cannot serve although their folders work."""


@dataclass(frozen=True, slots=True)
class Stop:
    """The process must end: no folder is left to work with."""

    why: str


@dataclass(frozen=True, slots=True)
class Report:
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
    | DeleteLog
    | Checkpoint
    | SaveHighWatermarks
    | RemoveDeleted
    | SyncLog
    | KeepReserve
    | GiveBack
    | LookForRoom
    | TakeReserve
    | CleanLogs
    | TellHosted
    | TellController
    | TellUnusable
    | Stop
    | Report
)
