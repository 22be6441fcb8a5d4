"""Folders that one of the two wrote: Kafka and a node open both, and clients find the same in each.

The node is started as users would do it: `anabranch metadata restore` with Kafka's own
`server.properties` fills the metadata store from the metadata log in the folder, then `anabranch
serve` with the same file. Kafka opens a node's folder with nothing done to it. Clients must find
the same records, groups and topics, and be able to go on.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from itertools import groupby
from pathlib import Path
from typing import Any

from bench.servers import ROOT, Kafka, Server
from confluent_kafka import (
    OFFSET_BEGINNING,
    Consumer,
    KafkaError,
    Message,
    Producer,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient

from compat.families.dump import dump
from compat.folders import (
    FIRST_MS,
    GROUP,
    TOPICS,
    SmallKafka,
    by_kafka,
    by_node,
    settings_of_readers,
)
from compat.peer import Peer
from compat.row import Failed, row

SECONDS = 30.0
LEVELS = ("read_committed", "read_uncommitted")
MOMENTS = (0, FIRST_MS, FIRST_MS + 55_500, FIRST_MS + 333_333, FIRST_MS + 10**9)
NEW_RECORDS = 5
STORE = "metadata-store.db"

Place = tuple[str, int]


class TakenOver(SmallKafka):
    """A node on Kafka's folder and Kafka's `server.properties`."""

    name = "taken-over"

    def command(self) -> list[str]:
        """`anabranch serve` with the file that Kafka had."""
        return [*ANABRANCH, "serve", "--config", str(self.folder / "server.properties")]


ANABRANCH = (sys.executable, "-m", "anabranch")


@contextmanager
def opened(peer: Peer, source: Path) -> Iterator[Server]:
    """A server of the peer's kind on a copy of a folder."""
    kind = SmallKafka if peer.name == "kafka" else TakenOver
    server: Kafka = kind(settings_of_readers(), peer.scratch)
    data = server.folder / "data"
    shutil.rmtree(data)
    shutil.copytree(source, data)
    try:
        if kind is TakenOver and not (data / STORE).exists():
            restore(server)
        server.start()
        yield server
    finally:
        server.stop()


def restore(server: Server) -> None:
    """Fill the metadata store from Kafka's metadata log."""
    words = ("metadata", "restore", "--config", str(server.folder / "server.properties"))
    done = subprocess.run([*ANABRANCH, *words], capture_output=True, text=True, cwd=ROOT)
    if done.returncode:
        raise Failed(f"metadata restore: {done.stderr.strip()}")


@row("folder-stopped")
def reads_a_stopped_folder(peer: Peer) -> object:
    """A folder of Kafka's, stopped in order: records, offsets and groups are the same."""
    return observe(peer, by_kafka(peer.scratch.parent).stopped)


@row("folder-killed")
def reads_a_killed_folder(peer: Peer) -> object:
    """A folder of a Kafka that was killed: the same, after recovery."""
    return observe(peer, by_kafka(peer.scratch.parent).killed)


@row("folder-ours-stopped")
def reads_our_stopped_folder(peer: Peer) -> object:
    """A folder of a node, stopped in order: Kafka opens it and finds what the node finds."""
    return observe(peer, by_node(peer.scratch.parent).stopped)


@row("folder-ours-killed")
def reads_our_killed_folder(peer: Peer) -> object:
    """A folder of a node that was killed: the same, after Kafka's recovery."""
    return observe(peer, by_node(peer.scratch.parent).killed)


@row("folder-dump")
def dumps_every_file(peer: Peer) -> object:
    """Kafka's reader finds every segment and index of such a folder sound, groups' ones too."""
    source = by_kafka if peer.name == "kafka" else by_node
    folder = source(peer.scratch.parent).stopped
    counts = {}
    for topic in ("plain", "rolled", "compacted", "__consumer_offsets"):
        files = sorted(folder.glob(f"{topic}-*/*.log"))
        words = ["--offsets-decoder"] if topic.startswith("__") else ["--print-data-log"]
        output = dump(
            peer, [each for each in files if each.stat().st_size], "--deep-iteration", *words
        )
        counts[topic] = output.out.count("| offset: ")
        indexes = [each for each in sorted(folder.glob(f"{topic}-*/*index")) if each.stat().st_size]
        for kind in (".index", ".timeindex"):
            chosen = [each for each in indexes if each.suffix == kind]
            if chosen:
                dump(peer, chosen, "--index-sanity-check")
    if not all(counts.values()):
        raise Failed(f"a topic without a record: {counts}")
    return {topic: counts[topic] for topic in ("plain", "rolled")}


def observe(peer: Peer, source: Path) -> object:
    """All that clients find, and that they can go on."""
    with opened(peer, source) as server:
        at = {"bootstrap.servers": server.bootstrap, "log_level": 0}
        places = peer.wait(lambda: partitions(at), "every partition to have a leader", SECONDS)
        return {
            "places": [f"{topic}-{number}" for topic, number in places],
            **{level: everything(at, places, level) for level in LEVELS},
            "offsets": offsets(at, places),
            "going on": going_on(at),
        }


def partitions(at: Mapping[str, Any]) -> list[Place]:
    """Every partition, or none while one of them has no leader."""
    admin = AdminClient(dict(at))
    topics = admin.list_topics(timeout=SECONDS).topics
    found = [each for topic in topics.values() for each in topic.partitions.values()]
    if not set(TOPICS) <= set(topics) or any(each.leader < 0 for each in found):
        return []
    return sorted((name, number) for name, topic in topics.items() for number in topic.partitions)


def reader(at: Mapping[str, Any], **more: object) -> Consumer:
    """A consumer that commits nothing."""
    return Consumer({**at, "group.id": "reader", "enable.auto.commit": False, **more})


def everything(at: Mapping[str, Any], places: list[Place], level: str) -> dict[str, Any]:
    """Of each partition: which offsets there are, leader epochs, and a digest of all records."""
    consumer = reader(at, **{"isolation.level": level, "enable.partition.eof": True})
    consumer.assign([TopicPartition(*place, OFFSET_BEGINNING) for place in places])
    found: dict[Place, list[Message]] = {place: [] for place in places}
    open_places = set(places)
    while open_places:
        message = consumer.poll(SECONDS)
        if message is None:
            raise Failed(f"{level}: {sorted(open_places)} came to no end")
        fault = message.error()
        if fault is None:
            found[message.topic(), message.partition()].append(message)
        elif fault.code() == KafkaError._PARTITION_EOF:
            open_places.discard((message.topic(), message.partition()))
        else:
            raise Failed(f"{level}: {fault}")
    consumer.close()
    return {f"{topic}-{number}": summary(found[topic, number]) for topic, number in places}


def summary(messages: list[Message]) -> dict[str, Any]:
    """Offsets as ranges, the leader epochs in them, and a digest of every field of every record."""
    digest = hashlib.sha256()
    for each in messages:
        fields = (each.offset(), each.leader_epoch(), each.timestamp())
        digest.update(repr((*fields, each.key(), each.value(), each.headers())).encode())
    return {
        "records": len(messages),
        "offsets": ranges([each.offset() for each in messages]),
        "epochs": sorted({each.leader_epoch() for each in messages}),
        "digest": digest.hexdigest(),
    }


def ranges(offsets: list[int]) -> str:
    """`0-4 7 9-12`; the order in which they came is kept."""
    runs = groupby(enumerate(offsets), lambda pair: pair[1] - pair[0])
    ends = [[offset for _, offset in run] for _, run in runs]
    return " ".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in ends)


def offsets(at: Mapping[str, Any], places: list[Place]) -> dict[str, Any]:
    """Ends, offsets by time at both levels, and what the group committed."""
    found: dict[str, Any] = {}
    for level in LEVELS:
        consumer = reader(at, **{"isolation.level": level})
        for topic, number in places:
            low, high = consumer.get_watermark_offsets(TopicPartition(topic, number), SECONDS)
            asked = [TopicPartition(topic, number, moment) for moment in MOMENTS]
            times = [consumer.offsets_for_times([each], SECONDS)[0].offset for each in asked]
            found[f"{level} {topic}-{number}"] = (low, high, times)
        consumer.close()
    group = reader(at, **{"group.id": GROUP})
    plain = [TopicPartition("plain", number) for number in range(TOPICS["plain"][0])]
    found[GROUP] = [
        (each.partition, each.offset, each.metadata) for each in group.committed(plain, SECONDS)
    ]
    group.close()
    return found


def going_on(at: Mapping[str, Any]) -> dict[str, Any]:
    """New records continue the old offsets in a later epoch; the group reads from its commit."""
    reports: list[Message] = []
    producer = Producer({**at, "enable.idempotence": True})
    for number in range(NEW_RECORDS):
        producer.produce(
            "plain", f"new-{number}", partition=1, on_delivery=lambda _, each: reports.append(each)
        )
    if producer.flush(SECONDS):
        raise Failed("new records were not acknowledged")
    consumer = reader(at, **{"group.id": GROUP, "auto.offset.reset": "error"})
    consumer.subscribe(["plain"])
    came: list[Message] = []
    while sum((each.value() or b"").startswith(b"new-") for each in came) < NEW_RECORDS:
        message = consumer.poll(SECONDS)
        if message is None or message.error():
            raise Failed(f"the group did not go on: {message and message.error()}")
        came.append(message)
    consumer.close()
    of_one = [each for each in came if each.partition() == 1]
    return {
        "offsets": [each.offset() for each in reports],
        "group": ranges([each.offset() for each in of_one]),
        "a later epoch": of_one[-1].leader_epoch() > of_one[0].leader_epoch(),
    }
