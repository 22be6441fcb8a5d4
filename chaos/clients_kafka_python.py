"""kafka-python, unmodified, behind the two small seams that the roles of `clients.py` use.

Rule kept: as in `clients_confluent.py`, no record times out, and nobody starts over silently. This
client begins a new epoch after an error that it cannot mend and tells what was under way then as
failed; such a record may be there or not. Not here: what is sent, what is written down.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from functools import partial
from random import Random
from typing import Any

from kafka import ConsumerRebalanceListener, KafkaConsumer, KafkaProducer, TopicPartition
from kafka import errors as kafka_errors
from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
from kafka.coordinator.assignors.range import RangePartitionAssignor
from kafka.structs import OffsetAndMetadata

from chaos import secure
from chaos.clients_ports import BATCH, Assigned, Committed, Failed, Heard, Read, Thrown, Token
from chaos.history import Place, content

NEVER_MS = 7 * 24 * 3600 * 1000
ASK_MS = 10_000
CLOSE_SECONDS = 5.0

logging.getLogger("kafka").setLevel(logging.CRITICAL)


def _common(bootstrap: str, name: str, random: Random) -> dict[str, Any]:
    return {
        **secure.kafka_python(),
        "bootstrap_servers": bootstrap.split(","),
        "client_id": name,
        "reconnect_backoff_max_ms": 1_000,
        "metadata_max_age_ms": random.choice((5_000, 60_000)),
    }


class KafkaPythonProducing:
    """An idempotent producer."""

    def __init__(
        self, bootstrap: str, name: str, random: Random, heard: Heard, failed: Failed
    ) -> None:
        self._heard, self._failed = heard, failed
        self._why = ""
        self._producer = KafkaProducer(
            **_common(bootstrap, name, random),
            enable_idempotence=True,
            acks="all",
            delivery_timeout_ms=NEVER_MS,
            request_timeout_ms=random.choice((5_000, 30_000)),
            linger_ms=random.choice((0, 5, 50)),
            max_in_flight_requests_per_connection=random.choice((1, 5)),
            compression_type=random.choice((None, None, "lz4", "gzip")),
        )

    @property
    def dead(self) -> str:
        """Why it can do nothing any more, "" while it can."""
        state = getattr(self._producer, "_transaction_manager", None)
        is_fatal = state is not None and state.has_fatal_error()
        return self._why or (f"fatal: {state.last_error!r}" if is_fatal else "")

    def send(self, place: Place, key: bytes, value: bytes | None, token: Token) -> None:
        """Hand over one record."""
        try:
            future = self._producer.send(
                place.topic, value=value, key=key, partition=place.partition,
                headers=token.headers if value is None else None,
            )  # fmt: skip
        except kafka_errors.KafkaTimeoutError as error:
            self._failed(token, type(error).__name__)
            return
        except Exception as error:
            self._why = repr(error)
            self._failed(token, self._why)
            return
        future.add_callback(partial(self._done, token))
        future.add_errback(partial(self._lost, token))

    def _done(self, token: Token, metadata: Any) -> None:
        self._heard(token, -1 if metadata.offset is None else metadata.offset)

    def _lost(self, token: Token, error: BaseException) -> None:
        self._failed(token, type(error).__name__)

    def poll(self, seconds: float) -> None:
        """Outcomes are heard on a thread of its own: nothing to do here."""

    def close(self) -> None:
        """Give up what is under way."""
        self._producer.close(timeout=CLOSE_SECONDS)


class _Listener(ConsumerRebalanceListener):
    """Tells what a member is given and what is taken from it."""

    def __init__(self, assigned: Assigned, revoked: Assigned) -> None:
        self._assigned, self._revoked = assigned, revoked

    def on_partitions_assigned(self, assigned: Any) -> None:
        """Part of the client's interface."""
        self._assigned([Place(each.topic, each.partition) for each in assigned])

    def on_partitions_revoked(self, revoked: Any) -> None:
        """Part of the client's interface."""
        self._revoked([Place(each.topic, each.partition) for each in revoked])

    def on_partitions_lost(self, lost: Any) -> None:
        """Part of the client's interface."""
        self.on_partitions_revoked(lost)


class KafkaPythonConsuming:
    """A consumer, alone or in a group."""

    def __init__(
        self, bootstrap: str, name: str, random: Random, *, group: str, protocol: str, rack: str
    ) -> None:
        is_cooperative = protocol == "cooperative"
        self._bootstrap = bootstrap
        self._consumer = KafkaConsumer(
            **_common(bootstrap, name, random),
            group_id=group or None,
            client_rack=rack,
            enable_auto_commit=False,
            auto_offset_reset="earliest" if group else "none",
            max_partition_fetch_bytes=random.choice((16_384, 1_048_576)),
            enable_incremental_fetch_sessions=random.choice((True, False)),
            session_timeout_ms=random.choice((6_000, 10_000)),
            heartbeat_interval_ms=1_000,
            max_poll_records=BATCH,
            partition_assignment_strategy=(
                [CooperativeStickyAssignor] if is_cooperative else [RangePartitionAssignor]
            ),
        )

    def partitions(self, topics: list[str]) -> list[Place]:
        """All partitions of these topics; raises LookupError while one of them is not there."""
        places = []
        for topic in topics:
            numbers = self._consumer.partitions_for_topic(topic)
            if not numbers:
                raise LookupError(f"topic {topic} has no partitions")
            places += [Place(topic, number) for number in sorted(numbers)]
        return places

    def assign(self, positions: Mapping[Place, int]) -> None:
        """Read these from these offsets on; -1 means the earliest."""
        self._consumer.assign([TopicPartition(*place) for place in positions])
        for place, at in positions.items():
            if at < 0:
                self._consumer.seek_to_beginning(TopicPartition(*place))
            else:
                self._consumer.seek(TopicPartition(*place), at)

    def subscribe(self, topics: list[str], assigned: Assigned, revoked: Assigned) -> None:
        """Be a member; what it is given and what is taken from it is told."""
        self._consumer.subscribe(topics=topics, listener=_Listener(assigned, revoked))

    def poll(self, seconds: float) -> Read:
        """Records, and errors in words."""
        read = Read()
        try:
            answer = self._consumer.poll(timeout_ms=int(seconds * 1000))
        except kafka_errors.OffsetOutOfRangeError as error:
            for each in error.args[0]:
                read.thrown.append(Thrown(Place(each.topic, each.partition), repr(error)))
            return read
        except kafka_errors.KafkaError as error:
            read.errors.append(type(error).__name__)
            return read
        for each, records in answer.items():
            place = Place(each.topic, each.partition)
            read.records += [
                (place, record.offset, content(record.value, record.headers)) for record in records
            ]
        if not answer:
            read.ends = self._stands()
        return read

    def _stands(self) -> list[tuple[Place, int]]:
        """Where it reads on, which may be behind the last record that there is."""
        known = [*self._consumer._subscription.assignment.items()]  # position() would ask brokers
        return [
            (Place(*at), state.position.offset) for at, state in known if state.has_valid_position
        ]

    def commit(self, positions: Mapping[Place, int], committed: Committed) -> None:
        """Commit in the background."""
        offsets = {
            TopicPartition(*place): OffsetAndMetadata(offset, "", -1)
            for place, offset in positions.items()
        }

        def done(asked: Any, response: Any) -> None:
            why = type(response).__name__ if isinstance(response, BaseException) else ""
            for each, offset in asked.items():
                committed(Place(each.topic, each.partition), offset.offset, why)

        self._consumer.commit_async(offsets, callback=done)

    def committed(self, places: list[Place]) -> dict[Place, int]:
        """What the group has committed, -1 where nothing."""
        found = {
            place: self._consumer.committed(TopicPartition(*place), timeout_ms=ASK_MS)
            for place in places
        }
        return {place: -1 if offset is None else offset for place, offset in found.items()}

    def bounds(self, place: Place) -> tuple[int, int]:
        """The first offset and the one after the last, of the leader."""
        at = TopicPartition(*place)
        low = self._consumer.beginning_offsets([at], timeout_ms=ASK_MS)[at]
        high = self._consumer.end_offsets([at], timeout_ms=ASK_MS)[at]
        return low, high

    def compacted(self, topics: list[str]) -> set[str]:
        """Which of these topics are compacted."""
        from chaos.clients_confluent import ConfluentConsuming

        asking = ConfluentConsuming(
            self._bootstrap, "asking", Random(0), group="", protocol="range", rack=""
        )
        try:
            return asking.compacted(topics)
        finally:
            asking.close()

    def close(self) -> None:
        """Leave."""
        self._consumer.close(autocommit=False, timeout_ms=ASK_MS)
