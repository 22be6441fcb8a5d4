"""The room of a node's folders: reserves are allocated, given back, and allocated again.

What: performs what `core/broker/hosting/folders.py` decides. Each folder of `log.dirs` keeps a file
of allocated space (`.reserve`). Disks are asked and reserves allocated in threads. Not here: when a
folder is full and when it has room again (`core/log/room.py`), who refuses records meanwhile
(`core/log/appends.py`).
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Coroutine
from typing import TYPE_CHECKING

from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import events
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import DiskFull, Files

if TYPE_CHECKING:
    from anabranch.server.hosting_performer import Performer


class Rooms:
    """The room of each folder that works."""

    def __init__(self, files: Files, shell: Performer) -> None:
        self._files = files
        self._shell = shell
        self._given_back = False
        self.looking: dict[str, asyncio.Task[None]] = {}
        """Folders that are looked at now: a dying disk takes long."""
        shell.performs(does.KeepReserve, self._keep)
        shell.performs(does.GiveBack, self._give_back)
        shell.performs(does.LookForRoom, self._look)
        shell.performs(does.TakeReserve, self._take)

    def make_room(self, beside: str, fault: DiskFull) -> bool:
        """Something that must be written, in the folder `beside`, did not fit: give back the
        reserves on its volume. Whether there were any."""
        self._given_back = False
        for folder in self._shell.working():
            if _share_a_volume(folder.path, beside):
                self._shell.answer(events.Refused(folder.path, fault))
        return self._given_back

    def stop(self) -> None:
        """Look no more."""
        for task in self.looking.values():
            task.cancel()

    def _keep(self, effect: does.KeepReserve) -> None:
        try:
            self._files.reserve(effect.path, effect.size_bytes)
        except StorageFault as fault:
            self._shell.refuse(effect.path, fault)

    def _give_back(self, effect: does.GiveBack) -> None:
        self._given_back = self._files.give_back(effect.path) or self._given_back

    def _look(self, effect: does.LookForRoom) -> None:
        if effect.path not in self.looking:
            self._begin(effect.path, self._look_at(effect.path))

    def _take(self, effect: does.TakeReserve) -> None:
        self._begin(effect.path, self._reserve(effect))

    def _begin(self, path: str, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.looking[path] = task
        task.add_done_callback(lambda done: self._ended(path, done))

    def _ended(self, path: str, done: asyncio.Task[None]) -> None:
        if self.looking.get(path) is done:
            del self.looking[path]

    async def _look_at(self, path: str) -> None:
        try:
            free_bytes = await asyncio.to_thread(self._files.free_bytes, path)
        except StorageFault:
            return  # the upkeep of the folder finds out more
        self._shell.answer(events.FreeSeen(path, free_bytes))

    async def _reserve(self, effect: does.TakeReserve) -> None:
        try:
            await asyncio.to_thread(self._files.reserve, effect.path, effect.size_bytes)
        except StorageFault:
            self._shell.answer(events.NotReserved(effect.path))
        else:
            self._shell.answer(events.Reserved(effect.path))


def _share_a_volume(folder: str, other: str) -> bool:
    try:
        return os.stat(folder).st_dev == os.stat(other).st_dev
    except OSError:
        return False
