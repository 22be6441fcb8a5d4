"""confluent-kafka, unmodified, behind the two small seams that the roles of `clients.py` use.

Rule kept: no message ever times out (`message.timeout.ms` 0), so that the client has no reason to
begin a new epoch and an outcome is unknown only where a process ends; and nobody starts over
silently where a reader's offset is out of range. Not here: what is sent, what is written down.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from random import Random
from typing import Any

from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType

from chaos import client_logs, secure
from chaos.clients_ports import BATCH, Assigned, Committed, Failed, Full, Heard, Read, Thrown, Token
from chaos.history import Place, content

ASK_SECONDS = 10.0


def _common(bootstrap: str, name: str, random: Random) -> dict[str, Any]:
    return {
        **secure.librdkafka(),
        "bootstrap.servers": bootstrap,
        "client.id": name,
        "socket.timeout.ms": random.choice((10_000, 30_000)),
        "reconnect.backoff.max.ms": 1_000,
        "topic.metadata.refresh.interval.ms": random.choice((5_000, 60_000)),
        "log_level": 2,
    }


class ConfluentProducing:
    """An idempotent producer."""

    def __init__(
        self, bootstrap: str, name: str, random: Random, heard: Heard, failed: Failed
    ) -> None:
        self.dead = ""
        """Why it can do nothing any more, "" while it can."""
        self._heard, self._failed = heard, failed
        self._producer = Producer(
            {
                **_common(bootstrap, name, random),
                "enable.idempotence": True,
                "debug": client_logs.PRODUCER_DEBUG,
                "log_level": client_logs.LEVEL,
                "message.timeout.ms": 0,
                "request.timeout.ms": random.choice((5_000, 30_000)),
                "linger.ms": random.choice((0, 5, 50)),
                "batch.num.messages": random.choice((50, 10_000)),
                "compression.type": random.choice(("none", "none", "lz4", "zstd", "gzip")),
                "error_cb": self._error,
            }
        )

    def _error(self, error: KafkaError) -> None:
        if error.fatal():
            self.dead = str(error)

    def send(self, place: Place, key: bytes, value: bytes | None, token: Token) -> None:
        """Hand over one record; raises Full when it has to wait."""
        try:
            self._producer.produce(
                place.topic, value, key, place.partition, on_delivery=partial(self._done, token),
                headers=token.headers if value is None else None,
            )  # fmt: skip
        except BufferError:
            raise Full from None
        except KafkaException as error:
            self.dead = str(error)
            self._failed(token, str(error))

    def _done(self, token: Token, error: KafkaError | None, message: Any) -> None:
        if error is None:
            offset = message.offset()
            self._heard(token, -1 if offset is None else offset)
        else:
            self._failed(token, error.name())

    def poll(self, seconds: float) -> None:
        """Hear of outcomes. A fatal error of the client's is raised here too."""
        try:
            self._producer.poll(seconds)
        except KafkaException as error:
            self.dead = self.dead or str(error)

    def close(self) -> None:
        """Give up what is under way; what became of it is heard as failed."""
        self._producer.purge()
        self._producer.flush(ASK_SECONDS)


class ConfluentConsuming:
    """A consumer, alone or in a group."""

    def __init__(
        self, bootstrap: str, name: str, random: Random, *, group: str, protocol: str, rack: str
    ) -> None:
        settings = {
            **_common(bootstrap, name, random),
            "group.id": group or name,
            "enable.auto.commit": False,
            "auto.offset.reset": "earliest" if group else "error",
            "enable.partition.eof": True,
            "fetch.wait.max.ms": 500,
            "fetch.message.max.bytes": random.choice((16_384, 1_048_576)),
            "session.timeout.ms": random.choice((6_000, 10_000)),
            "heartbeat.interval.ms": 1_000,
            "partition.assignment.strategy": (
                "cooperative-sticky" if protocol == "cooperative" else "range,roundrobin"
            ),
            "on_commit": self._on_commit,
        }
        if rack:
            settings["client.rack"] = rack
        if group:  # so that a close() that does not end can be explained
            settings |= {"debug": client_logs.DEBUG, "log_level": client_logs.LEVEL}
        self._consumer = Consumer(settings)
        self._bootstrap = bootstrap
        self._committed: Committed | None = None

    def partitions(self, topics: list[str]) -> list[Place]:
        """All partitions of these topics; raises an exception of the client's while it cannot say,
        LookupError while one of them is not there."""
        found = self._consumer.list_topics(timeout=ASK_SECONDS).topics
        places = [Place(each, number) for each in topics for number in found[each].partitions]
        if {place.topic for place in places} != set(topics):
            raise LookupError("a topic has no partitions")
        return places

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these from these offsets on; -1 means the earliest."""
        self._consumer.assign(
            [
                TopicPartition(place.topic, place.partition, OFFSET_BEGINNING if at < 0 else at)
                for place, at in positions.items()
            ]
        )

    def subscribe(self, topics: list[str], assigned: Assigned, revoked: Assigned) -> None:
        """Be a member; what it is given and what is taken from it is told."""

        def tell(told: Assigned) -> Callable[[Any, list[TopicPartition]], None]:
            return lambda _consumer, parts: told([Place(p.topic, p.partition) for p in parts])

        self._consumer.subscribe(
            topics, on_assign=tell(assigned), on_revoke=tell(revoked), on_lost=tell(revoked)
        )

    def poll(self, seconds: float) -> Read:
        """Records, and errors in words."""
        read = Read()
        for message in self._consumer.consume(BATCH, seconds):
            error = message.error()
            if error is None:
                place = Place(message.topic(), message.partition())
                shown = content(message.value(), message.headers())
                read.records.append((place, message.offset(), shown))
            elif error.code() == KafkaError._PARTITION_EOF:
                place = Place(message.topic(), message.partition())
                read.ends.append((place, message.offset()))
            elif error.code() in (KafkaError._AUTO_OFFSET_RESET, KafkaError._LOG_TRUNCATION):
                read.thrown.append(Thrown(Place(message.topic(), message.partition()), error.str()))
            else:
                read.errors.append(error.name())
        return read

    def commit(self, positions: Mapping[Place, int], committed: Committed) -> None:
        """Commit in the background."""
        self._committed = committed
        offsets = [TopicPartition(*place, offset) for place, offset in positions.items()]
        self._consumer.commit(offsets=offsets, asynchronous=True)

    def _on_commit(self, error: KafkaError | None, partitions: list[TopicPartition]) -> None:
        for each in partitions:
            fault = error or each.error
            if self._committed is not None and each.offset >= 0:
                why = "" if fault is None else fault.name()
                self._committed(Place(each.topic, each.partition), each.offset, why)

    def committed(self, places: list[Place]) -> dict[Place, int]:
        """What the group has committed, -1 where nothing."""
        asked = [TopicPartition(*place) for place in places]
        told = self._consumer.committed(asked, timeout=ASK_SECONDS)
        return {Place(each.topic, each.partition): max(each.offset, -1) for each in told}

    def bounds(self, place: Place) -> tuple[int, int]:
        """The first offset and the one after the last, of the leader."""
        low, high = self._consumer.get_watermark_offsets(
            TopicPartition(*place), timeout=ASK_SECONDS
        )
        return low, high

    def compacted(self, topics: list[str]) -> set[str]:
        """Which of these topics are compacted."""
        admin = AdminClient(
            {**secure.librdkafka(), "bootstrap.servers": self._bootstrap, "log_level": 2}
        )
        asked = [ConfigResource(ResourceType.TOPIC, topic) for topic in topics]
        answers = admin.describe_configs(asked, request_timeout=ASK_SECONDS)
        return {
            resource.name
            for resource, answer in answers.items()
            if "compact" in answer.result(ASK_SECONDS)["cleanup.policy"].value
        }

    def close(self) -> None:
        """Leave."""
        self._consumer.close()
