"""What transactional processes do: transfer, process orders, read what is committed.

    transfer    three records in a transaction; some are aborted, a few outlive their timeout
    processor   reads orders, writes a receipt for each and commits offsets, in one transaction
    committed   reads committed records from the starts on; when told to end, it comes to all ends
    verdict     the same once, when all is over: 0 when it came to every end

Rules kept: that a transaction begins is on the file before anything is sent, its outcome after the
client said it; what no client said stays unknown. The transactional id is the same for all lives of
a part, so that each fences the one before. Not here: libraries (`clients_transactional.py`,
`clients_processors.py`), judgement (`check_transactions.py`).
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Callable
from random import Random
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from chaos import secure
from chaos.clients_readers import Notes
from chaos.clients_transactional import AiokafkaTransacting, ConfluentTransacting, Transacting
from chaos.history import Place, Writer
from chaos.transfers import ACCOUNTS, ORDERS, PARTITIONS, PARTS, TIMEOUT_MS, entries, shown_as

PAUSE_SECONDS = 0.04
AGAIN_SECONDS = 0.5
ABORTED_SHARE, OVERDUE_SHARE = 0.15, 0.004
OVERDUE_SECONDS = TIMEOUT_MS / 1000 + 4
END_SECONDS = 90.0
POLL_SECONDS = 0.3
READ = 500

Stopping = Callable[[], bool]


class Work:
    """A process with a transactional id."""

    def __init__(self, arguments: argparse.Namespace, writer: Writer, stopping: Stopping) -> None:
        self.arguments, self.writer, self.stopping = arguments, writer, stopping
        self.transactional_id = arguments.name.partition(".")[0]
        self.random = Random(f"{arguments.seed}:{arguments.name}")
        self.notes = Notes(writer)

    def open(self) -> Transacting | None:
        """A producer that has the id; None when it is time to end."""
        kinds = {"confluent": ConfluentTransacting, "aiokafka": AiokafkaTransacting}
        kind: Any = kinds[self.arguments.kind]
        while not self.stopping():
            try:
                made: Transacting = kind(
                    self.arguments.bootstrap, self.transactional_id, self.random
                )
                return made
            except Exception as error:
                self.fault(error)
        return None

    def fault(self, error: BaseException) -> None:
        """An error that will pass: counted, and a pause."""
        self.notes.add(f"{type(error).__name__}: {error}"[:160])
        self.notes.write()
        time.sleep(AGAIN_SECONDS)

    def given_up(self, producer: Transacting, error: BaseException) -> bool:
        """After an error: whether the transaction is aborted for sure, and the producer goes on."""
        self.fault(error)
        try:
            producer.abort()
        except Exception as again:
            self.fault(again)
            return False
        return True


class Transfers(Work):
    """See the module."""

    def run(self) -> int:
        """Transfer until told to end."""
        number = 0
        while not self.stopping():
            producer = self.open()
            while producer is not None and not self.stopping():
                number += 1
                if not self._transfer(producer, f"{self.arguments.name}.{number}"):
                    break
                time.sleep(PAUSE_SECONDS)
            if producer is not None:
                producer.close()
        return 0

    def _transfer(self, producer: Transacting, name: str) -> bool:
        """One transaction; False when nothing more can be done with this producer."""
        draw = self.random
        aborts = draw.random() < ABORTED_SHARE
        self._tell(name, "begun")
        try:
            producer.begin()
            self._send(producer, name)
            if draw.random() < OVERDUE_SHARE:
                self._oversleep()
            producer.abort() if aborts else producer.commit()
        except Exception as error:
            aborts = self.given_up(producer, error)
            if not aborts:
                return False
        self._tell(name, "aborted" if aborts else "committed")
        return True

    def _send(self, producer: Transacting, name: str) -> None:
        draw = self.random
        accounts = draw.sample(range(PARTITIONS[ACCOUNTS]), 2)
        places = [Place(ACCOUNTS, each) for each in accounts]
        places.append(Place(ORDERS, draw.randrange(PARTITIONS[ORDERS])))
        for place, entry in zip(places, entries(name, draw.randint(1, 100)), strict=True):
            producer.send(place, name.encode(), entry.value)

    def _oversleep(self) -> None:
        until = time.monotonic() + OVERDUE_SECONDS
        while time.monotonic() < until and not self.stopping():
            time.sleep(0.1)

    def _tell(self, name: str, outcome: str) -> None:
        count = PARTS if outcome == "committed" else 0
        self.writer.line("transaction", name=name, outcome=outcome, records=count)
        self.writer.flush()


class Committed:
    """Reads committed records of all partitions, by librdkafka."""

    def __init__(self, arguments: argparse.Namespace, writer: Writer, stopping: Stopping) -> None:
        self.writer, self.stopping = writer, stopping
        self.notes = Notes(writer)
        self._topics: list[str] = arguments.topics.split(",")
        self._settings = {
            **secure.librdkafka(),
            "bootstrap.servers": arguments.bootstrap,
            "group.id": arguments.name,
            "enable.auto.commit": False,
            "auto.offset.reset": "error",
            "enable.partition.eof": True,
            "reconnect.backoff.max.ms": 1_000,
            "fetch.wait.max.ms": 200,
            "log_level": 2,
        }
        self._consumer = Consumer({**self._settings, "isolation.level": "read_committed"})
        self._ends: dict[Place, int] = {}

    def read_on(self) -> int:
        """Until told to end, and then to all ends; 1 when it does not come there."""
        self._begin(END_SECONDS * 10)
        while not self.stopping():
            self._poll()
        return self.read_to_ends()

    def read_once(self) -> int:
        """See the module."""
        self._begin(END_SECONDS)
        return self.read_to_ends()

    def _begin(self, seconds: float) -> None:
        places = self._asked(lambda: self._partitions(self._consumer), seconds)
        self._consumer.assign([TopicPartition(*each, OFFSET_BEGINNING) for each in places])

    def _partitions(self, consumer: Consumer) -> list[Place]:
        found = consumer.list_topics(timeout=10).topics
        places = [Place(name, index) for name in self._topics for index in found[name].partitions]
        if {place.topic for place in places} != set(self._topics):
            raise LookupError("a topic has no partitions")
        return places

    def read_to_ends(self) -> int:
        """Nobody writes any more: nothing may hold this reader back before a partition's end."""
        other = Consumer({**self._settings, "isolation.level": "read_uncommitted"})
        ends = self._asked(lambda: self._high_watermarks(other), END_SECONDS)
        until = time.monotonic() + END_SECONDS
        left = ends
        while left and time.monotonic() < until:
            self._poll()
            left = {each: end for each, end in ends.items() if self._ends.get(each, 0) < end}
        for place, end in left.items():
            told = {"position": self._ends.get(place, 0), "end": end}
            self.writer.line("held-back", at=place.text, **told)
        return 1 if left else 0

    def _high_watermarks(self, consumer: Consumer) -> dict[Place, int]:
        asked = {
            each: TopicPartition(each.topic, each.partition) for each in self._partitions(consumer)
        }
        return {
            place: consumer.get_watermark_offsets(at, timeout=10)[1] for place, at in asked.items()
        }

    def _asked(self, question: Callable[[], Any], seconds: float) -> Any:
        until = time.monotonic() + seconds
        while True:
            try:
                return question()
            except Exception as error:
                self.notes.add(f"{type(error).__name__}: {error}"[:160])
                if time.monotonic() > until:
                    raise
                time.sleep(AGAIN_SECONDS)

    def _poll(self) -> None:
        found: dict[Place, list[tuple[int, str]]] = {}
        for message in self._consumer.consume(READ, POLL_SECONDS):
            error = message.error()
            place = Place(message.topic(), message.partition())
            if error is None:
                text = shown_as(place.topic, message.key(), message.value())
                found.setdefault(place, []).append((message.offset(), text))
            elif error.code() == KafkaError._PARTITION_EOF:
                self._ends[place] = message.offset()
            else:
                self.notes.add(error.name())
        for place, records in found.items():
            self.writer.line("committed", at=place.text, records=records)
        self.notes.write()
        if found:
            self.writer.flush()
