"""The folders of one broker: opened, full, failed, closed.

What: a folder takes new logs while its disk works; without room it takes no records, and gets its
reserve back when there is room again; one that fails goes offline with every partition in it, for
the rest of the process's life. Rules kept: a folder fails alone; the process ends when the last one
does; each change is told to the controller once; a log that has to be checked again leaves its
folder without the marker of a clean stop. Source: KIP-112. Not here: partitions (`hosting.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import (
    Checkpoint,
    Effect,
    GiveBack,
    KeepReserve,
    LookForRoom,
    RemoveDeleted,
    Report,
    SaveHighWatermarks,
    Stop,
    TakeReserve,
    TellController,
)
from anabranch.core.log.room import Room

if TYPE_CHECKING:
    from collections.abc import Callable

    from anabranch.core.broker.hosting.events import FolderOpened, FreeSeen
    from anabranch.core.errors import StorageFault
    from anabranch.core.log.files import DiskFull
    from anabranch.core.log.logs import LogFolder
    from anabranch.core.replication.partitions import Partitions
    from anabranch.core.replication.replica import Replica

REMEDY = (
    "free space on its volume, enlarge it, or move partitions to another broker; retention still "
    "frees space, compaction does not"
)


class Folders:
    """See the module. `lost` is called with each replica of a folder that failed."""

    def __init__(
        self,
        partitions: Partitions,
        effects: list[Effect],
        lost: Callable[[Replica], None],
    ) -> None:
        self.by_path: dict[str, LogFolder] = {}
        self.unclean: set[str] = set()
        """Folders with a log that the next process has to check."""
        self._partitions = partitions
        self._effects = effects
        self._lost = lost

    def working(self) -> list[LogFolder]:
        """The folders that have not failed."""
        return [folder for folder in self.by_path.values() if folder.fault is None]

    def roomiest(self) -> LogFolder | None:
        """The working folder with the fewest logs, as Kafka chooses; a full one last."""
        return min(
            self.working(),
            key=lambda folder: (folder.room.is_full, len(folder.logs)),
            default=None,
        )

    def opened(self, event: FolderOpened) -> None:
        """A folder works: have it keep a reserve from now on."""
        folder = event.folder
        self.by_path[folder.path] = folder
        room = folder.room = Room(event.volume_bytes)
        self._effects.append(KeepReserve(folder.path, room.reserve_bytes))

    def failed(self, path: str, fault: StorageFault) -> None:
        """Take a folder offline with every partition in it."""
        partitions = self._partitions
        if path in partitions.offline_folders:
            return
        self._effects.append(Report("error", "a log folder is offline", path=path, why=fault))
        partitions.offline_folders.add(path)
        if path in self.by_path:
            self.by_path[path].fail(fault)
        for replica in [each for each in partitions if each.folder == path]:
            self._lost(replica)
        if partitions.offline_folders >= set(partitions.folders):
            why = f"no folder of log.dirs works; the last failure: {fault}"
            self._effects.append(Stop(why))
        self._effects.append(TellController(is_failure=True))

    def refused(self, path: str, fault: DiskFull, now_ms: int) -> None:
        """A disk had no room for something."""
        if self.by_path[path].fault is None and self.by_path[path].room.refused(now_ms):
            self._effects += (
                GiveBack(path),
                Report("error", "a disk is full", path=path, why=fault, remedy=REMEDY),
            )
            self._partitions.full_folders.add(path)
            self._effects.append(TellController())

    def look(self) -> None:
        """Have it looked whether full folders have room again."""
        self._effects += (
            LookForRoom(path)
            for path in sorted(self._partitions.full_folders)
            if self.by_path[path].fault is None
        )

    def free_seen(self, event: FreeSeen, now_ms: int) -> None:
        """So much is free in a full folder: its reserve may fit again."""
        folder = self.by_path[event.path]
        if folder.fault is None and folder.room.may_return(event.free_bytes, now_ms):
            folder.room.returns(now_ms)
            self._effects.append(TakeReserve(event.path, folder.room.reserve_bytes))

    def reserved(self, path: str, now_ms: int) -> None:
        """The reserve is there again: the folder takes records, unless it was needed meanwhile."""
        folder = self.by_path[path]
        if folder.fault is not None:
            return
        if not folder.room.reserved(now_ms):
            self._effects.append(GiveBack(path))
            return
        self._partitions.full_folders.discard(path)
        report = Report("info", "a disk has space again", path=path)
        self._effects += (report, TellController())

    def not_reserved(self, path: str, now_ms: int) -> None:
        """There was no room for the reserve after all."""
        if self.by_path[path].fault is None:
            self.by_path[path].room.not_reserved(now_ms)

    def checkpoint(self) -> None:
        """Have recovery points and log starts written."""
        self._effects += (Checkpoint(folder.path) for folder in self.working())

    def save_high_watermarks(self) -> None:
        """Have high watermarks written, and files removed whose delay is over."""
        for make in (RemoveDeleted, SaveHighWatermarks):
            self._effects += (make(folder.path) for folder in self.working())

    def may_be_marked_clean(self, folder: LogFolder, *, has_unread: bool) -> bool:
        """Whether the next process may trust every log of a folder: also those that this one did
        not read (`has_unread`), when the last one left them clean."""
        if folder.path in self.unclean or folder.holds_unchecked:
            return False
        return folder.clean or not has_unread
