"""`python -m chaos.mirror`: a mirror between two clusters, and kills of all that takes part.

What: two clusters of three brokers, a producer that goes on all the time, and `anabranch mirror
run` exactly once, with executors that are processes of their own. In each round the driver, an
executor, a Python worker, a leader of the source and a leader of the target get SIGKILL, one after
the other; after each, new records must arrive. At the end both ends are read: counts, order and
sums of each partition must be equal. A killed driver leaves its executors and workers behind: they
may go on, and must be fenced.
"""

from __future__ import annotations

import argparse
import os
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import psutil
import pyspark
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition

from anabranch.testing import ClusterError, LocalCluster

TOPIC, REMOTE = "mirrored", "east.mirrored"
PARTITIONS = 6
MASTER = "local-cluster[2,1,1024]"
"""Two executors, each a JVM of its own with one core and a gigabyte. Their logs lie beside PySpark,
in `work`."""
EXECUTOR, WORKER = "CoarseGrainedExecutorBackend", "pyspark.daemon"
PIECE = 100
PIECE_SECONDS = 0.1
LIMIT_SECONDS = 900.0
"""For the mirror to go on after a kill, on a machine that does much else."""
QUIET = {"log_level": 0, "error_cb": lambda _error: None}


class Stuck(Exception):
    """The mirror did not go on, or both ends differ; the text says which."""


class Sender:
    """Sends numbered records to all partitions until it is told to stop."""

    def __init__(self, bootstrap: str) -> None:
        self.sent = 0
        self.refused = 0
        self._over = threading.Event()
        settings = {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5}
        self._producer = Producer({**settings, **QUIET})
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over.wait(PIECE_SECONDS):
            for number in range(self.sent, self.sent + PIECE):
                self._producer.produce(
                    TOPIC, b"%d" % number, partition=number % PARTITIONS, on_delivery=self._noted
                )
            self.sent += PIECE
            self._producer.poll(0)

    def _noted(self, error: object, _message: object) -> None:
        self.refused += error is not None

    def __enter__(self) -> Sender:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(LIMIT_SECONDS)


class Mirror:
    """The job, started again after a kill of its driver; all its processes end with the block."""

    master = MASTER

    def __init__(self, file: Path) -> None:
        self._words = [sys.executable, "-m", "anabranch", "mirror", "run", str(file)]
        self._log = file.with_suffix(".log")
        self._known: set[psutil.Process] = set()
        self.start()

    def start(self) -> None:
        """Start it."""
        with open(self._log, "ab") as log:
            self.driver = psutil.Popen(
                [*self._words, "--master", self.master],
                stdout=log,
                stderr=log,
                start_new_session=True,
            )

    def processes(self, word: str) -> list[psutil.Process]:
        """Those of the running job that have this word in their command; of Python workers, those
        that a daemon has forked."""
        found = []
        with suppress(psutil.NoSuchProcess):
            for each in self.driver.children(recursive=True):
                self._known.add(each)
                with suppress(psutil.NoSuchProcess):
                    is_meant = any(word in part for part in each.cmdline())
                    if is_meant and (word != WORKER or WORKER in " ".join(each.parent().cmdline())):
                        found.append(each)
        return found

    def kill(self, word: str) -> None:
        """SIGKILL one of them, as soon as there is one."""
        until(lambda: self.processes(word), f"no {word} runs")
        with suppress(psutil.NoSuchProcess):
            random.choice(self.processes(word)).kill()

    def kill_driver(self) -> None:
        """SIGKILL the driver and its JVM, leave the others alone, and start another driver;
        return when that one has tasks."""
        self.processes("")
        jvm = [each for each in self.driver.children() if "java" in each.name()]
        for each in (*jvm, self.driver):
            each.kill()
        self.driver.wait()
        self.start()
        until(lambda: self.processes(WORKER), "the next driver has no tasks")

    def end(self) -> None:
        """SIGKILL everything that it has ever started."""
        self.processes("")
        for each in (self.driver, *self._known):
            with suppress(psutil.NoSuchProcess):
                each.kill()
        self.driver.wait()
        shutil.rmtree(Path(pyspark.__file__).with_name("work"), ignore_errors=True)


def until(condition: Callable[[], object], what: str, seconds: float = LIMIT_SECONDS) -> float:
    """Wait for something; the seconds that took. Raises Stuck."""
    begin = time.monotonic()
    while not condition():
        if time.monotonic() - begin > seconds:
            raise Stuck(f"{what} after {seconds:.0f} s")
        time.sleep(0.2)
    return time.monotonic() - begin


def consumer_of(bootstrap: str) -> Consumer:
    """A reader of committed records."""
    settings = {"bootstrap.servers": bootstrap, "group.id": "judge", "enable.partition.eof": True}
    return Consumer({**settings, "isolation.level": "read_committed", **QUIET})


def ends(consumer: Consumer) -> int:
    """The sum of the committed ends of the target; 0 while one is not known."""
    try:
        places = [TopicPartition(REMOTE, number) for number in range(PARTITIONS)]
        return sum(consumer.get_watermark_offsets(each, timeout=5.0)[1] for each in places)
    except KafkaException:
        return 0


def read(bootstrap: str, topic: str) -> list[list[int]]:
    """The numbers of each partition, in their order."""
    consumer = consumer_of(bootstrap)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    found: list[list[int]] = [[] for _ in range(PARTITIONS)]
    left, begin = set(range(PARTITIONS)), time.monotonic()
    while left and time.monotonic() - begin < LIMIT_SECONDS:
        message = consumer.poll(1.0)
        if message is None:
            continue
        number = message.partition()
        assert number is not None
        if message.error() is None:
            found[number].append(int(message.value() or b"-1"))
        else:
            left.discard(number)
    consumer.close()
    return found


@contextmanager
def clusters() -> Iterator[tuple[LocalCluster, LocalCluster]]:
    """East and west."""
    with (
        LocalCluster(brokers=3, processes=True) as east,
        LocalCluster(brokers=3, processes=True) as west,
    ):
        east.create_topic(TOPIC, partitions=PARTITIONS)
        yield east, west


def kill_leader(cluster: LocalCluster, topic: str) -> None:
    """SIGKILL the leader of a partition, and start it again."""
    kill_broker(cluster, cluster.leader(topic, random.randrange(PARTITIONS)))


def kill_broker(cluster: LocalCluster, broker_id: int) -> None:
    """SIGKILL a broker, and start it again, however long that takes beside Spark."""
    cluster.kill(broker_id)
    time.sleep(PIECE_SECONDS)  # the others elect while it starts
    cluster.start_broker(broker_id, timeout_seconds=LIMIT_SECONDS)


def run(kills: int, seconds: float, folder: Path, say: Callable[[str], None]) -> None:
    """Rounds of kills until there were so many of each, or the time is over; then the verdict.
    Raises Stuck."""
    with clusters() as (east, west):
        file = folder / "mm2.properties"
        file.write_text(properties(east.bootstrap_servers, west.bootstrap_servers))
        consumer, mirror = consumer_of(west.bootstrap_servers), Mirror(file)
        victims: dict[str, Callable[[], None]] = {
            "driver": mirror.kill_driver,
            "executor": lambda: mirror.kill(EXECUTOR),
            "Python worker": lambda: mirror.kill(WORKER),
            "source leader": lambda: kill_leader(east, TOPIC),
            "target leader": lambda: kill_leader(west, REMOTE),
        }
        try:
            with Sender(east.bootstrap_servers) as sender:
                until(lambda: ends(consumer), "nothing is mirrored")
                done = kill_all(kills, seconds, victims, consumer, say)
            if sender.refused:
                raise Stuck(f"{sender.refused} records were refused by the source")
            source = read(east.bootstrap_servers, TOPIC)
            count = sum(map(len, source))
            until(lambda: len_of(read(west.bootstrap_servers, REMOTE)) >= count, "records miss")
            judge(source, read(west.bootstrap_servers, REMOTE))
        finally:
            mirror.end()
    say(f"{count:,} records, {', '.join(f'{n} × {name}' for name, n in done.items())}: "
        "counts, order and sums are equal")  # fmt: skip


def kill_all(
    kills: int, seconds: float, victims: dict[str, Callable[[], None]], consumer: Consumer,
    say: Callable[[str], None],
) -> dict[str, int]:  # fmt: skip
    """Kill one after the other; how many of each. After each kill new records must arrive."""
    begin, done = time.monotonic(), dict.fromkeys(victims, 0)
    for number in range(kills):
        for name, kill in victims.items():
            if time.monotonic() - begin > seconds:
                return done
            kill()
            took = await_news(consumer, name)
            done[name] += 1
            say(f"round {number + 1}: {name} killed; new records after {took:.1f} s")
    return done


def await_news(consumer: Consumer, name: str) -> float:
    """Wait until records arrive that had not arrived by now; the seconds that took."""
    begin, before = time.monotonic(), 0
    while not before:
        before = ends(consumer)
    until(lambda: ends(consumer) > before, f"nothing comes after a kill: {name}")
    return time.monotonic() - begin


def len_of(found: list[list[int]]) -> int:
    """Records in all partitions."""
    return sum(map(len, found))


def judge(source: list[list[int]], target: list[list[int]]) -> None:
    """Counts, order and sums of each partition. Raises Stuck."""
    for number, (sent, arrived) in enumerate(zip(source, target, strict=True)):
        if sent != arrived:
            twice = len(arrived) - len(set(arrived))
            raise Stuck(
                f"partition {number}: {len(sent)} records with sum {sum(sent)} at the source, "
                f"{len(arrived)} with sum {sum(arrived)} on the target: {twice} came twice, "
                f"{len(set(sent) - set(arrived))} are missing; order: {sorted(arrived) == arrived}"
            )


def properties(east: str, west: str) -> str:
    """The mirror's file."""
    keys = {
        "clusters": "east, west",
        "east.bootstrap.servers": east,
        "west.bootstrap.servers": west,
        "east->west.enabled": "true",
        "topics": TOPIC,
        "replication.factor": "3",
        "east.consumer.isolation.level": "read_committed",
        "west.exactly.once.source.support": "enabled",
        "refresh.topics.interval.seconds": "1",
        "wave.seconds": "20",
    }
    return "".join(f"{key} = {text}\n" for key, text in keys.items())


def main() -> int:
    """Parse the arguments and run; 1 when the ends differ or the mirror stands still."""
    parser = argparse.ArgumentParser(prog="python -m chaos.mirror", description=__doc__)
    parser.add_argument("--kills", type=int, default=10, help="of each kind (default 10)")
    parser.add_argument("--seconds", type=float, default=3_600, help="no kill after so long")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    folder = Path(tempfile.mkdtemp(prefix="anabranch-chaos-mirror-"))
    try:
        run(arguments.kills, arguments.seconds, folder, lambda line: print(line, flush=True))
    except (ClusterError, Stuck) as fault:
        print(f"{fault}; the job's log is in {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
