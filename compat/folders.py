"""Folders that both servers write for the rows of `families/folder.py`, in all the ways they can.

Every codec, idempotent and transactional producers with commits, aborts and a transaction that
stays open, null keys and values, headers, several segments, several leader epochs, a compacted
topic that was cleaned, records deleted from the front, committed offsets of a group. Written twice:
as an orderly stop leaves it, and as SIGKILL does.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from bench.servers import Anabranch, Kafka, Server
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
    ResourceType,
)

from compat.row import Failed

SETTINGS = {
    "offsets.topic.num.partitions": 2,
    "transaction.state.log.num.partitions": 2,
    "group.initial.rebalance.delay.ms": 0,
    "log.cleaner.backoff.ms": 100,
    "log.retention.ms": -1,
    "log.retention.check.interval.ms": 200,
    "log.initial.task.delay.ms": 200,
}
"""Of the Kafka that writes; records are years old, and stay, but for those that are deleted."""
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "plain": (2, {}),
    "rolled": (1, {"segment.ms": "10000", "index.interval.bytes": "512"}),
    "transactions": (1, {"segment.ms": "1000"}),
    "compacted": (
        1,
        {
            "cleanup.policy": "compact",
            "segment.ms": "100",
            "min.cleanable.dirty.ratio": "0.01",
            "delete.retention.ms": "0",
        },
    ),
}
"""Partitions and configuration."""
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")
GROUP = "billing"
FIRST_MS = 1_700_000_000_000
EPOCHS = 3
KEYS = 50
OPEN_SECONDS = 900
"""How long the open transaction may stay open: longer than the table takes."""
WAIT_SECONDS = 60.0


class SmallKafka(Kafka):
    """A Kafka with little memory, which starts fast; two others run beside it."""

    def _java(self) -> list[str]:
        words = super()._java()
        return [words[0], *words[1:3], "-Xms64m", "-Xmx384m", "-XX:TieredStopAtLevel=1", *words[3:]]


class Written:
    """The two folders: `stopped` and `killed`, each the `log.dirs` of a node with id 1."""

    def __init__(self, work: Path, kind: type[Server]) -> None:
        self.stopped = work / "stopped"
        self.killed = work / "killed"
        shutil.rmtree(work, ignore_errors=True)
        server = kind(SETTINGS, work)
        try:
            self._write(server)
        finally:
            server.stop()

    def _write(self, server: Server) -> None:
        server.start()
        writer = Writer(server.bootstrap)
        writer.create()
        for number in range(EPOCHS):
            if number:
                end(server)
                server.start()
            writer.fill(number)
        data = server.folder / "data"
        until(lambda: cleaned(data), "the cleaner to reach the last round")
        # While deleted records are still on the disk, Kafka finds no offset for their times.
        first = data / "rolled-0" / f"{0:020d}.log"
        until(lambda: not first.exists(), "the segments of deleted records to go")
        writer.stop_cleaning()
        end(server)
        shutil.copytree(server.folder / "data", self.stopped)
        server.start()
        writer.fill(EPOCHS)
        server.kill()
        shutil.copytree(server.folder / "data", self.killed)


class Writer:
    """The clients that write."""

    def __init__(self, bootstrap: str) -> None:
        self.at = {"bootstrap.servers": bootstrap, "log_level": 0}
        self.admin = AdminClient(self.at)

    def create(self) -> None:
        """Make the topics."""
        new = [NewTopic(name, count, 1, config=how) for name, (count, how) in TOPICS.items()]
        for made in self.admin.create_topics(new).values():
            made.result(WAIT_SECONDS)

    def fill(self, number: int) -> None:
        """One round: every codec, transactions, a group's commit; the last one more than that."""
        for topic in ("plain", "rolled", "compacted"):
            for place, codec in enumerate(CODECS):
                self.produce(topic, codec, (number * len(CODECS) + place) * 40, place % 2 == 0)
        self.transactions(number)
        self.commit(number)
        if number == 0:
            cut = self.admin.delete_records([TopicPartition("rolled", 0, 55)])
            for done in cut.values():
                done.result(WAIT_SECONDS)

    def produce(self, topic: str, codec: str, first: int, idempotent: bool) -> None:
        """Forty records with one codec."""
        how = {"compression.type": codec, "enable.idempotence": idempotent, "linger.ms": 5}
        producer = Producer({**self.at, **how})
        for number in range(first, first + 40):
            producer.produce(
                topic,
                key=None if number % 7 == 0 and topic != "compacted" else f"key-{number % KEYS}",
                value=None if number % 9 == 0 else f"value-{number} " + "x" * 60,
                headers=[("n", str(number)), ("empty", None)] if number % 4 == 0 else None,
                timestamp=FIRST_MS + 1000 * number,
                partition=number % TOPICS[topic][0],
            )
        if producer.flush(WAIT_SECONDS):
            raise Failed(f"the records of {topic} in {codec} were not acknowledged")

    def transactions(self, number: int) -> None:
        """One that commits, one that aborts, one that commits; in the last round one stays open."""
        how = {
            "transactional.id": f"writer-{number}",
            "transaction.timeout.ms": OPEN_SECONDS * 1000,
        }
        producer = Producer({**self.at, **how})
        producer.init_transactions(WAIT_SECONDS)
        for turn in range(3):
            self._transaction(producer, f"{number}-{turn}")
            finish = producer.abort_transaction if turn == 1 else producer.commit_transaction
            finish(WAIT_SECONDS)
        if number == EPOCHS - 1:
            self._transaction(producer, "open")

    def _transaction(self, producer: Producer, text: str) -> None:
        producer.begin_transaction()
        for number in range(10):
            producer.produce("transactions", key=f"{number}", value=text)
            if text != "open":  # an open one would hold the cleaner back
                producer.produce("compacted", key=f"transaction-{number}", value=text)
        producer.flush(WAIT_SECONDS)

    def commit(self, number: int) -> None:
        """A group that reads some records and commits how far it came."""
        consumer = Consumer(
            {
                **self.at,
                "group.id": GROUP,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
            }
        )
        consumer.subscribe(["plain"])
        until(lambda: consumer.poll(0.1), "a record for the group")
        consumer.commit(
            offsets=[
                TopicPartition("plain", place, 10 * (number + 1) + place, metadata="so far")
                for place in range(2)
            ],
            asynchronous=False,
        )
        consumer.close()

    def stop_cleaning(self) -> None:
        """From here on every reader finds the compacted topic as it is."""
        entry = ConfigEntry(
            "min.cleanable.dirty.ratio", "1.0", incremental_operation=AlterConfigOpType.SET
        )
        resource = ConfigResource(ResourceType.TOPIC, "compacted", incremental_configs=[entry])
        for done in self.admin.incremental_alter_configs([resource]).values():
            done.result(WAIT_SECONDS)


def end(server: Server) -> None:
    """Stop a server in order and keep its folder."""
    assert server.process is not None
    server.process.terminate()
    server.process.wait(WAIT_SECONDS)


def cleaned(folder: Path) -> bool:
    """Whether the compacted topic is cleaned as far as it may be: up to its active segment."""
    active = max(int(each.stem) for each in (folder / "compacted-0").glob("*.log"))
    points = dict(offsets_in(folder / "cleaner-offset-checkpoint"))
    return points.get("compacted-0", 0) >= active > 0


def offsets_in(checkpoint: Path) -> Iterator[tuple[str, int]]:
    """Partitions and offsets of a checkpoint file."""
    for line in checkpoint.read_text().splitlines()[2:] if checkpoint.exists() else ():
        topic, partition, offset = line.split()
        yield f"{topic}-{partition}", int(offset)


def until(ask: Any, what: str) -> None:
    """Ask until the answer is true."""
    last = time.monotonic() + WAIT_SECONDS
    while not ask():
        if time.monotonic() > last:
            raise Failed(f"not within {WAIT_SECONDS:.0f} s: {what}")
        time.sleep(0.05)


_WRITTEN: dict[Path, Written | str] = {}


def written(work: Path, kind: type[Server]) -> Written:
    """The folders in `work` of a kind of server, written when they are first asked for."""
    if work not in _WRITTEN:
        try:
            _WRITTEN[work] = Written(work, kind)
        except (Exception, SystemExit) as failure:
            _WRITTEN[work] = str(failure)
    found = _WRITTEN[work]
    if isinstance(found, str):
        raise Failed(f"the folder was not written: {found}")
    return found


def by_kafka(work: Path) -> Written:
    """What Kafka wrote."""
    return written(work / "written-by-kafka", SmallKafka)


def by_node(work: Path) -> Written:
    """What a node wrote."""
    return written(work / "written-by-node", Anabranch)


def settings_of_readers() -> Mapping[str, object]:
    """What a server gets that opens such a folder: as the writer had it, and no cleaning."""
    return {**SETTINGS, "log.cleaner.enable": "false"}
