"""Processors of orders: what is read, written and committed is one transaction.

What: confluent-kafka as members of a group, whose generation goes with the offsets (KIP-447);
aiokafka, which knows no generation, with all partitions and one transactional id, as was done
before. Rules kept: after any failure everything is opened anew and goes on where the group has
committed; so do partitions of which records came in a poll in which some were taken away. When told
to end, a processor first comes to the ends. Not here: who is wrong (`check_transactions.py`).
"""

from __future__ import annotations

import argparse
import contextlib
import time
from collections.abc import Collection
from typing import Any

from aiokafka import AIOKafkaConsumer
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.structs import TopicPartition as Named
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, KafkaException

from chaos import client_logs, secure
from chaos.clients_transactional import (
    CLOSE_SECONDS,
    AiokafkaTransacting,
    ConfluentTransacting,
    Loop,
)
from chaos.clients_transactions import POLL_SECONDS, Committed, Stopping, Transfers, Work
from chaos.history import Place, Writer
from chaos.transfers import ORDERS, PARTITIONS, RECEIPTS, receipt_of

BATCH = 20
END_SECONDS = 100.0
NOTHING_SECONDS = 8.0
"""A member without partitions ends after so long: another one has them all."""

Order = tuple[Place, int, bytes]


class Processor(Work):
    """What both kinds do."""

    def __init__(self, arguments: argparse.Namespace, writer: Writer, stopping: Stopping) -> None:
        super().__init__(arguments, writer, stopping)
        self.group: str = arguments.group
        self.is_done = False
        self.processed = 0
        self._until = 0.0
        """Since it was told to end."""

    def run(self) -> int:
        """Process until told to end, and then to the ends; 1 when it does not come there."""
        while not self.is_over():
            try:
                self.live()
            except Exception as error:
                self.fault(error)
        self.notes.write()
        return 0 if self.is_done else 1

    def is_over(self) -> bool:
        """Whether everything was processed after it was told to end, or that lasts too long."""
        if not self.stopping():
            return False
        self._until = self._until or time.monotonic() + END_SECONDS
        return self.is_done or time.monotonic() > self._until

    def live(self) -> None:
        """One life, from opening to a failure or the end."""
        raise NotImplementedError

    def process(self, producer: Any, orders: list[Order], metadata: Any) -> None:
        """One transaction. Raises what the library raises, the transaction being given up."""
        positions = {place: offset + 1 for place, offset, _ in orders}
        try:
            producer.begin()
            for place, offset, value in orders:
                order = f"{place.text}@{offset} {value.decode()}"
                target = Place(RECEIPTS, offset % PARTITIONS[RECEIPTS])
                producer.send(target, b"", receipt_of(self.group, order))
            producer.offsets(positions, metadata)
            producer.commit()
        except Exception as error:
            self.given_up(producer, error)
            raise
        self.processed += len(orders)
        self.writer.line("processed", group=self.group, count=len(orders))
        self.writer.flush()


def run(arguments: argparse.Namespace, writer: Writer, stopping: Stopping) -> int:
    """Do what a transactional role does."""
    told = (arguments, writer, stopping)
    if arguments.role == "transfer":
        return Transfers(*told).run()
    if arguments.role == "processor":
        kind = ConfluentProcessor if arguments.kind == "confluent" else AiokafkaProcessor
        return kind(*told).run()
    reader = Committed(*told)
    return reader.read_on() if arguments.role == "committed" else reader.read_once()


class ConfluentProcessor(Processor):
    """A member of a group."""

    def live(self) -> None:
        """See Processor."""
        producer = ConfluentTransacting(
            self.arguments.bootstrap, self.transactional_id, self.random
        )
        consumer = self._consumer()
        self._is_revoked, self._ended = False, set[int]()
        consumer.subscribe([ORDERS], on_revoke=self._revoked, on_lost=self._revoked)
        try:
            self._go_on(producer, consumer)
        finally:
            producer.close()
            consumer.close()

    def _consumer(self) -> Consumer:
        return Consumer(
            {
                **secure.librdkafka(),
                "bootstrap.servers": self.arguments.bootstrap,
                "group.id": self.group,
                "isolation.level": "read_committed",
                "enable.auto.commit": False,
                "auto.offset.reset": "earliest",
                "enable.partition.eof": True,
                "session.timeout.ms": 6_000,
                "heartbeat.interval.ms": 1_000,
                "reconnect.backoff.max.ms": 1_000,
                "fetch.wait.max.ms": 200,
                "debug": client_logs.DEBUG,  # so that a close() that does not end is explained
                "log_level": client_logs.LEVEL,
            }
        )

    def _revoked(self, _consumer: Consumer, _partitions: Any) -> None:
        self._is_revoked = True
        self._ended = set()

    def _go_on(self, producer: ConfluentTransacting, consumer: Consumer) -> None:
        idle_since = time.monotonic()
        while not self.is_over():
            self._is_revoked = False
            orders = self._read(consumer)
            if self._is_revoked:
                self._go_back(consumer, {place for place, _, _ in orders})
                continue
            if orders:
                self.process(producer, orders, consumer.consumer_group_metadata())
            owned = {each.partition for each in consumer.assignment()}
            if owned:
                idle_since = time.monotonic()
            is_idle = time.monotonic() > idle_since + NOTHING_SECONDS
            self.is_done = self.stopping() and (is_idle if not owned else owned <= self._ended)

    def _go_back(self, consumer: Consumer, places: set[Place]) -> None:
        """To what the group has committed: records of a poll in which partitions changed hands are
        not processed, and some of them may be of the new assignment."""
        owned = [
            each for each in consumer.assignment() if Place(each.topic, each.partition) in places
        ]
        for each in consumer.committed(owned, CLOSE_SECONDS) if owned else ():
            if each.error is not None:
                raise KafkaException(each.error)
            if each.offset < 0:
                each.offset = OFFSET_BEGINNING
            consumer.seek(each)
            self._ended.discard(each.partition)

    def _read(self, consumer: Consumer) -> list[Order]:
        orders: list[Order] = []
        for message in consumer.consume(BATCH, POLL_SECONDS):
            error = message.error()
            if error is None:
                place = Place(message.topic(), message.partition())
                orders.append((place, message.offset(), message.value()))
                self._ended.discard(message.partition())
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ended.add(message.partition())
            else:
                self.notes.add(error.name())
        self.notes.write()
        return orders


class NotToldError(Exception):
    """A broker did not tell where a group has committed."""


async def starts_of(bootstrap: str, group: str, places: Collection[Named]) -> dict[Named, int]:
    """Where a group goes on: at what it has committed, or at 0 where it never has. Raises
    NotToldError, and what the library raises.

    An OffsetFetch answer of version 2 or later has one error for all (NOT_COORDINATOR) and names no
    partition then; aiokafka 0.14 does not look at it. The consumer's `committed` says None, as if
    nothing were committed. What the admin client gives back lacks the partitions; those without an
    offset have -1."""
    admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap.split(","), **secure.aiokafka())
    try:
        await admin.start()
        told = await admin.list_consumer_group_offsets(group, partitions=list(places))
    finally:
        await admin.close()
    if set(told) != set(places):
        raise NotToldError(f"{len(told)} of {len(places)} offsets were told")
    return {place: max(told[place].offset, 0) for place in places}


class AiokafkaProcessor(Processor):
    """All partitions, whoever had the transactional id before being fenced first."""

    def live(self) -> None:
        """See Processor."""
        self._loop = Loop()
        producer = AiokafkaTransacting(
            self.arguments.bootstrap, self.transactional_id, self.random, self._loop
        )
        try:
            consumer = self._loop.run(self._opened())
            try:
                self._go_on(producer, consumer)
            finally:
                with contextlib.suppress(Exception):
                    self._loop.run(consumer.stop(), CLOSE_SECONDS)
        finally:
            producer.close()

    async def _opened(self) -> AIOKafkaConsumer:
        """A consumer that stands where the group has committed."""
        places = [Named(ORDERS, each) for each in range(PARTITIONS[ORDERS])]
        starts = await starts_of(self.arguments.bootstrap, self.group, places)
        consumer = AIOKafkaConsumer(
            **secure.aiokafka(),
            bootstrap_servers=self.arguments.bootstrap.split(","),
            group_id=self.group,
            isolation_level="read_committed",
            enable_auto_commit=False,
            auto_offset_reset="none",  # it would start over silently
            fetch_max_wait_ms=200,
            metadata_max_age_ms=5_000,
        )
        await consumer.start()
        try:
            consumer.assign(places)
            for place, offset in starts.items():  # at once: meanwhile it asks for them by itself
                consumer.seek(place, offset)
        except BaseException:
            await consumer.stop()
            raise
        return consumer

    def _go_on(self, producer: AiokafkaTransacting, consumer: AIOKafkaConsumer) -> None:
        quiet_since = time.monotonic()
        while not self.is_over():
            wait_ms = int(POLL_SECONDS * 1000)
            found = self._loop.run(consumer.getmany(timeout_ms=wait_ms, max_records=BATCH))
            orders = [
                (Place(each.topic, each.partition), each.offset, each.value)
                for records in found.values()
                for each in records
            ]
            if orders:
                self.process(producer, orders, self.group)
                quiet_since = time.monotonic()
            if self.stopping() and time.monotonic() > quiet_since + NOTHING_SECONDS:
                self.is_done = self._is_at_ends(consumer)

    def _is_at_ends(self, consumer: AIOKafkaConsumer) -> bool:
        async def ends() -> bool:
            places = sorted(consumer.assignment())
            last = await consumer.end_offsets(places)
            return all([await consumer.position(each) >= last[each] for each in places])

        return self._loop.run(ends())
