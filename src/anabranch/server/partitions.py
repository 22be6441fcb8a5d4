"""The shell around the replicas that this broker hosts: it does what `core.broker.hosting` wants.

What: `publish` hands each new metadata image to the machine and has it followed in small steps: the
first at once, the others in slices of a few milliseconds on the loop, so that a topic with
thousands of partitions does not delay other work. Effects of other parts (`flush.py`, `upkeep.py`,
`room.py`, `roles.py`) are performed by those, which register with `performs`. Nothing here decides.
Not here: timers and checkpoints (`upkeep.py`), flush rounds (`flush.py`), locks (`folders.py`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Sequence
from functools import partial

from anabranch.core.api.context import Broker
from anabranch.core.broker.hosting import effects as does
from anabranch.core.broker.hosting import events
from anabranch.core.broker.hosting.outcomes import folder_opened, log_opened
from anabranch.core.errors import StorageFault
from anabranch.core.log.files import Files
from anabranch.core.log.logs import LogFolder
from anabranch.core.metadata.following.effects import Act
from anabranch.core.replication.replica import Replica
from anabranch.server.flush import sync_logs
from anabranch.server.hosting_performer import Performer
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.room import Rooms

LOG = logger("partitions")

FIRST_SLICE_S = 0.02
"""What `publish` itself may take: enough for a topic of ordinary size to be ready at once."""
NOT_REMOVED = "deleted files were not removed"
SLICE_S = 0.005
"""What each later slice may take from the loop."""


class PartitionShell(Performer):
    """One broker's logs on its disks.

    `on_changed` is called after keys were put into `broker.changed` outside of a request;
    `on_fatal` with a sentence when no folder is left to work with, or the metadata is not followed.
    """

    def __init__(
        self,
        broker: Broker,
        files: Files,
        folders: Sequence[str],
        *,
        clock_ms: Callable[[], int],
    ) -> None:
        super().__init__(broker)
        self.on_changed: Callable[[], None] | None = None
        self.on_fatal: Callable[[str], None] | None = None
        self._files = files
        self._clock_ms = clock_ms
        self._continuation: asyncio.Handle | None = None
        self._performers |= {
            does.OpenFolder: self._open_folder,
            does.OpenLog: self._open,
            does.CreateLog: self._open,
            does.RemoveLeftover: self._remove_leftover,
            does.SetAside: self._set_aside,
            does.SettleNames: self._settle_names,
            does.DeleteLog: self._delete_log,
            does.Checkpoint: self._checkpoint,
            does.RemoveDeleted: self._remove_deleted,
            does.Report: self._report,
            does.Stop: self._stop,
        }
        self.rooms = Rooms(files, self)
        broker.partitions.folders = list(folders)

    # Following the metadata.

    def publish(self, moved: Act) -> None:
        """Follow a new image."""
        if self.hosting.is_stopping:
            return  # the next start follows it
        self.hosting.follow(moved.image, moved.published, moved.deleted_before, moved.deleted_ids)
        self.run()
        self._broker.image = moved.image

    def run(self) -> None:
        """Perform what is to be done; what takes long goes on in slices."""
        self._run_slice(FIRST_SLICE_S)
        if self.hosting.work_left and self._continuation is None:
            self._continue_soon()

    def _continue_soon(self) -> None:
        self._continuation = asyncio.get_running_loop().call_soon(self._continue)

    def _continue(self) -> None:
        self._continuation = None
        try:
            self._run_slice(SLICE_S)
        except Exception as fault:
            if self.on_fatal is None:
                raise
            tell_unexpected(fault, "following the metadata")
            self.on_fatal(f"following the metadata failed: {type(fault).__name__}: {fault}")
            return
        self.tell_changed()
        if self.hosting.work_left:
            self._continue_soon()

    def _run_slice(self, budget_s: float) -> None:
        until = time.perf_counter() + budget_s
        self.perform()
        while self.hosting.advance():
            self.perform()
            if time.perf_counter() >= until:
                return

    # Performing.

    def _open_folder(self, effect: does.OpenFolder) -> None:
        path = effect.path
        self.answer(folder_opened(path, lambda: LogFolder(self._files, path)))

    def _open(self, effect: does.OpenLog | does.CreateLog) -> None:
        self.answer(log_opened(effect, self.folders[effect.path], self._clock_ms()))

    def _remove_leftover(self, effect: does.RemoveLeftover) -> None:
        path = f"{effect.path}/{effect.place}"
        self.attempt(effect.path, lambda: self._files.remove_tree(path), NOT_REMOVED)

    def _set_aside(self, effect: does.SetAside) -> None:
        def act() -> None:
            aside = self.folders[effect.path].set_aside(effect.place, unique=uuid.uuid4().hex)
            LOG.warning(f"set aside the log of {effect.what}", partition=effect.place, path=aside)

        self.attempt(effect.path, act, "it was not set aside")

    def _settle_names(self, effect: does.SettleNames) -> None:
        settle = self.folders[effect.path].settle_names
        self.attempt(effect.path, settle, "names were not synced")

    def _delete_log(self, effect: does.DeleteLog) -> None:
        folder, unique, now_ms = self.folders[effect.path], uuid.uuid4().hex, self._clock_ms()
        self.attempt(
            effect.path,
            lambda: folder.delete_log(effect.place, unique=unique, now_ms=now_ms),
            NOT_REMOVED,
        )

    def _checkpoint(self, effect: does.Checkpoint) -> None:
        self.attempt(effect.path, self.folders[effect.path].checkpoint)

    def _remove_deleted(self, effect: does.RemoveDeleted) -> None:
        folder = self.folders[effect.path]
        self.attempt(effect.path, lambda: folder.remove_deleted(self._clock_ms()), NOT_REMOVED)

    def _report(self, effect: does.Report) -> None:
        fields = {
            "partition": effect.place,
            "path": effect.path,
            "why": str(effect.why),
            "bytes": effect.cut_bytes,
            "remedy": effect.remedy,
        }
        told = {name: value for name, value in fields.items() if value}
        getattr(LOG, effect.level)(effect.sentence, **told)

    def _stop(self, effect: does.Stop) -> None:
        if self.on_fatal is not None:
            self.on_fatal(effect.why)

    # What others of the broker call.

    def folder_failed(self, path: str, fault: StorageFault) -> None:
        """A folder's disk refused something for another reason than room."""
        self.answer(events.FolderFailed(path, fault))
        self.tell_changed()

    def take_faults(self) -> None:
        """Act on the storage faults that requests ran into."""
        super().take_faults()
        self.tell_changed()

    def is_hosted(self, replica: Replica) -> bool:
        """Whether this very replica is still the one that requests see."""
        return self.hosting.is_hosted(replica)

    def tell_changed(self) -> None:
        """Have those woken who wait for what changed outside of a request."""
        if self.on_changed is not None and (self._broker.changed or self._broker.unsynced):
            self.on_changed()

    def checkpoint_high_watermarks(self, folder: LogFolder) -> None:
        """Write the high watermarks of a folder's partitions."""
        folder.checkpoint_high_watermarks(self.hosting.high_watermarks(folder))

    # The end.

    def stop_following(self) -> None:
        """Open no more, but delete what is to go. What that syncs may still be waited for."""
        if self._continuation is not None:
            self._continuation.cancel()
            self._continuation = None
        self.rooms.stop()
        self.hosting.stop()
        while self.hosting.advance():
            self.perform()

    async def stop(self) -> None:
        """Sync and close every log, write checkpoints and clean markers."""
        self.stop_following()
        for folder in self.working():
            self.attempt(folder.path, partial(self.checkpoint_high_watermarks, folder))
        for folder in self.folders.values():
            if folder.fault is None:
                try:
                    await sync_logs(folder)
                except StorageFault as fault:
                    self.folder_failed(folder.path, fault)
            try:
                self.hosting.close(folder)
            except StorageFault as fault:
                LOG.error("a folder was not closed cleanly", path=folder.path, why=str(fault))

    def statistics(self) -> dict[str, int]:
        """Counts for metrics and health."""
        partitions = self._broker.partitions
        return {
            "hosted": len(partitions),
            "leading": sum(replica.is_leader for replica in partitions),
            "offline": len(partitions.offline),
            "under_min_isr": sum(
                replica.is_leader and not replica.enough_in_sync for replica in partitions
            ),
            "pending_changes": self.hosting.work_left,
        }
