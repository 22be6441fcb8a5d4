"""Transactional producers, unmodified: confluent-kafka and aiokafka, behind one small seam.

What: begin, send, commit, abort; each raises what the library raises. Rules kept: the constructor
returns when whoever had the transactional id before is fenced; a call that the library says may be
repeated is repeated; a producer whose call does not return is left behind. Not here: what is sent
(`clients_transactions.py`).
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
import threading
import time
from collections.abc import Callable, Coroutine, Mapping
from concurrent.futures import Future
from random import Random
from typing import Any, TypeVar

from aiokafka import AIOKafkaProducer
from confluent_kafka import KafkaException, Producer, TopicPartition

from chaos import secure
from chaos.client_logs import NOT_RETURNED
from chaos.history import Place
from chaos.transfers import TIMEOUT_MS

T = TypeVar("T")
ASK_SECONDS = 10.0
LONGEST_SECONDS = 60.0
"""How long one call is repeated; what came of it is unknown then."""
AGAIN_SECONDS = 0.05
"""Before a call is repeated: some fail at once while a broker is away."""
LATE_SECONDS = 15.0
"""How long a call may go on after its own time is over: a client is paused for up to 14 s."""
CLOSE_SECONDS = 5.0

logging.getLogger("aiokafka").setLevel(logging.CRITICAL)


class NotReturnedError(Exception):
    """A call of the library went on after its own time was over."""


class ConfluentTransacting:
    """librdkafka. Its `send_offsets_to_transaction` may not return when the group's coordinator was
    out of the metadata for a moment (librdkafka's issues 5456 and 5511). No other call of that
    producer does anything then, and it cannot be closed: the next one with its id fences it."""

    def __init__(self, bootstrap: str, transactional_id: str, random: Random) -> None:
        self._stands_still = ""
        """Why nothing is to be had of it any more."""
        self._producer = Producer(
            {
                **secure.librdkafka(),
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
        if not self._stands_still:
            self._producer.purge()

    def _repeated(self, call: Callable[[float], None]) -> None:
        until = time.monotonic() + LONGEST_SECONDS
        while True:
            try:
                self._called(call)
                return
            except KafkaException as error:
                if not error.args[0].retriable() or time.monotonic() > until:
                    raise
            time.sleep(AGAIN_SECONDS)

    def _called(self, call: Callable[[float], None]) -> None:
        """On a thread that keeps the producer when the call does not return."""
        if self._stands_still:
            raise NotReturnedError(self._stands_still)
        outcome = Future[None]()

        def run() -> None:
            try:
                outcome.set_result(call(ASK_SECONDS))
            except BaseException as error:
                outcome.set_exception(error)

        threading.Thread(target=run, daemon=True).start()
        try:
            outcome.result(ASK_SECONDS + LATE_SECONDS)
        except TimeoutError:
            self._stands_still = f"{NOT_RETURNED} within {ASK_SECONDS + LATE_SECONDS:g} s"
            print(self._stands_still, file=sys.stderr, flush=True)
            raise NotReturnedError(self._stands_still) from None


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
            **secure.aiokafka(),
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
