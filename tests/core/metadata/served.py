"""A controller whose log is served as core serves it, and a node that follows it, without a wire.

Nothing here decides: answers come from the handlers of Fetch and FetchSnapshot, and questions from
`core.metadata.following`.
"""

from __future__ import annotations

from random import Random
from typing import Any

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.api import p59_fetch_snapshot
from anabranch.core.api.fetch_metadata import fetch_metadata
from anabranch.core.controller.controller import Controller
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.batches import (
    decode_batch,
    encode_batch,
    encode_snapshot,
    leader_change_batch,
)
from anabranch.core.metadata.committed_log import CommittedBatch, CommittedLog, SnapshotView
from anabranch.core.metadata.following.copy import MetadataCopy
from anabranch.core.metadata.following.effects import (
    Act,
    Begin,
    Complain,
    Effect,
    Fetch,
    Fetched,
    FetchSnapshot,
    MakeRoom,
    PieceFetched,
    Publish,
    Registered,
    RoomMade,
    SnapshotFailed,
    SnapshotWritten,
    Stop,
    WriteSnapshot,
)
from anabranch.core.metadata.following.following import Following
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import snapshot_records
from anabranch.core.outcome import Wait
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.types import TopicId
from anabranch.core.wire.metadata_records import (
    MetadataRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
)

CLUSTER = "test-cluster"
NODE = 7
BETWEEN = "metadata.log.max.record.bytes.between.snapshots"
INTERVAL = "metadata.log.max.snapshot.interval.ms"


def topic_id(number: int) -> TopicId:
    """The id of topic `number`."""
    return TopicId((number + 1_000).to_bytes(16))


def topic(number: int) -> TopicRecord:
    """A topic without partitions."""
    return TopicRecord(name=f"t{number}", topic_id=topic_id(number))


def removal(number: int) -> RemoveTopicRecord:
    """Its end."""
    return RemoveTopicRecord(topic_id=topic_id(number))


def registration(broker_epoch: int, broker_id: int = NODE) -> RegisterBrokerRecord:
    """A broker's registration."""
    return RegisterBrokerRecord(
        broker_id=broker_id, broker_epoch=broker_epoch, incarnation_id=bytes(16)
    )


class Served:
    """What one controller serves: a committed log, and how to answer from it."""

    def __init__(self, epoch: int = 1) -> None:
        self.controller = Controller(1, CLUSTER, BrokerConfig.of({}), Random(1))
        self.images = {0: MetadataImage.empty()}
        """The image at each offset at which a batch ends."""
        self.holds_lease = True
        """What the store says when it is asked."""
        self.begin(epoch, CommittedLog())

    def begin(self, epoch: int, log: CommittedLog) -> None:
        """Another epoch begins, with its control batch."""
        image = self.images[log.end_offset]
        self.controller.begin_term(epoch, image, log, 0)
        first = log.end_offset
        mark = leader_change_batch(base_offset=first, epoch=epoch, leader_id=1, now_ms=1)
        self._extend(mark, 1)

    @property
    def log(self) -> CommittedLog:
        """The committed log."""
        return self.controller.log

    @property
    def image(self) -> MetadataImage:
        """The image at its end."""
        return self.images[self.log.end_offset]

    def commit(self, *records: MetadataRecord) -> bytes:
        """Commit a batch."""
        payload = encode_batch(
            records, base_offset=self.log.end_offset, epoch=self.controller.epoch, now_ms=1
        )
        self._extend(payload, len(records))
        return payload

    def _extend(self, payload: bytes, count: int) -> None:
        first, epoch = self.log.end_offset, self.controller.epoch
        batch = decode_batch(payload)
        image, _ = replay_batch(self.image, batch.records, first + count - 1, epoch)
        self.log.extend(CommittedBatch(first, first + count, epoch, payload))
        self.images[first + count] = image

    def snapshot(self) -> None:
        """Take a snapshot; the log before the one before it goes."""
        image = self.image
        payload = encode_snapshot(
            snapshot_records(image), epoch=image.epoch, last_contained_ms=1, now_ms=1
        )
        self.log.take_snapshot(SnapshotView(image.next_offset, image.epoch, payload))

    def trimmed(self, number: int) -> None:
        """Commit and take snapshots until the log begins later; topics from `number` on."""
        for _ in range(2):
            self.commit(topic(number), topic(number + 1))
            self.snapshot()
            number += 2

    def go_back(self, end_offset: int, epoch: int) -> None:
        """An older state was put in place, and another epoch begins there."""
        older = CommittedLog()
        for batch in self.log._batches:
            if batch.end_offset <= end_offset:
                older.extend(batch)
        self.begin(epoch, older)

    def fetched(self, question: Fetch, connection: int = 1) -> Fetched:
        """The answer to a question about the log, at once."""
        outcome = fetch_metadata(self.controller, _request(1, question.request), 0)
        if isinstance(outcome, Wait):
            self.controller.is_doubt_settled = self.controller.is_doubted and self.holds_lease
            outcome = outcome.poll(0, True)
        for answer in outcome.responses[0].partitions if outcome.responses else ():
            answer.records = b"".join(bytes(each) for each in answer.records or ())
        return Fetched(outcome, connection)

    def piece(self, question: FetchSnapshot, connection: int = 1) -> PieceFetched:
        """The answer to a question about a snapshot."""
        request = _request(59, question.request)
        return PieceFetched(p59_fetch_snapshot.decide(self.controller, request, 0), connection)


def _request(api_key: int, body: Any) -> Request:
    return Request(api_key, 0, 0, "node", body, ANONYMOUS, "CONTROLLER", "127.0.0.1", 0)


class Node:
    """A node that follows; it notes what the machine wants, and performs what is not a question."""

    def __init__(
        self, files: Any, *, piece_bytes: int = 60, segment_bytes: int = 1 << 30, **settings: str
    ) -> None:
        self.files = files
        self.config = BrokerConfig.of({n.replace("_", "."): v for n, v in settings.items()})
        self.piece_bytes = piece_bytes
        self.segment_bytes = segment_bytes
        self.now_ms = 0
        self.has_reserve = False
        self.stopped = ""
        self.published: list[Publish] = []
        self.acted: list[Act] = []
        self.complaints: list[str] = []
        self.done: list[Effect] = []
        self.question: Fetch | FetchSnapshot | None = None
        self.broker_epoch = -1
        self.writing: list[WriteSnapshot] = []
        """Snapshots that a thread is about to write."""
        self.restart()

    def restart(self) -> None:
        """The process begins (again): only the files are left."""
        self.question, self.writing, self.broker_epoch = None, [], -1
        self.copy = MetadataCopy.open(self.files, "data", 1, segment_bytes=self.segment_bytes)
        self.following = Following(
            self.copy, CLUSTER, NODE, self.config, self.now_ms, piece_bytes=self.piece_bytes
        )
        self.step(Begin())

    def step(self, event: Any) -> None:
        """One event, and what comes of it."""
        if isinstance(event, Registered):
            self.broker_epoch = event.broker_epoch
        self.following.step(event, self.now_ms, 1)
        self._perform()

    def tick(self) -> None:
        """Time goes on until something is due."""
        self.now_ms = max(self.now_ms, self.following.next_tick_ms)
        self.following.tick(self.now_ms)
        self._perform()

    def _perform(self) -> None:
        while effects := self.following.take_effects():
            for effect in effects:
                self._do(effect)

    def _do(self, effect: Effect) -> None:
        self.done.append(effect)
        if isinstance(effect, Fetch | FetchSnapshot):
            assert self.question is None, "one question at a time"
            self.question = effect
        elif isinstance(effect, Publish):
            self.published.append(effect)
        elif isinstance(effect, Act):
            self.acted.append(effect)
        elif isinstance(effect, Complain):
            self.complaints.append(effect.why)
        elif isinstance(effect, Stop):
            self.stopped = effect.sentence
        elif isinstance(effect, WriteSnapshot):
            self.writing.append(effect)
        elif isinstance(effect, MakeRoom):
            self.following.step(RoomMade(self.has_reserve), self.now_ms, 1)

    def answered(self, event: Any) -> None:
        """What came of the question that is under way."""
        self.question = None
        self.step(event)

    def ask(self, served: Served, connection: int = 1) -> None:
        """Have the question answered, whatever it is."""
        question = self.question
        if isinstance(question, Fetch):
            self.answered(served.fetched(question, connection))
        elif isinstance(question, FetchSnapshot):
            self.answered(served.piece(question, connection))
        else:
            self.tick()

    def catch_up(self, served: Served, connection: int = 1) -> None:
        """Until it has everything, or stops."""
        for _ in range(1_000):
            if self.stopped or self.copy.end_offset >= served.log.end_offset:
                return
            self.ask(served, connection)
        raise AssertionError("it does not catch up")

    def write(self) -> None:
        """A thread writes the snapshot that is due."""
        effect = self.writing.pop()
        try:
            self.copy.write_snapshot(effect.image, 1)
        except StorageFault as fault:
            self.step(SnapshotFailed(str(fault)))
        else:
            self.step(SnapshotWritten())


def changed_topics(delta: MetadataDelta) -> set[TopicId]:
    """Every topic that was created, deleted or changed."""
    deleted = {topic.topic_id for topic in delta.deleted_topics}
    return {*delta.created_topics, *delta.changed_partitions, *deleted}
