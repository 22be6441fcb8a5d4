"""Following the active controller in the simulation: performs `core.metadata.following`.

What: sends its questions over the node's link, writes snapshots of the copy after a while, and
hands images to those who follow them, as `server/metadata_log.py` does on a machine. The copy lies
on a simulated disk of its own, so that a crash leaves all of it, and a power cut what was synced
and some of the rest. Nothing here decides.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.following.effects import (
    Act,
    Begin,
    Event,
    Publish,
    Question,
    Registered,
    SnapshotFailed,
    SnapshotWritten,
    Unanswered,
)
from anabranch.core.metadata.following.following import Following, State
from anabranch.core.metadata.following.performer import Performer
from anabranch.core.metadata.store_check import CopyEnd
from anabranch.sim.batches import SharedBatchReader

if TYPE_CHECKING:
    from anabranch.core.log.files import DiskFull
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.sim.node_life import NodeLife
    from anabranch.sim.registrant import Registrant

ANSWER_MS = 4_000
"""After so long without an answer to a long poll another controller is asked."""
PIECE_BYTES = 4_000
"""So little that a snapshot comes in several pieces."""
SEGMENT_BYTES = 16_000
"""So little that the copy's log rolls, and can be let go of in part."""
WRITING_US = (1_000, 400_000)
"""What writing a snapshot takes, and then hearing that it is written."""
WRITE_BACK = 0.1
"""How likely the system stores all of the copy after an append: nothing else syncs it."""


class MetadataFollower(Performer):
    """Keeps a node's copy and image up with the active controller. One a life of a node."""

    def __init__(self, node: NodeLife) -> None:
        self.node = node
        self.world = node.cluster.world
        self.copy: MetadataCopy
        self.is_open = False
        """Whether the copy could be opened."""
        self.first_end: CopyEnd | None = None
        """Where the copy ended when it was opened."""
        self._is_writing = False
        self.written_to = 0
        """Where the newest snapshot ends that was written in this life."""
        self._following: Following
        self._random = self.world.random(f"{node.name}/metadata")
        self._asked: Registrant = node

    @property
    def is_cut_short(self) -> bool:
        """Whether a snapshot is being written or fetched, which the process's end cuts short."""
        return self.is_open and (self._is_writing or self._following.state is State.LOADING)

    def open(self) -> None:
        """Open the copy; the node must stop when its disk refuses."""
        node, cluster = self.node, self.node.cluster
        try:
            self.copy = node.copy = MetadataCopy.open(
                node.metadata_disk, node.metadata_log_dir, self.world.now_ms,
                segment_bytes=SEGMENT_BYTES, reading=SharedBatchReader(cluster.batches),
            )  # fmt: skip
            self.first_end = self.copy.end
        except StorageFault as fault:
            node.stop_because(str(fault))
            return
        self._following = Following(
            self.copy, cluster.cluster_id, node.node_id, node.config, self.world.steady_ms,
            piece_bytes=PIECE_BYTES,
        )  # fmt: skip
        self.is_open = True
        cluster.tell_copy_changed(node.node_id, "opened")

    def start(self) -> None:
        """Begin to follow."""
        self._step(Begin())

    def close(self) -> None:
        """The node stops in order; what is not closed in order is read through by the next start,
        as after a crash."""
        with suppress(StorageFault):
            self.copy.close()

    def registered(self, broker_epoch: int) -> None:
        """The controller gave this life its epoch."""
        self._step(Registered(broker_epoch))

    def _step(self, event: Event) -> None:
        begun = self.copy.log.start_offset
        self._following.step(event, self.world.steady_ms, self.world.now_ms)
        if self.copy.log.start_offset > begun:
            self._changed(why_it_begins_later(self.copy, event))
        self._perform()

    def _tick(self) -> None:
        self._following.tick(self.world.steady_ms)
        self._perform()

    def _perform(self) -> None:
        super()._perform()
        if self._following.is_waiting:
            pause_ms = self._following.next_tick_ms - self.world.steady_ms
            self.node.later(max(0, pause_ms), self._tick)

    # See Performer.

    def _leave(self) -> None:
        self.node.link.rotate(self._asked)

    def _publish(self, effect: Publish) -> None:
        self.node.on_committed(effect.image, effect.delta)
        if self._random.random() < WRITE_BACK:
            self.node.metadata_disk.sync_all()

    def _act(self, effect: Act) -> None:
        self.node.on_image(effect)

    def _met(self) -> None:
        self.node.session.controller_found()

    def _write_snapshot(self, image: MetadataImage) -> None:
        self._is_writing = True
        self._later(partial(self._write, image))

    def _make_room(self, _fault: DiskFull) -> bool:
        return False

    def _complain(self, what: str, why: str) -> None:
        self.world.note("metadata", self.node.name, f"{what}: {why}")

    def _stop(self, sentence: str) -> None:
        self.node.stop_because(sentence)

    def _changed(self, what: str) -> None:
        self.node.cluster.tell_copy_changed(self.node.node_id, what)

    # Questions.

    def _ask(self, question: Question) -> None:
        link = self.node.link
        self._asked = link.target
        answered = partial(self._answered, question, link.generation)
        link.call(question.request, answered, timeout_ms=ANSWER_MS)

    def _answered(
        self, question: Question, connection: int, answer: Any, _asked: Registrant
    ) -> None:
        if answer is None:
            self._step(Unanswered("no controller answered"))
        elif answer.error_code == ErrorCode.NOT_CONTROLLER:
            self._step(Unanswered("it is not the active controller"))
        else:
            self._step(question.answered(_plain(answer), connection))

    # Snapshots of the copy.

    def _later(self, action: Any) -> None:
        self.world.after_in(self.node, self._random.randint(*WRITING_US), action)

    def _write(self, image: MetadataImage) -> None:
        try:
            self.copy.write_snapshot(image, self.world.now_ms)
        except StorageFault as fault:
            self._later(partial(self._written, SnapshotFailed(str(fault))))
        else:
            self.written_to = int(image.next_offset)
            self._changed("snapshot")
            self._later(partial(self._written, SnapshotWritten()))

    def _written(self, event: Event) -> None:
        self._is_writing = False
        self._step(event)


def _plain(answer: Any) -> Any:
    """Records come in one piece over a wire, and here in those that were committed."""
    for topic in getattr(answer, "responses", ()):
        for partition in topic.partitions:
            if isinstance(partition.records, list):
                partition.records = b"".join(partition.records)
    return answer


def why_it_begins_later(copy: MetadataCopy, event: Event) -> str:
    """What moved the start of a copy's log: it was trimmed, or a snapshot was loaded, or a power
    cut left less log than the newest snapshot covers, and the log was begun anew behind it."""
    if isinstance(event, SnapshotWritten):
        return "trimmed"
    return "loaded" if copy.log.start_offset == copy.end_offset else "begun-anew"
