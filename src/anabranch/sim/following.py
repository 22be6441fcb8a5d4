"""How a made-up node finds the active controller and follows its decisions.

What: `ControllerLink` sends a request to whichever controller is active, moving on when one says
that it is not, or says nothing. `MetadataFollower` keeps a node's copy of the metadata log and its
image up with the active controller through Fetch, as `server/metadata_log.py` does on a machine.
Rules kept: a node acts on metadata only when it shows the node's own registration; after each
change of the one it follows, the last batch of the copy is read again and compared: a store that
went back shows then, and the node stops instead of unlearning. The copy survives a crash; a power
cut may take its last batches.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import everything
from anabranch.core.metadata.store_check import CopyEnd, store_fault
from anabranch.core.types import CLUSTER_METADATA_TOPIC, METADATA_TOPIC_ID
from anabranch.core.wire.batch import walk
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchTopic,
    PartitionData,
    ReplicaState,
)
from anabranch.sim.batches import MetadataBatches
from anabranch.sim.dialling import close
from anabranch.sim.rpc import CONTROLLER

if TYPE_CHECKING:
    from anabranch.sim.node import SimNode

REQUEST_MS = 2_000
"""After so long without an answer the next controller is asked."""
PATIENCE_MS = 30_000
FIRST_PAUSE_MS = 10
LONGEST_PAUSE_MS = 500
POLL_MS = 2_000
RETRY_MS = 50
PIECE_BYTES = 8 * 1024 * 1024
LOST_BY_POWER = 4
"""Batches of a copy that a power cut may take at most: it is not synced one by one."""
SERVED = "that the active controller serves"


class ControllerLink:
    """Requests to the active controller. One a life of a node."""

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.world = node.cluster.world
        self.generation = 0
        """Grows with each move to another controller."""
        self._turn = node.cluster.order.index(node.node_id)

    @property
    def target(self) -> SimNode:
        """Who is asked next."""
        cluster = self.node.cluster
        return cluster.nodes[cluster.order[self._turn % len(cluster.order)]]

    def rotate(self, asked: SimNode) -> None:
        """Move on from one that was no use, unless that has happened already."""
        if asked is self.target:
            self._turn += 1
            self.generation += 1
            if asked.is_up and asked is not self.node:
                close(self.node, asked)

    def call(
        self,
        message: Any,
        on_answer: Callable[[Any, SimNode], None],
        *,
        timeout_ms: int = REQUEST_MS,
        version: int | None = None,
    ) -> None:
        """Ask once."""
        target = self.target

        def answered(answer: Any) -> None:
            on_answer(answer, target)

        self.node.cluster.calls.call(
            self.node, target, CONTROLLER, message, answered,
            timeout_us=timeout_ms * 1000, version=version,
        )  # fmt: skip

    def send(
        self,
        message: Any,
        on_answer: Callable[[Any], None],
        *,
        patience_ms: int = PATIENCE_MS,
        version: int | None = None,
    ) -> None:
        """Ask until an active controller answers; None when none did in time."""
        give_up_ms = self.world.steady_ms + patience_ms
        _Search(self, message, version, on_answer, give_up_ms).ask()


class _Search:
    """One request and its way to an active controller."""

    __slots__ = ("give_up_ms", "link", "message", "on_answer", "pause_ms", "version")

    def __init__(
        self,
        link: ControllerLink,
        message: Any,
        version: int | None,
        on_answer: Callable[[Any], None],
        give_up_ms: int,
    ) -> None:
        self.link = link
        self.message = message
        self.version = version
        self.on_answer = on_answer
        self.give_up_ms = give_up_ms
        self.pause_ms = FIRST_PAUSE_MS

    def ask(self) -> None:
        """Ask whoever is thought to be active."""
        self.link.call(self.message, self.answered, version=self.version)

    def answered(self, answer: Any, asked: SimNode) -> None:
        """Take the answer, or ask the next one after a pause."""
        code = getattr(answer, "error_code", 0)
        if answer is not None and code != ErrorCode.NOT_CONTROLLER:
            self.on_answer(answer)
            return
        link = self.link
        link.rotate(asked)
        if link.world.steady_ms > self.give_up_ms:
            self.on_answer(None)
            return
        link.world.after_in(link.node, self.pause_ms * 1000, self.ask)
        self.pause_ms = min(self.pause_ms * 2, LONGEST_PAUSE_MS)


class _Kept(NamedTuple):
    """A committed batch as a copy keeps it, with the image after it."""

    base_offset: int
    end_offset: int
    payload: bytes
    image: MetadataImage


class MetadataCopy:
    """A node's own copy of the metadata log; it outlives the node's process."""

    def __init__(self, folder: str) -> None:
        self.folder = folder
        self._kept: list[_Kept] = []

    @property
    def image(self) -> MetadataImage:
        """The state at the copy's end."""
        return self._kept[-1].image if self._kept else MetadataImage.empty()

    @property
    def end(self) -> CopyEnd:
        """Where the copy ends, and its last batch."""
        if not self._kept:
            return CopyEnd(self.folder)
        last = self._kept[-1]
        return CopyEnd(
            self.folder, last.end_offset, last.image.epoch, last.base_offset, last.payload
        )

    def append(self, base_offset: int, payload: bytes, image: MetadataImage) -> None:
        """One more committed batch."""
        self._kept.append(_Kept(base_offset, image.next_offset, payload, image))

    def cut_power(self, random: Random) -> None:
        """Lose some of what was not synced."""
        lost = random.randint(0, min(LOST_BY_POWER, len(self._kept)))
        del self._kept[len(self._kept) - lost :]


class MetadataFollower:
    """Keeps a node's copy and image up with the active controller. One a life of a node."""

    def __init__(self, node: SimNode, copy: MetadataCopy, batches: MetadataBatches) -> None:
        self.node = node
        self.copy = copy
        self.batches = batches
        self._checked = -1
        self._pause_ms = RETRY_MS
        self._is_caught_up = False
        self._acts = False

    def start(self) -> None:
        """Begin to follow."""
        self._step()

    def look(self) -> None:
        """Begin to act on the metadata if it is new enough by now: an old copy may say that this
        node leads what others lead since, so it must show this life's own registration."""
        epoch = self.node.session.broker_epoch
        image = self.copy.image
        if not self._acts and self._is_caught_up and 0 <= epoch <= image.offset:
            self._acts = True
            self.node.on_image(image, everything(image))

    def _step(self) -> None:
        link = self.node.link
        generation = link.generation
        from_last = self._checked != generation and bool(self.copy.end.last_batch)
        end = self.copy.end
        request = self._request(end, from_last=from_last)

        def answered(answer: Any, asked: SimNode) -> None:
            if generation != link.generation or not self._take(answer, end, from_last, asked):
                self.node.later(self._pause_ms, self._step)
                self._pause_ms = min(self._pause_ms * 2, LONGEST_PAUSE_MS)
            elif self.node.is_up:
                self._pause_ms = RETRY_MS
                self._checked = generation
                self._step()

        link.call(request, answered, timeout_ms=POLL_MS + REQUEST_MS)

    def _take(self, answer: Any, end: CopyEnd, from_last: bool, asked: SimNode) -> bool:
        """Use an answer; False when somebody else has to be asked."""
        link = self.node.link
        if answer is None or answer.error_code:
            link.rotate(asked)
            return False
        partition: PartitionData = answer.responses[0].partitions[0]
        if partition.error_code:
            link.rotate(asked)
            return False
        payloads = _payloads(partition.records)
        if from_last:
            served = payloads[0] if payloads else None
            fault = store_fault(end, partition.high_watermark, served, SERVED)
            if fault is not None:
                self.node.stop_because(fault)
                return True
        if partition.diverging_epoch.epoch >= 0:
            back = min(partition.diverging_epoch.end_offset, end.end_offset - 1)
            fault = store_fault(end, back, None, SERVED)
            self.node.stop_because(fault or "the served metadata log diverges")
            return True
        for payload in payloads:
            self._append(payload)
        if not self._acts:
            self._is_caught_up |= self.copy.image.next_offset >= partition.high_watermark
            self.look()
        return True

    def _append(self, payload: bytes) -> None:
        image = self.copy.image
        decoded = self.batches.decode(payload)
        if decoded[-1].header.next_offset <= image.next_offset:
            return
        after, delta = self.batches.replay(image, payload)
        self.copy.append(decoded[0].header.base_offset, payload, after)
        if self._acts:
            self.node.on_image(after, delta)

    def _request(self, end: CopyEnd, *, from_last: bool) -> FetchRequest:
        image = self.copy.image
        partition = FetchPartition(
            partition=0,
            current_leader_epoch=-1,
            fetch_offset=end.last_base_offset if from_last else image.next_offset,
            last_fetched_epoch=-1 if from_last or image.offset < 0 else image.epoch,
            log_start_offset=0,
            partition_max_bytes=PIECE_BYTES,
        )
        topic = FetchTopic(
            topic=CLUSTER_METADATA_TOPIC, topic_id=METADATA_TOPIC_ID, partitions=[partition]
        )
        return FetchRequest(
            cluster_id=self.node.cluster.cluster_id,
            replica_id=self.node.node_id,
            replica_state=ReplicaState(replica_id=self.node.node_id),
            max_wait_ms=POLL_MS,
            max_bytes=PIECE_BYTES,
            topics=[topic],
        )


def _payloads(records: Any) -> list[bytes]:
    """The pieces that were committed one by one, as far as they are still apart."""
    if not records:
        return []
    if isinstance(records, list):
        return [bytes(each) for each in records]
    whole = bytes(records)
    return [whole[at : at + header.size_bytes] for at, header in walk(whole)]
