"""The room of a node's folders: reserves are kept, given back, and taken again.

What: performs what `core/log/room.py` decides. Each folder of `log.dirs` keeps a file of allocated
space (`.reserve`). When its disk refuses something for want of room that file is removed, and the
controller is told; when there is room again it is made again, and the controller is told. Rules
kept: one of a folder's states is said once; a file system is asked how much is free only while a
folder is full. Not here: who refuses records meanwhile (`core/log/appending.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Callable, Mapping

from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull, Files
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.room import Room
from anabranch.core.replication.partitions import Partitions
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger

LOG = logger("partitions")
REMEDY = (
    "free space on its volume, make it larger, or move partitions to another broker; "
    "retention frees space by itself, compacted topics do not"
)


class Rooms:
    """The room of each folder that works. `on_changed` is called when one became full or has room
    again."""

    def __init__(
        self, files: Files, partitions: Partitions, folders: Mapping[str, LogFolder]
    ) -> None:
        self.on_changed: Callable[[], None] | None = None
        self._files = files
        self._partitions = partitions
        self._folders = folders
        self._asked_for = 0
        """How often what must be written asked for a reserve."""

    def opened(self, folder: LogFolder) -> None:
        """Keep a reserve in a folder from now on. Raises StorageFault."""
        room = folder.room = Room(self._files.volume_bytes(folder.path))
        try:
            self._files.reserve(folder.path, room.reserve_bytes)
        except DiskFull as fault:
            self.refused(folder, fault)

    def refused(self, folder: LogFolder, fault: DiskFull) -> None:
        """A disk had no room for something."""
        if folder.room.refused(steady_ms()):
            self._files.give_back(folder.path)
            LOG.error("a disk is full", path=folder.path, why=str(fault), remedy=REMEDY)
            self._partitions.full_folders.add(folder.path)
            self._tell()

    def make_room(self, beside: str, fault: DiskFull) -> bool:
        """Something that must be written, in the folder `beside`, did not fit: give back the
        reserves on its volume. Whether there were any."""
        found = False
        self._asked_for += 1
        for folder in self._folders.values():
            if folder.fault is None and _share_a_volume(folder.path, beside):
                found = self._files.give_back(folder.path) or found
                self.refused(folder, fault)
        return found

    async def look(self) -> None:
        """Look whether full folders have room again."""
        full = [each for each in self._folders.values() if each.room.is_full and not each.fault]
        for folder in full:
            asked_for = self._asked_for
            try:
                free_bytes = await asyncio.to_thread(self._files.free_bytes, folder.path)
                if not folder.room.may_return(free_bytes, steady_ms()):
                    continue
                size_bytes = folder.room.reserve_bytes
                await asyncio.to_thread(self._files.reserve, folder.path, size_bytes)
            except StorageFault:
                continue  # the upkeep of the folder finds out more
            if asked_for != self._asked_for:
                self._files.give_back(folder.path)  # it was needed while it was taken
            elif folder.room.reserved(steady_ms()):
                LOG.info("a disk has room again", path=folder.path)
                self._partitions.full_folders.discard(folder.path)
                self._tell()

    def _tell(self) -> None:
        if self.on_changed is not None:
            self.on_changed()


def _share_a_volume(folder: str, other: str) -> bool:
    try:
        return os.stat(folder).st_dev == os.stat(other).st_dev
    except OSError:
        return False
