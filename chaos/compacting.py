"""`python -m chaos.compacting`: a compaction job, and kills of all that takes part.

What: three brokers with a compacted diskless topic, a producer that goes on all the time with keys
that come again and tombstones among them, a reader that begins again at the start, a tiering job,
and `anabranch spark compact` with executors that are processes of their own. What is broken, in
which order, is that of `chaos.tiering`; after each, compacted segments must have taken the place of
others. At the end both jobs go on until nothing is left to do. Then the latest acknowledged record
of each key must be the last one that a reader gets, at its offset; a key whose latest record is a
tombstone must have no other; and with all brokers stopped the store must agree with the
coordinator, byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from confluent_kafka import KafkaError, Message

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError
from anabranch.pipelines.compaction import waiting_of
from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.testing import ClusterError, LocalCluster
from chaos.mirror import PIECE, Stuck, until
from chaos.tiering import (
    PARTITIONS,
    RACKS,
    SETTINGS,
    Coordinator,
    Job,
    Reader,
    Sender,
    kill_all,
    read,
    verified,
)

TOPIC, KEYS, TOMBSTONES = "compacted", 600, 7
"""One record of so many is a tombstone."""
COMPACTED: dict[str, object] = {
    **SETTINGS,
    "cleanup.policy": "compact",
    "min.cleanable.dirty.ratio": "0.01",
    "delete.retention.ms": "5000",
}


class Latest(NamedTuple):
    """Of a key."""

    partition: int
    offset: int
    value: bytes | None


class KeyedSender(Sender):
    """Sends records whose keys come again; notes the latest acknowledged one of each."""

    def __init__(self, bootstrap: str) -> None:
        self.latest: dict[bytes, Latest] = {}
        super().__init__(bootstrap, TOPIC)

    def send_some(self) -> None:
        """A piece."""
        for number in range(self.sent, self.sent + PIECE):
            self._producer.produce(
                TOPIC, None if number % TOMBSTONES == 0 else b"%d" % number,
                key=b"%d" % (number % KEYS), partition=number % PARTITIONS,
                on_delivery=self._noted,
            )  # fmt: skip

    def _noted(self, error: KafkaError | None, message: Message) -> None:
        partition, offset, key = message.partition(), message.offset(), message.key()
        if error is not None or partition is None or offset is None or key is None:
            self.refused += 1
            return
        known = self.latest.get(bytes(key))
        if known is None or known.offset < offset:
            value = message.value()
            self.latest[bytes(key)] = Latest(partition, offset, value and bytes(value))


class CompactionJob(Job):
    """The compaction job."""

    verb = "compact"


class TieringJob(Job):
    """The tiering job, which is not killed; all of it is one process."""

    master = "local[1]"


class CompactionCoordinator(Coordinator):
    """What the coordinator's file says of compaction."""

    claims = "compaction_claims"

    def news(self) -> int:
        """When the newest swap was."""
        return self.count(
            "SELECT coalesce(max(event_ms), 0) FROM remote_segments "
            "WHERE state = 1 AND claim_id < -1"
        )


def run(kills: int, seconds: float, folder: Path, say: Callable[[str], None]) -> None:
    """Rounds of kills until there were so many of each, or the time is over; then the verdict.
    Raises Stuck."""
    with LocalCluster(brokers=3, racks=RACKS, folder=folder, processes=True) as cluster:
        at = cluster.bootstrap_servers
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=-1, config=COMPACTED)
        (found,) = folder.rglob(COORDINATOR)
        coordinator = CompactionCoordinator(found.parent)
        tiering, job = TieringJob(at, found.parent), CompactionJob(at, found.parent)
        try:
            with KeyedSender(at) as sender:
                until(coordinator.news, "nothing is compacted")
                with Reader(at, TOPIC) as reader:
                    done = kill_all(kills, seconds, cluster, job, coordinator, say, TOPIC)
            until(lambda: not coordinator.rows(), "rows are left")
            until(lambda: not due(at), "the job leaves what is due")
        finally:
            job.end()
            tiering.end()
        count = judge(at, sender, reader)
        cluster_id = cluster.cluster_id
    store = f"file://{found.parent.resolve()}/{OBJECTS}"
    findings = asyncio.run(verified(coordinator, store, cluster_id))
    if findings:
        raise Stuck(f"the store and the coordinator do not agree: {findings[:3]}")
    say(f"{sender.sent:,} records, of which {count:,} are left; {reader.rounds} readings, "
        f"{', '.join(f'{n} × {name}' for name, n in done.items())}: the latest record of each key "
        "is at its offset, and the store agrees with the coordinator")  # fmt: skip


def due(bootstrap: str) -> bool:
    """Whether a job would do something; also while no broker answers."""

    async def ask() -> bool:
        async with Cluster(bootstrap) as cluster:
            return any(each.is_due for each in await waiting_of(cluster))

    try:
        return asyncio.run(ask())
    except (ApiError, ConnectionLost):
        return True


def judge(bootstrap: str, sender: KeyedSender, reader: Reader) -> int:
    """How many records are left. Raises Stuck."""
    last: dict[bytes, Latest] = {}
    count = 0

    def take(message: Message, partition: int, offset: int) -> None:
        nonlocal count
        count += 1
        value = message.value()
        last[bytes(message.key() or b"")] = Latest(partition, offset, value and bytes(value))

    read(bootstrap, take, lambda: False, TOPIC)
    wrong = [
        f"key {key!r}: {wanted} was acknowledged, {last.get(key)} is there"
        for key, wanted in sender.latest.items()
        if last.get(key) != wanted and (wanted.value is not None or key in last)
    ]
    if sender.refused or wrong or reader.wrong:
        raise Stuck(
            f"{sender.refused} records were refused, {len(wrong)} keys are wrong: {wrong[:3]}; "
            f"{reader.wrong[:3]}"
        )
    return count


def main() -> int:
    """Parse the arguments and run; 1 when a record is lost or the job stands still."""
    parser = argparse.ArgumentParser(prog="python -m chaos.compacting", description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="of each kind (default 10)")
    parser.add_argument("--seconds", type=float, default=3_600, help="no kill after so long")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = Path(tempfile.mkdtemp(prefix="anabranch-chaos-compacting-"))
    try:
        run(arguments.kills, arguments.seconds, folder, lambda line: print(line, flush=True))
    except (ClusterError, Stuck) as fault:
        print(f"{fault}; the jobs' logs are below {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
