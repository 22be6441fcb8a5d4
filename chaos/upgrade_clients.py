"""Clients of an upgrade, each a process on the clients' host, and the verdict on what they noted.

What: a writer with acks=all, a producer of transactions, and a member of a group, all unmodified
confluent-kafka. Each notes what it was told, a JSON object a line. Rule kept: only what was
acknowledged counts, and it counts for ever.
"""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Iterator
from itertools import pairwise
from pathlib import Path
from typing import Any

PLAIN, TRANSFERS = "plain", "transfers"
GROUP = "readers"
PAUSE_SECONDS = 0.01
QUIET_SECONDS = 20.0


def notes(path: Path) -> Iterator[dict[str, Any]]:
    """What a client noted; a last line that a kill cut off is no note."""
    for line in path.read_text().splitlines():
        if line.endswith("}"):
            yield json.loads(line)


class Client:
    """A process that works until SIGTERM."""

    def __init__(self, path: Path) -> None:
        self._notes = path.open("a", buffering=1)
        self.is_asked = False
        signal.signal(signal.SIGTERM, self._ask)

    def _ask(self, *_: object) -> None:
        self.is_asked = True

    def note(self, **what: object) -> None:
        """One line."""
        self._notes.write(json.dumps({"at": time.time(), **what}) + "\n")


def write(client: Client, bootstrap: str) -> None:
    """Records one after another, with several under way."""
    from confluent_kafka import Producer

    producer = Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all"})

    def told(number: int) -> Any:
        def tell(fault: Any, message: Any) -> None:
            if fault is None:
                client.note(n=number, partition=message.partition(), offset=message.offset())
            else:
                client.note(n=number, fault=str(fault))

        return tell

    number = 0
    while not client.is_asked:
        producer.produce(PLAIN, str(number), key=str(number % 100), on_delivery=told(number))
        producer.poll(PAUSE_SECONDS)
        number += 1
    producer.flush(60)


def transfer(client: Client, bootstrap: str) -> None:
    """Two records in two partitions in each transaction."""
    from confluent_kafka import KafkaException, Producer

    producer = Producer({"bootstrap.servers": bootstrap, "transactional.id": "transfers"})
    producer.init_transactions(60)
    number = 0
    while not client.is_asked:
        producer.begin_transaction()
        for partition in (0, 1):
            producer.produce(TRANSFERS, str(number), partition=partition)
        try:
            producer.commit_transaction(60)
            client.note(n=number)
        except KafkaException as fault:
            client.note(n=number, fault=str(fault))
            if not fault.args[0].txn_requires_abort():
                raise
            producer.abort_transaction(60)
        number += 1


def read(client: Client, bootstrap: str) -> None:
    """A member of a group that commits what it has noted."""
    from confluent_kafka import Consumer

    settings = {"bootstrap.servers": bootstrap, "group.id": GROUP,
                "auto.offset.reset": "earliest", "enable.auto.commit": False}  # fmt: skip
    consumer = Consumer(settings)
    consumer.subscribe([PLAIN])
    quiet = 0.0
    while quiet < QUIET_SECONDS:
        messages = consumer.consume(500, 0.5)
        for message in messages:
            if message.error() is None:
                client.note(n=int(message.value()))
        if any(each.error() is None for each in messages):
            consumer.commit(asynchronous=False)
            quiet = 0.0
        elif client.is_asked:
            quiet += 0.5
    consumer.close()


def read_all(client: Client, bootstrap: str) -> None:
    """Every committed record of both topics, with its place."""
    from confluent_kafka import Consumer, TopicPartition

    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "judge",
                         "isolation.level": "read_committed"})  # fmt: skip
    known = consumer.list_topics(timeout=30).topics
    places = [TopicPartition(t, p, 0) for t in (PLAIN, TRANSFERS) for p in known[t].partitions]
    ends = {(each.topic, each.partition): consumer.get_watermark_offsets(each, 30)[1]
            for each in places}  # fmt: skip
    consumer.assign(places)
    while any(each.offset < ends[each.topic, each.partition] for each in consumer.position(places)):
        for message in consumer.consume(1000, 1.0):
            if message.error() is None:
                client.note(topic=message.topic(), partition=message.partition(),
                            offset=message.offset(), n=int(message.value()))  # fmt: skip
    consumer.close()


def verdict(folder: Path) -> dict[str, Any]:
    """What clients were told, compared with what is there."""
    written = list(notes(folder / "write"))
    acknowledged = [each for each in written if "offset" in each]
    stored = list(notes(folder / "read_all"))
    places = {(e["partition"], e["offset"]): e["n"] for e in stored if e["topic"] == PLAIN}
    numbers = [each["n"] for each in stored if each["topic"] == PLAIN]
    committed = {each["n"] for each in notes(folder / "transfer") if "fault" not in each}
    pairs: dict[int, int] = {}
    for each in stored:
        if each["topic"] == TRANSFERS:
            pairs[each["n"]] = pairs.get(each["n"], 0) + 1
    seen = {each["n"] for each in notes(folder / "read")}
    times = sorted(each["at"] for each in acknowledged)
    return {
        "acknowledged": len(acknowledged),
        "refused": sum("fault" in each for each in written),
        "longest_wait_seconds": round(max((b - a for a, b in pairwise(times)), default=0.0), 3),
        "missing": sum(places.get((e["partition"], e["offset"])) != e["n"] for e in acknowledged),
        "twice": len(numbers) - len(set(numbers)),
        "transactions": len(committed),
        "torn": sum(pairs.get(each) != 2 for each in committed),
        "not_seen_by_the_group": len({each["n"] for each in acknowledged} - seen),
    }


ROLES = {each.__name__: each for each in (write, transfer, read, read_all)}

if __name__ == "__main__":
    role, servers, path = sys.argv[1:]
    ROLES[role](Client(Path(path)), servers)
