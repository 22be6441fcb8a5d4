"""Remote segments: what both servers copy is read by Kafka's `kafka-dump-log.sh`, file by file.

The rows start a server of their own with remote storage: Kafka with LocalTieredStorage, the store
of its own tests. Kafka's store keeps all segments of a partition in one folder and adds an id to
the names, which the tool does not take: its files are copied under the names of a log's folder.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from bench.servers import ROOT
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import (
    AdminClient,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewTopic,
)

from compat.families.dump import dump
from compat.peer import Peer
from compat.row import Failed, row

sys.path.append(str(ROOT / "bench"))
from tiered import REMOTE, TIERED, TOPIC

SECONDS = 60.0
TRANSACTIONS = 12
VALUE_BYTES = 300_000
"""Three make a segment of 1 MiB, so that segments begin at the same offsets in both."""
SEGMENTS = 3
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "offsets.topic.num.partitions": 1,
    "transaction.state.log.num.partitions": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
}
CONFIG = {"segment.bytes": "1048576", "file.delete.delay.ms": "0", "retention.ms": "-1"}
KAFKAS_NAME = re.compile(r"(\d{20})-[\w-]{22}\.(\w+)")


class Tiered:
    """A server with a partition whose closed segments were copied, and are still local."""

    def __init__(self, peer: Peer) -> None:
        work = peer.scratch / "tiered"
        shutil.rmtree(work, ignore_errors=True)
        self.peer, self.server = peer, TIERED[peer.name](SETTINGS, work)

    def fill(self) -> None:
        """Transactions, every third of them aborted; then wait for the copies."""
        self.server.start()
        self.admin = AdminClient({"bootstrap.servers": self.server.bootstrap, "log_level": 0})
        config = {**TOPIC, **CONFIG}
        self.admin.create_topics([NewTopic("t", 1, 1, config=config)])["t"].result(SECONDS)
        producer = Producer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "transactional.id": "tiered",
                "message.max.bytes": 900_000,
                "log_level": 0,
            }
        )
        producer.init_transactions(SECONDS)
        for number in range(TRANSACTIONS):
            producer.begin_transaction()
            producer.produce("t", b"%03d " % number * (VALUE_BYTES // 4))
            if producer.flush(SECONDS):
                raise Failed("a record was not acknowledged")
            end = producer.abort_transaction if number % 3 == 2 else producer.commit_transaction
            end(SECONDS)
        self.peer.wait(lambda: len(self.remote("log")) >= SEGMENTS, "copies", SECONDS)
        self.peer.wait(self._is_whole, "whole copies", SECONDS)

    def _is_whole(self) -> bool:
        kinds = ("index", "timeindex", "txnindex", "snapshot")
        return all(len(self.remote(each)) >= SEGMENTS for each in kinds)

    def remote(self, kind: str) -> list[Path]:
        """The remote files of a kind, in order of their names."""
        found = (self.server.folder / REMOTE).rglob(f"*.{kind}")
        return sorted(found, key=lambda path: path.name)

    def named(self, kind: str) -> list[Path]:
        """The same, under the names of a log's folder."""
        found = []
        for path in self.remote(kind):
            told = KAFKAS_NAME.fullmatch(path.name)
            if told is None:
                found.append(path)
                continue
            home = self.peer.scratch / "named" / path.stem
            home.mkdir(parents=True, exist_ok=True)
            found.append(Path(shutil.copy(path, home / f"{told[1]}.{told[2]}")))
        return found

    def alter(self, **values: object) -> None:
        """Settings of the topic."""
        entries = [
            ConfigEntry(name.replace("_", "."), str(value),
                        incremental_operation=AlterConfigOpType.SET)
            for name, value in values.items()
        ]  # fmt: skip
        resource = ConfigResource(ConfigResource.Type.TOPIC, "t", incremental_configs=entries)
        self.admin.incremental_alter_configs([resource])[resource].result(SECONDS)

    def local(self) -> dict[str, bytes]:
        """Name -> bytes of each closed segment on the disk."""
        files = sorted((self.server.folder / "data" / "t-0").glob("*.log"))
        return {each.name: each.read_bytes() for each in files[:-1]}

    def read(self, isolation: str) -> list[tuple[int, bytes]]:
        """All records of the partition that a consumer gets, by offset."""
        consumer = Consumer(
            {
                "bootstrap.servers": self.server.bootstrap,
                "group.id": "tiered",
                "isolation.level": isolation,
                "auto.offset.reset": "error",
                "enable.partition.eof": True,
                "log_level": 0,
            }
        )
        consumer.assign([TopicPartition("t", 0, 0)])
        found: list[tuple[int, bytes]] = []
        while (message := consumer.poll(SECONDS)) is not None and message.error() is None:
            found.append((message.offset(), message.value()))
        consumer.close()
        return found


@contextmanager
def filled(peer: Peer) -> Iterator[Tiered]:
    """A server with copied segments, which ends with the block."""
    made = Tiered(peer)
    try:
        made.fill()
        yield made
    finally:
        made.server.stop()


@row("tiered-dump")
def dumps_remote_segments(peer: Peer) -> object:
    """Every file of a remote segment is read: batches, indexes, snapshot, leader epochs."""
    with filled(peer) as tiered:
        found: dict[str, object] = {}
        logs = tiered.named("log")[:SEGMENTS]
        output = dump(peer, logs, "--deep-iteration")
        found["batches"] = re.findall(r"baseOffset: (\d+) lastOffset: (\d+)", output.out)
        found["markers"] = Counter(re.findall(r"endTxnMarker: \w+", output.out))
        for kind in ("index", "timeindex"):
            for path, log in zip(tiered.named(kind)[:SEGMENTS], logs, strict=True):
                place = path.with_suffix(".log")  # the tool looks for the segment beside an index
                if place != log:
                    shutil.copy(log, place)
                dump(peer, [path])
                sane = dump(peer, [path], "--index-sanity-check").out
                found[path.name] = "passed sanity check" in sane
        aborted = dump(peer, tiered.named("txnindex")[:SEGMENTS]).out
        found["aborted"] = re.findall(r"firstOffset: (\d+) lastOffset: (\d+)", aborted)
        states = [dump(peer, [path]).out for path in tiered.named("snapshot")[:SEGMENTS]]
        # of a producer the last entry counts; Anabranch keeps its batches in flight before it
        found["producers"] = [re.findall(r"lastOffset: (\d+)", state)[-1] for state in states]
        paths = [*(tiered.server.folder / REMOTE).rglob("*leader?epoch?checkpoint*")]
        found["epochs"] = sorted(path.read_text() for path in paths)[:SEGMENTS]
        return found


@row("tiered-metadata")
def decodes_the_metadata_of_remote_segments(peer: Peer) -> object:
    """The facts of segments are decoded: of Kafka its topic, of Anabranch what it exports."""
    with filled(peer) as tiered:
        if peer.name == "kafka":
            files = sorted((tiered.server.folder / "data").glob("__remote_log_metadata-*/*.log"))
        else:
            files = exported(tiered)
        full = [file for file in files if file.stat().st_size]

        def told() -> list[str]:
            """What the segments were, and what became of them."""
            text = dump(peer, full, "--remote-log-metadata-decoder").out
            begun = re.findall(
                r"startOffset=\d+, endOffset=\d+, brokerId=\d+|"
                r"segmentLeaderEpochs=\S+, segmentSizeInBytes=\d+|txnIdxEmpty=\w+",
                text,
            )
            ended = re.findall(r"MetadataUpdate\{.*?state=(\w+)", text)
            return [*begun, *ended] if ended.count("COPY_SEGMENT_FINISHED") >= SEGMENTS else []

        return sorted(peer.wait(told, "the end of all copies"))


def exported(tiered: Tiered) -> list[Path]:
    """What `anabranch remote export` writes."""
    target = tiered.peer.scratch / "exported"
    shutil.rmtree(target, ignore_errors=True)
    settings = tiered.server.settings
    words = ("--storage-url", str(settings["remote.storage.url"]))
    words += ("--coordinator-url", str(settings["diskless.coordinator.url"]))
    command = [sys.executable, "-m", "anabranch", "remote", "export", *words, str(target)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise Failed(done.stderr)
    return sorted(target.rglob("*.log"))


@row("tiered-read")
def reads_a_log_that_is_remote(peer: Peer) -> object:
    """What was copied and cut locally is equal byte for byte, and is read from its beginning."""
    with filled(peer) as tiered:
        before = tiered.read("read_uncommitted")
        local = tiered.local()
        remote = {path.name: path.read_bytes() for path in tiered.named("log")}
        tiered.alter(local_retention_bytes=1)
        peer.wait(lambda: not tiered.local(), "the local segments to go", SECONDS)
        after = tiered.read("read_uncommitted")
        committed = tiered.read("read_committed")
        return {
            "segments": sorted(local),
            "bytes are equal": all(remote.get(name) == held for name, held in local.items()),
            "records are equal": before == after,
            "records": [offset for offset, _ in after],
            "committed": [offset for offset, _ in committed],
        }
