"""Two clusters of one node each, for rows that mirror: the peer is `east`, the other one `west`.

The second node lives as long as the row's block. Either program mirrors while its block lasts, and
ends as its users end it.
"""

from __future__ import annotations

import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

from bench.mirrors import CLASSES, maker_command, our_command
from bench.servers import ROOT, SERVERS
from confluent_kafka import (
    Consumer,
    ConsumerGroupTopicPartitions,
    KafkaException,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from compat.clients import HERE, needs
from compat.families.records import SECONDS, held
from compat.java import FLAGS, java
from compat.peer import Peer
from compat.row import Failed

END_SECONDS = 60.0
"""Until a mirror that is asked to end has committed what it did."""
MIRROR_SECONDS = 180.0
"""Until what was sent has arrived, the start of a JVM or of Spark included."""
PARTITIONS = 3
READER = {
    "group.id": "nobody",
    "isolation.level": "read_committed",
    "enable.partition.eof": True,
    "enable.auto.commit": False,
}


def fetch() -> None:
    """MirrorMaker 2's jars, and Spark for ours."""
    needs("java", "mvn")
    if find_spec("pyspark") is None:
        raise SystemExit("Spark is not installed; scripts/venv spark adds it")
    if subprocess.run([ROOT / "scripts" / "kafka-jars", "mirror"], check=False).returncode:
        raise SystemExit("no jars of MirrorMaker 2")


@contextmanager
def west_of(peer: Peer, kind: str = "") -> Iterator[Peer]:
    """A second cluster, of the peer's kind or of another one."""
    server = SERVERS[kind or peer.name](peer.server.settings, peer.scratch)
    try:
        server.start()
        yield Peer(server, peer.driver, peer.scratch / "west")
    finally:
        server.stop()


@contextmanager
def maker(peer: Peer, file: Path) -> Iterator[None]:
    """MirrorMaker 2, while the block lasts."""
    java(peer.scratch)  # writes the configuration of its log
    with mirroring(peer, maker_command(file, peer.scratch / "tools-log4j2.xml")):
        yield


@contextmanager
def ours(peer: Peer, file: Path) -> Iterator[None]:
    """`anabranch mirror run`, while the block lasts."""
    with mirroring(peer, our_command(file), cwd=ROOT):
        yield


@contextmanager
def mirroring(peer: Peer, command: list[str], **options: object) -> Iterator[None]:
    """A program that mirrors; `Failed` with its last words where it ends by itself."""
    with peer.background(*command, **options) as running:
        try:
            yield
        except Failed as fault:
            raise Failed(f"{fault}; the mirror said: {running.printed[-500:]}") from None
        if running.process.poll() is not None:
            raise Failed(f"the mirror ended: {running.printed[-500:]}")
        running.process.send_signal(signal.SIGINT)
        running.process.wait(END_SECONDS)


def send(peer: Peer, topic: str, first: int, beyond: int) -> None:
    """Numbered records, by turns to each partition: some alone, then some in a transaction that is
    aborted, and in one that is committed. The last, as its marker may come after the commit."""
    plain = Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 5})
    name = {"transactional.id": f"{topic}-sender", "bootstrap.servers": peer.bootstrap}
    within = Producer(name)
    within.init_transactions(SECONDS)
    half = (first + beyond) // 2
    for producer, numbers in ((plain, range(first, half)), (within, range(half, beyond))):
        for commits in (False, True) if producer is within else (True,):
            if producer is within:
                within.begin_transaction()
            for number in numbers:
                word = f"{number}" if commits else f"aborted-{number}"
                headers = [("number", word.encode())]
                at = number % PARTITIONS
                producer.produce(topic, word, f"key-{number}", partition=at, headers=headers)
            if producer.flush(SECONDS):
                raise Failed("records were not acknowledged")
            if producer is within:
                (within.commit_transaction if commits else within.abort_transaction)(SECONDS)


def records_of(peer: Peer, topic: str) -> list[tuple[object, ...]]:
    """All that readers see of a topic's committed records: partition, key, value, headers and time,
    in the order of each partition."""
    consumer = Consumer({**READER, "bootstrap.servers": peer.bootstrap})
    partitions = range(PARTITIONS)
    consumer.assign([TopicPartition(topic, number, 0) for number in partitions])
    found: list[tuple[object, ...]] = []
    ended: set[int | None] = set()
    try:
        while len(ended) < len(partitions):
            message = consumer.poll(SECONDS)
            if message is None:
                raise Failed(f"no end of {topic} within {SECONDS:.0f} s")
            if message.error():
                ended.add(message.partition())
                continue
            place = message.partition(), message.key(), message.value()
            found.append((*place, message.headers(), message.timestamp()))
    finally:
        consumer.close()
    return sorted(found, key=lambda record: str(record[0]))


def same(east: Peer, topic: str, west: Peer, remote: str) -> int:
    """How many records both topics have; `Failed` where they differ in anything but offsets."""
    source, copied = records_of(east, topic), records_of(west, remote)
    if source != copied:
        at = next(
            (n for n, pair in enumerate(zip(source, copied)) if pair[0] != pair[1]), "the end"
        )
        raise Failed(f"{remote}: {len(copied)} records; {topic}: {len(source)}; they part at {at}")
    return len(copied)


def await_records(west: Peer, topic: str, count: int) -> None:
    """Wait until so many committed records have arrived."""
    west.wait(lambda: len(there(west, topic)) >= count, f"{count} records arrive", MIRROR_SECONDS)


def there(peer: Peer, topic: str) -> list[tuple[int, bytes | None, bytes | None]]:
    """The committed records of a topic that may not be there yet."""
    try:
        return held(peer, topic)
    except (KafkaException, KeyError, TimeoutError):
        return []


def commit(peer: Peer, group: str, topic: str, offsets: dict[int, int]) -> None:
    """Give an empty group these offsets."""
    admin = AdminClient({"bootstrap.servers": peer.bootstrap})
    places = [TopicPartition(topic, partition, offset) for partition, offset in offsets.items()]

    def are_taken() -> bool:
        """A coordinator that has just begun refuses each partition."""
        asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        found = [each.result(SECONDS) for each in asked.values()]
        return not any(place.error for each in found for place in each.topic_partitions)

    peer.wait(are_taken, f"offsets of {group} are committed")


def java_program(peer: Peer, *words: object) -> list[str]:
    """The lines that a main class, or a source file, of MirrorMaker 2's jars prints."""
    java(peer.scratch)
    logging = f"-Dlog4j2.configurationFile={peer.scratch / 'tools-log4j2.xml'}"
    return peer.command("java", *FLAGS, logging, "-cp", CLASSES, *words).lines


def reader(west: Peer, group: str) -> list[str]:
    """What MirrorClient and RemoteClusterUtils find of `east`."""
    return java_program(west, HERE / "MirrorReader.java", west.bootstrap, "east", group)
