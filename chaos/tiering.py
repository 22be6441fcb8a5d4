"""`python -m chaos.tiering`: a tiering job, and kills of all that takes part, while clients run.

What: three brokers with a diskless topic, a producer that goes on all the time, a reader that
begins again at the start, and `anabranch spark tier` with executors that are processes of their
own. In each round an executor, a Python worker, a leader, the active controller and the driver get
SIGKILL, one after the other, and the coordinator's file is locked for a while; after each, new
segments must become FINISHED. A killed driver leaves its executors behind, which may go on; in
every second round its claim is made to lapse, so that the next job takes it over beside them, else
the next one waits for the lease. At the end the job goes on until no row is
left; then each acknowledged record must be at its offset, once, no offset may lack, and with all
brokers stopped the store must agree with the coordinator, byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import shutil
import signal
import sqlite3
import sys
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path

import psutil
from confluent_kafka import Consumer, KafkaError, Message, Producer, TopicPartition

from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.remote_verification import verify as verify_segments
from anabranch.stores.objects.verification import read_store, verify
from anabranch.testing import ClusterError, LocalCluster
from chaos.mirror import (
    EXECUTOR,
    LIMIT_SECONDS,
    PIECE,
    PIECE_SECONDS,
    QUIET,
    WORKER,
    Mirror,
    Stuck,
    kill_broker,
    until,
)
from chaos.mirror import kill_leader as kill_one

TOPIC, PARTITIONS = "tiered", 6
SETTINGS: dict[str, object] = {
    "diskless.enable": "true",
    "diskless.tiering.age.ms": "1000",
    "diskless.tiering.min.segment.bytes": "1",
    "segment.bytes": "1048576",
}
RACKS = ["a", "b", "c"]
LEASE_SECONDS = 130.0
"""A killed job keeps its claim for two minutes."""
AWAY_SECONDS = 15.0
"""For which no transaction of the coordinator is possible."""


class Sender:
    """Sends numbered records to all partitions; notes where each acknowledged one lies."""

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self.longest_pause_s = 0.0
        """Between two acknowledgements."""
        self._acknowledged_s = time.monotonic()
        self.places: dict[int, tuple[int, int]] = {}
        self.sent = 0
        self.refused = 0
        self._over = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, **QUIET})
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(PIECE_SECONDS):
            self.send_some()
            self.sent += PIECE
            self._producer.poll(0)

    def send_some(self) -> None:
        """A piece."""
        for number in range(self.sent, self.sent + PIECE):
            self._producer.produce(
                self._topic, b"%d" % number, partition=number % PARTITIONS,
                on_delivery=self._noted,
            )  # fmt: skip

    def _noted(self, error: KafkaError | None, message: Message) -> None:
        partition, offset = message.partition(), message.offset()
        if error is not None or partition is None or offset is None:
            self.refused += 1
        else:
            self.places[int(message.value() or b"-1")] = partition, offset
            now_s = time.monotonic()
            self.longest_pause_s = max(self.longest_pause_s, now_s - self._acknowledged_s)
            self._acknowledged_s = now_s

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(300)


class Job(Mirror):
    """The tiering job, whose processes are started, killed and ended as a mirror's are."""

    verb = "tier"

    def __init__(self, bootstrap: str, folder: Path) -> None:
        store = f"file://{folder.resolve()}/{OBJECTS}"
        self._words = [
            sys.executable, "-m", "anabranch", "spark", self.verb, "--bootstrap-server", bootstrap,
            "--storage-url", store, "--every", "1",
        ]  # fmt: skip
        self._log = folder / f"{self.verb}.log"
        self._known: set[psutil.Process] = set()
        self.start()

    def kill_now(self) -> None:
        """SIGKILL the driver and its JVM, leave the others alone, and start another driver."""
        self.processes("")
        for each in (*self.driver.children(), self.driver):
            with suppress(psutil.NoSuchProcess):
                if each is self.driver or "java" in each.name():
                    each.kill()
        self.driver.wait()
        self.start()


class Coordinator:
    """What the coordinator's file says."""

    claims = "tiering_claims"

    def __init__(self, folder: Path) -> None:
        self.path = folder.resolve() / COORDINATOR

    def count(self, query: str) -> int:
        """The one number of a query."""
        with closing(sqlite3.connect(f"file:{self.path}?mode=ro", uri=True, timeout=60)) as on:
            return int(on.execute(query).fetchone()[0])

    def segments(self) -> int:
        """Finished ones."""
        return self.count("SELECT count(*) FROM remote_segments WHERE state = 1")

    def rows(self) -> int:
        """Of batches."""
        return self.count("SELECT count(*) FROM runs")

    def lapse(self) -> None:
        """The job that holds the claim was silent for its lease, as far as the clock says."""
        with closing(sqlite3.connect(self.path, timeout=60)) as on, on:
            on.execute(f"UPDATE {self.claims} SET expires_ms = 0")

    def news(self) -> int:
        """A number that grows when the job has done something."""
        return self.segments()

    def away(self) -> None:
        """For a while no transaction can begin."""
        with closing(sqlite3.connect(self.path, timeout=60, isolation_level=None)) as on:
            on.execute("BEGIN IMMEDIATE")
            time.sleep(AWAY_SECONDS)


class Reader:
    """Reads the whole topic again and again; a record must be where it was before."""

    def __init__(self, bootstrap: str, topic: str = TOPIC) -> None:
        self._topic = topic
        self.rounds = 0
        self.wrong: list[str] = []
        self._seen: dict[tuple[int, int], bytes | None] = {}
        self._bootstrap = bootstrap
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        try:
            while not self._over.is_set():
                read(self._bootstrap, self._take, self._over.is_set, self._topic)
                self.rounds += 1
        except Stuck as fault:
            self.wrong.append(str(fault))

    def _take(self, message: Message, partition: int, offset: int) -> None:
        value = message.value()
        if self._seen.setdefault((partition, offset), value) != value:
            self.wrong.append(f"{self._topic}-{partition} at {offset} was another record before")

    def __enter__(self) -> Reader:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()


def read(
    bootstrap: str, take: Callable[[Message, int, int], None], is_over: Callable[[], bool],
    topic: str = TOPIC,
) -> None:  # fmt: skip
    """All partitions, from their beginning to their end. Raises Stuck."""
    begin = time.monotonic()
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True}
    with closing(Consumer({**settings, **QUIET})) as consumer:
        consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
        left = set(range(PARTITIONS))
        while left and not is_over():
            if time.monotonic() - begin > LIMIT_SECONDS:
                raise Stuck(f"no reader comes to the end of partitions {sorted(left)}")
            for message in consumer.consume(1_000, timeout=0.5):
                partition, offset, error = message.partition(), message.offset(), message.error()
                if partition is None or offset is None:
                    continue
                if error is None:
                    take(message, partition, offset)
                elif error.code() == KafkaError._PARTITION_EOF:
                    left.discard(partition)


def run(kills: int, seconds: float, folder: Path, say: Callable[[str], None]) -> None:
    """Rounds of kills until there were so many of each, or the time is over; then the verdict.
    Raises Stuck."""
    with LocalCluster(brokers=3, racks=RACKS, folder=folder, processes=True) as cluster:
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=-1, config=SETTINGS)
        (found,) = folder.rglob(COORDINATOR)
        coordinator = Coordinator(found.parent)
        job = Job(cluster.bootstrap_servers, found.parent)
        try:
            with Sender(cluster.bootstrap_servers) as sender:
                until(coordinator.segments, "nothing is tiered")
                with Reader(cluster.bootstrap_servers) as reader:
                    done = kill_all(kills, seconds, cluster, job, coordinator, say)
            until(lambda: not coordinator.rows(), "rows are left")
        finally:
            job.end()
        judge(cluster.bootstrap_servers, sender, reader)
        cluster_id = cluster.cluster_id
    store = f"file://{found.parent.resolve()}/{OBJECTS}"
    findings = asyncio.run(verified(coordinator, store, cluster_id))
    if findings:
        raise Stuck(f"the store and the coordinator do not agree: {findings[:3]}")
    say(f"{len(sender.places):,} records, {reader.rounds} readings, {coordinator.segments():,} "
        f"segments, {', '.join(f'{n} × {name}' for name, n in done.items())}: "
        "each record is at its offset once, and the store agrees with the coordinator")  # fmt: skip


def kill_all(
    kills: int, seconds: float, cluster: LocalCluster, job: Job, coordinator: Coordinator,
    say: Callable[[str], None], topic: str = TOPIC,
) -> dict[str, int]:  # fmt: skip
    """Break one after the other; how many of each. After each there must be new segments."""
    victims: dict[str, Callable[[int], None]] = {
        "executor": lambda _: job.kill(EXECUTOR),
        "Python worker": lambda _: job.kill(WORKER),
        "leader": lambda _: kill_one(cluster, topic),
        "controller": lambda _: kill_controller(cluster),
        "coordinator": lambda _: coordinator.away(),
        "driver": lambda number: kill_driver(number, job, coordinator),
    }
    begin, done = time.monotonic(), dict.fromkeys(victims, 0)
    for number in range(kills):
        for name, kill in victims.items():
            if time.monotonic() - begin > seconds:
                return done
            kill(number)
            before = coordinator.news()
            news = f"no segment is finished after this was broken: {name}"
            took = until(lambda before=before: coordinator.news() > before, news)
            done[name] += 1
            say(f"round {number + 1}: {name} broken; a new segment after {took:.1f} s")
    return done


def kill_controller(cluster: LocalCluster) -> None:
    """SIGKILL the active controller, and start it again."""
    kill_broker(cluster, cluster.controller())


def kill_driver(number: int, job: Job, coordinator: Coordinator) -> None:
    """The next job waits for the lease of this one, or takes its claim over at once."""
    job.kill_now()
    if number % 2 == 0:
        coordinator.lapse()
    else:
        time.sleep(LEASE_SECONDS)


def judge(bootstrap: str, sender: Sender, reader: Reader, topic: str = TOPIC) -> None:
    """Raises Stuck."""
    held: dict[tuple[int, int], int] = {}

    def take(message: Message, partition: int, offset: int) -> None:
        held[partition, offset] = int(message.value() or b"-1")

    read(bootstrap, take, lambda: False, topic)
    ends = [max((each[1] for each in held if each[0] == number), default=-1) + 1
            for number in range(PARTITIONS)]  # fmt: skip
    lost = [number for number, place in sender.places.items() if held.get(place) != number]
    twice = len(held) - len(set(held.values()))
    if sender.refused or lost or twice or sum(ends) != len(held) or reader.wrong:
        raise Stuck(
            f"{sender.refused} records were refused, {len(lost)} are not at their offsets, {twice} "
            f"are there twice, {sum(ends) - len(held)} offsets lack; {reader.wrong[:3]}"
        )


async def verified(of: Coordinator, url: str, cluster_id: str) -> list[str]:
    """What is damaged, with no broker running."""
    store = await open_objects(url)
    coordinator = await open_coordinator(f"sqlite://{of.path}", cluster_id)
    try:
        held = await read_store(store)
        found = (await verify(store, coordinator, held, is_whole=True)).findings
        found += (await verify_segments(store, coordinator, cluster_id, is_whole=True)).findings
        return [str(each) for each in found if each.kind.is_damage]
    finally:
        await coordinator.close()
        await store.close()


def main() -> int:
    """Parse the arguments and run; 1 when a record is lost or the job stands still."""
    parser = argparse.ArgumentParser(prog="python -m chaos.tiering", description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="of each kind (default 10)")
    parser.add_argument("--seconds", type=float, default=3_600, help="no kill after so long")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = Path(tempfile.mkdtemp(prefix="anabranch-chaos-tiering-"))
    try:
        run(arguments.kills, arguments.seconds, folder, lambda line: print(line, flush=True))
    except (ClusterError, Stuck) as fault:
        print(f"{fault}; the job's log is below {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
