"""A machine of the simulated world and the process on it: what ends it, and what outlives it.

What: `Machine` has the disks, the copy of the metadata log, and the ids of the log folders, which
stay when its process ends; and the ways in which a process ends, waits, or goes on. A crash closes
connections; a machine without power only falls silent, and forgets what was not synced. Not here:
what the process does (`node.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.image import MetadataImage
from anabranch.sim.clocks import SteadyClock
from anabranch.sim.disk import SimDisk
from anabranch.sim.node_life import NodeLife
from anabranch.sim.processes import State

if TYPE_CHECKING:
    from anabranch.sim.registrant import Surroundings


class Backup:
    """A copy of a machine's folders, taken while its process runs."""

    def __init__(self, machine: Machine) -> None:
        self.disk = machine.disk.copied()
        self.metadata_disk = machine.metadata_disk.copied()
        self.directory_ids = dict(machine.directory_ids)
        self.broker_epoch = machine.session.broker_epoch


class Machine(NodeLife):
    """One machine with its disks and its one process."""

    def __init__(self, cluster: Surroundings, name: str, folders: int) -> None:
        super().__init__(name)
        self.cluster = cluster
        self.world, self.store, self.batches = cluster.world, cluster.store, cluster.batches
        self.folders = [f"{name}/d{index}" for index in range(folders)]
        self.directory_ids: dict[str, bytes] = {}
        self.clock = SteadyClock(self.world)
        """What its controller measures with."""
        self.metadata_log_dir = f"{name}/metadata"
        self.disk_delay_us = 0
        self.starts = 0
        self.is_serving = False
        self.listens = False
        self.wipe()

    def wipe(self) -> None:
        """Put in empty disks; only while the node is down."""
        assert not self.is_up
        random = self.world.random(f"{self.name}/disk")
        self.disk = SimDisk(random, lambda: self.world.now_ms)
        self.metadata_disk = SimDisk(self.world.random(f"{self.name}/metadata-disk"))
        self.copy: MetadataCopy | None = None
        for path in self.folders:
            self.disk.mount(path)
            self.directory_ids[path] = random.randbytes(16)
        if self.starts:
            self.changed("wipe")

    @property
    def followed(self) -> MetadataImage:
        """The newest metadata that this machine's last process had in its copy."""
        return MetadataImage.empty() if self.copy is None else self.copy.image

    def lose_folder(self, path: str) -> None:
        """Put in an empty disk for one folder; only while the node is down."""
        assert not self.is_up
        self.disk.broken.discard(path)
        self.disk.remove_tree(path)
        self.disk.sync_dir(path)
        self.disk.mount(path)
        self.directory_ids[path] = self.world.random(f"{self.name}/disk").randbytes(16)
        self.changed("wipe")

    def restore(self, backup: Backup) -> None:
        """Put in a copy that was taken earlier; only while the node is down."""
        assert not self.is_up
        self.disk, self.metadata_disk, self.copy = backup.disk, backup.metadata_disk, None
        self.changed("older")

    def crash(self, *, power: bool = False) -> None:
        """End the process at once; with `power`, its machine forgets what was not synced."""
        if not self.is_up:
            return
        if not power:
            self.end("crash", State.CRASHED)
            return
        self.open_calls.clear()  # no caller gets an answer
        self.disk.cut_power()
        self.metadata_disk.cut_power()
        self.end("power", State.POWERED_OFF)
        self.copy = None  # what is left of it shows when it is opened

    def pause(self) -> None:
        """Stop the process where it is; its memory and its connections stay."""
        if self.state is State.RUNNING:
            self.state = State.PAUSED
            self.held = []
            self.changed("pause")

    def resume(self) -> None:
        """Let a paused process go on; its machine is awake then, whoever suspended it."""
        if self.state is State.PAUSED:
            self.clock.go_on()
            self.state = State.RUNNING
            self.world.release(self)
            self.changed("resume")

    def end(self, what: str, state: State) -> None:
        """The process is gone."""
        self.is_serving = self.listens = False
        self.life += 1
        self.state = state
        calls = tuple(self.open_calls)
        self.open_calls.clear()
        for call in calls:
            call.lose()
        self.world.release(self)
        self.changed(what)
        if state is State.CRASHED:
            self.cluster.process_ended(self.node_id)

    def changed(self, what: str) -> None:
        """Tell who looks on that the process began, ended, or something in between."""
        self.world.note(what, self.name)
        self.cluster.tell_changed(self.node_id, what)
