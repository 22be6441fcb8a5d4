"""Transactional producers, unmodified: confluent-kafka and aiokafka, behind one small seam.

What: begin, send, commit, abort; each raises what the library raises. Rules kept: the constructor
returns when whoever had the transactional id before is fenced; a call that the library says may be
repeated is repeated. Not here: what is sent (`clients_transactions.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from random import Random
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer, TopicPartition

from chaos.history import Place
from chaos.transfers import TIMEOUT_MS

T = TypeVar("T")
ASK_SECONDS = 10.0
LONGEST_SECONDS = 60.0
"""How long one call is repeated; what came of it is unknown then."""
CLOSE_SECONDS = 5.0

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class ConfluentTransacting:
    """librdkafka."""

    def __init__(self, bootstrap: str, transactional_id: str, random: Random) -> None:
        self._producer = Producer(
            {
                "bootstrap.servers": bootstrap,
                "transactional.id": transactional_id,
                "transaction.timeout.ms": TIMEOUT_MS,
                "reconnect.backoff.max.ms": 1_000,
                "linger.ms": random.choice((0, 5)),
                "log_level": 2,
            }
        )
        self._repeated(self._producer.init_transactions)

    def begin(self) -> None:
        """A transaction begins."""
        self._producer.begin_transaction()

    def send(self, place: Place, key: bytes, value: bytes) -> None:
        """Hand over one record of it."""
        self._producer.produce(place.topic, value, key, place.partition)
        self._producer.poll(0)

    def commit(self) -> None:
        """All of it is there, when this returns."""
        self._repeated(self._producer.commit_transaction)

    def abort(self) -> None:
        """Nothing of it is there, when this returns."""
        self._repeated(self._producer.abort_transaction)

    def offsets(self, positions: Mapping[Place, int], metadata: Any) -> None:
        """Commit these as a group's, within the transaction."""
        told = [TopicPartition(*place, offset) for place, offset in positions.items()]
        send = self._producer.send_offsets_to_transaction
        self._repeated(lambda seconds: send(told, metadata, seconds))

    def close(self) -> None:
        """Give it up; a transaction that is open stays so."""
        self._producer.purge()

    def _repeated(self, call: Callable[[float], None]) -> None:
        until = time.monotonic() + LONGEST_SECONDS
        while True:
            try:
                call(ASK_SECONDS)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise


class Loop:
    """An event loop on a thread of its own, for a library that needs one."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

    def run(self, work: Coroutine[Any, Any, T], seconds: float = LONGEST_SECONDS) -> T:
        """Wait for it. Raises TimeoutError, and takes it back, when that lasts too long."""
        future = asyncio.run_coroutine_threadsafe(asyncio.wait_for(work, seconds), self._loop)
        return future.result()


class AiokafkaTransacting:
    """aiokafka, which speaks the older protocol: partitions join before records are sent."""

    def __init__(
        self, bootstrap: str, transactional_id: str, random: Random, loop: Loop | None = None
    ) -> None:
        self._loop = loop or Loop()
        self._sent: list[Any] = []
        self._loop.run(self._open(bootstrap, transactional_id, random.choice((0, 5))))

    async def _open(self, bootstrap: str, transactional_id: str, linger_ms: int) -> None:
        self._producer = AIOKafkaProducer(
            bootstrap_servers=bootstrap.split(","),
            transactional_id=transactional_id,
            transaction_timeout_ms=TIMEOUT_MS,
            linger_ms=linger_ms,
            metadata_max_age_ms=5_000,
        )
        try:
            await self._producer.start()
        except BaseException:
            await self._producer.stop()
            raise

    def begin(self) -> None:
        """See ConfluentTransacting."""
        self._sent = []
        self._loop.run(self._producer.begin_transaction())

    def send(self, place: Place, key: bytes, value: bytes) -> None:
        """See ConfluentTransacting."""
        sent = self._producer.send(place.topic, value, key, partition=place.partition)
        self._sent.append(self._loop.run(sent))

    def commit(self) -> None:
        """See ConfluentTransacting; a record that was not taken is told first."""
        for each in self._sent:
            self._loop.run(_result(each))
        self._loop.run(self._producer.commit_transaction())

    def abort(self) -> None:
        """See ConfluentTransacting."""
        self._loop.run(self._producer.abort_transaction())

    def offsets(self, positions: Mapping[Place, int], group: Any) -> None:
        """See ConfluentTransacting; it knows the group's name alone."""
        told = {tuple(place): offset for place, offset in positions.items()}
        self._loop.run(self._producer.send_offsets_to_transaction(_named(told), group))

    def close(self) -> None:
        """See ConfluentTransacting."""
        with contextlib.suppress(Exception):
            self._loop.run(self._producer.stop(), CLOSE_SECONDS)


def _named(offsets: Mapping[Any, int]) -> dict[Any, int]:
    from aiokafka.structs import TopicPartition as Named

    return {Named(*place): offset for place, offset in offsets.items()}


async def _result(future: Any) -> Any:
    return await future


Transacting = ConfluentTransacting | AiokafkaTransacting
