"""What the demo does to a node: create, send, read back, and kill it in the middle.

Every act works through confluent-kafka alone, against any address.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

import click
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from anabranch.cli.demo.flights import Keyed, Tally
from anabranch.core.sentences import number_of

QUIET: dict[str, Any] = {
    "log_level": 0,
    "error_cb": lambda _error: None,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}
"""A client's own log lines about a broker that was killed on purpose would only confuse."""

PARTITIONS = 6
REPLICAS = 3
BATCH_MESSAGES = 10_000
REPORT_EVERY = 2_000
QUEUE_RECORDS = 100_000
WAIT_SECONDS = 60.0
POLL_SECONDS = 0.1
ASK_AGAIN_SECONDS = 0.02
TIERED_AT_ONCE = {"diskless.tiering.age.ms": "0", "diskless.tiering.min.segment.bytes": "1"}
"""Records of a diskless topic need not be an hour old, and a few of them are worth a segment."""
PIECES = 6
PIECE_SECONDS = 0.5
"""Between two pieces of records that come bit by bit."""

Advance = Callable[[int], None]
Place = tuple[int, int]
"""Partition and offset of a record."""


class Took(NamedTuple):
    """How much went through, and how long that took."""

    records: int
    value_bytes: int
    seconds: float


def place_of(message: Message) -> Place:
    """Where a record lies that was acknowledged or read."""
    partition, offset = message.partition(), message.offset()
    assert partition is not None and offset is not None
    return partition, offset


def create_topic(bootstrap: str, topic: str, *, is_diskless: bool = False) -> float:
    """Create a topic of six partitions; returns the seconds until all of them have a leader."""
    begin = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    new = NewTopic(topic, num_partitions=PARTITIONS, replication_factor=REPLICAS)
    if is_diskless:  # one replica a rack, by the controller
        config = {"diskless.enable": "true", **TIERED_AT_ONCE}
        new = NewTopic(topic, PARTITIONS, replication_factor=-1, config=config)
    admin.create_topics([new])[topic].result(WAIT_SECONDS)
    while time.perf_counter() - begin < WAIT_SECONDS:
        found = admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions
        if len(found) == PARTITIONS and all(each.leader >= 0 for each in found.values()):
            return time.perf_counter() - begin
        time.sleep(0.01)
    raise click.ClickException(f"topic {topic} has no leaders after {WAIT_SECONDS:.0f} s")


def leader_of(bootstrap: str, topic: str, partition: int) -> int:
    """The id of the broker that leads a partition."""
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    leader: int = (
        admin.list_topics(topic, timeout=WAIT_SECONDS).topics[topic].partitions[partition].leader
    )
    return leader


def wait_in_sync(bootstrap: str, topics: Iterable[str]) -> float:
    """Wait until every replica is in sync again; returns the seconds that took."""
    begin = time.perf_counter()
    admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})
    while time.perf_counter() - begin < WAIT_SECONDS:
        found = admin.list_topics(timeout=WAIT_SECONDS).topics
        partitions = [each for topic in topics for each in found[topic].partitions.values()]
        if all(len(each.isrs) == REPLICAS for each in partitions):
            return time.perf_counter() - begin
        time.sleep(ASK_AGAIN_SECONDS)
    raise click.ClickException(f"not every replica is in sync after {WAIT_SECONDS:.0f} s")


class Sender:
    """Sends flights, acks=all and idempotent, and notes where each acknowledged row lies."""

    def __init__(
        self, bootstrap: str, topic: str, *, advance: Advance, queue_records: int = QUEUE_RECORDS
    ) -> None:
        self.topic = topic
        self.places: dict[Place, int] = {}
        self.sent = 0
        self.value_bytes = 0
        self.refused: list[str] = []
        self.longest_gap_s = 0.0
        """Between two acknowledgements, since `watch_gaps`."""
        self._last_s = 0.0
        self._advance = advance
        self._unreported = 0
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "acks": "all",
                "enable.idempotence": True,
                "linger.ms": 5,
                "queue.buffering.max.messages": queue_records,
                "retry.backoff.ms": 20,
                **QUIET,
            }
        )

    @property
    def acknowledged(self) -> int:
        """Records that the node has acknowledged so far."""
        return len(self.places)

    def watch_gaps(self) -> None:
        """Look from now on how long no acknowledgement comes."""
        self._last_s = time.perf_counter()

    def _delivered(self, row: int) -> Callable[[KafkaError | None, Message], None]:
        def note(error: KafkaError | None, message: Message) -> None:
            if error is not None:
                self.refused.append(str(error))
                return
            self.places[place_of(message)] = row
            now_s = time.perf_counter()
            if self._last_s:
                self.longest_gap_s = max(self.longest_gap_s, now_s - self._last_s)
                self._last_s = now_s
            self._unreported += 1
            if self._unreported == REPORT_EVERY:
                self._advance(self._unreported)
                self._unreported = 0

        return note

    def send(self, record: Keyed) -> None:
        """Hand one record to the client, and wait while the client's queue is full."""
        note = self._delivered(self.sent)
        while True:
            try:
                self._producer.produce(self.topic, record.value, record.key, on_delivery=note)
                break
            except BufferError:
                self._producer.poll(0.05)
        self.sent += 1
        self.value_bytes += len(record.value)
        if self.sent % 256 == 0:
            self._producer.poll(0)

    def finish(self) -> None:
        """Wait until every record is acknowledged."""
        if self._producer.flush(WAIT_SECONDS) or self.refused:
            why = self.refused[0] if self.refused else f"no answer in {WAIT_SECONDS:.0f} s"
            missing = self.sent - self.acknowledged
            raise click.ClickException(
                f"{number_of(missing, 'record')} were not acknowledged: {why}"
            )
        self._advance(self._unreported)
        self._unreported = 0


def send_all(bootstrap: str, topic: str, records: Iterable[Keyed], *, advance: Advance) -> Took:
    """Send every record and wait for every acknowledgement."""
    begin = time.perf_counter()
    sender = Sender(bootstrap, topic, advance=advance)
    for record in records:
        sender.send(record)
    sender.finish()
    return Took(sender.acknowledged, sender.value_bytes, time.perf_counter() - begin)


def send_in_pieces(
    bootstrap: str, topic: str, records: Sequence[Keyed], *, advance: Advance
) -> None:
    """Send records piece by piece with pauses, so that those who follow see them come."""
    sender = Sender(bootstrap, topic, advance=advance)
    size = max(1, -(-len(records) // PIECES))
    for first in range(0, len(records), size):
        for record in records[first : first + size]:
            sender.send(record)
        sender.finish()
        time.sleep(PIECE_SECONDS)


def read_all(
    bootstrap: str,
    topic: str,
    tally: Tally,
    *,
    advance: Advance,
    each: Callable[[Place, int], None] = lambda _place, _row: None,
) -> Took:
    """Read every partition from its first offset to its end; `each` sees place and row."""
    begin = time.perf_counter()
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "demo",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "check.crcs": True,
            **QUIET,
        }
    )
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    open_partitions = set(range(PARTITIONS))
    try:
        while open_partitions:
            messages = consumer.consume(BATCH_MESSAGES, timeout=POLL_SECONDS)
            if not messages and time.perf_counter() - begin > WAIT_SECONDS:
                raise click.ClickException(f"no record of {topic} arrived in time")
            advance(_take(messages, tally, open_partitions, each))
    finally:
        consumer.close()
    return Took(tally.records, tally.value_bytes, time.perf_counter() - begin)


def _take(
    messages: list[Message],
    tally: Tally,
    open_partitions: set[int],
    each: Callable[[Place, int], None],
) -> int:
    before = tally.records
    for message in messages:
        error = message.error()
        if error is None:
            row = tally.take(message.key(), message.value() or b"")
            each(place_of(message), row)
        elif error.code() == KafkaError._PARTITION_EOF:
            open_partitions.discard(message.partition())
        elif not error.retriable():
            raise click.ClickException(f"reading failed: {error.str()}")
    return tally.records - before
