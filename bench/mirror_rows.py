"""The rows of a mirror: MirrorMaker 2 and ours between the same two Apache Kafka nodes.

Rates are taken between the first tenth and the end, so that the start of a JVM or of Spark is not
in them. Each round mirrors everything from the start into topics of its own.
"""

from __future__ import annotations

import statistics
import subprocess
import threading
import time
from collections.abc import Callable
from typing import Any

import workloads
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, Producer, TopicPartition
from mirror_pair import PAIRS, Ends, Maker, Nodes, Pair, Program
from mirrors import CLASSES
from row import MB, Row, Target, less, more, own_less
from scale import scaled, scaled_seconds
from servers import ROOT, Server
from workloads import Sample

PARTITIONS = 12
FIRST = 0.1
STEADY_BYTES_PER_SECOND = 10 * MB
STEADY_SECONDS, SETTLE_SECONDS = 20.0, 8.0
GROUPS, GROUP_PARTITIONS = 200, 50
STEPS_PER_SECOND = 20


def _fill(topic: str, value_bytes: int, total_bytes: int, **producer: Any) -> Callable[..., None]:
    """Write a topic once; values repeat themselves by half, so that codecs have work."""

    def fill(_server: Server) -> None:
        if topic in Nodes.filled:
            return
        workloads.create(Nodes.east, [topic], PARTITIONS)
        halves = workloads.values_of(value_bytes // 2)
        values = [half + half[:1] * (value_bytes - len(half)) for half in halves]
        _send(topic, values, scaled(total_bytes) // value_bytes, producer)
        Nodes.filled.add(topic)

    return fill


def _send(topic: str, values: list[bytes], count: int, settings: dict[str, Any]) -> None:
    failures = workloads.Failures()
    sender = Producer(
        {
            "bootstrap.servers": Nodes.east.bootstrap, "acks": 1, "linger.ms": 50,
            "queue.buffering.max.messages": 500_000, "batch.num.messages": 1_000_000,
            "delivery.report.only.error": True, "on_delivery": failures,
            **settings, **workloads.CLIENT,
        }
    )  # fmt: skip
    for number in range(count):
        while True:
            try:
                sender.produce(topic, values[number % len(values)], partition=number % PARTITIONS)
                break
            except BufferError:
                sender.poll(0.01)
    if sender.flush(workloads.WAIT_SECONDS) or failures.count:
        raise SystemExit(f"records of {topic} were not written")


def _throughput(topic: str, value_bytes: int, total_bytes: int) -> Callable[[Any], Sample]:
    def measure(pair: Pair) -> Sample:
        count = scaled(total_bytes) // value_bytes
        with pair.mirroring(topic) as program, program.watched() as peaks:
            ends = Ends(program.remote(topic), PARTITIONS)
            begin = ends.wait(int(count * FIRST), program)
            had, cpu = ends.sum(), program.cpu_seconds()
            if had >= count:
                raise SystemExit(f"{count} records are too few to measure with")
            nodes = Nodes.east.cpu_seconds() + Nodes.west.cpu_seconds()
            seconds = ends.wait(count, program) - begin
            cpu = program.cpu_seconds() - cpu
            nodes = Nodes.east.cpu_seconds() + Nodes.west.cpu_seconds() - nodes
        gigabytes = (count - had) * value_bytes / 1e9
        workloads.drop(Nodes.west, program.remote(topic))
        rates = {"MB/s": gigabytes * 1e3 / seconds, "CPU s/GB": cpu / gigabytes}
        return Sample({**rates, "nodes' CPU s/GB": nodes / gigabytes, **peaks})

    return measure


class Steady:
    """Sends records of 1 KB at a steady rate while a block runs; each has its number."""

    def __init__(self, topic: str) -> None:
        self.sent = 0
        self._topic = topic
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        sender = Producer(
            {"bootstrap.servers": Nodes.east.bootstrap, "acks": 1, "linger.ms": 5,
             **workloads.CLIENT}
        )  # fmt: skip
        values, due = workloads.values_of(988), time.perf_counter()
        piece = scaled(STEADY_BYTES_PER_SECOND) // 1_000 // STEPS_PER_SECOND
        while not self._over.is_set():
            for _ in range(piece):
                number = self.sent
                value = b"%012d" % number + values[number % len(values)]
                sender.produce(self._topic, value, partition=number % PARTITIONS)
                self.sent += 1
            sender.poll(0)
            due += 1 / STEPS_PER_SECOND
            time.sleep(max(0.0, due - time.perf_counter()))
        sender.flush(workloads.WAIT_SECONDS)

    def go_on(self) -> None:
        """Wait until each partition has got another record."""
        until = self.sent + PARTITIONS
        while self.sent < until:
            time.sleep(1 / STEPS_PER_SECOND)

    def __enter__(self) -> Steady:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()


def _reader(bootstrap: str) -> Consumer:
    return Consumer(
        {
            "bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False,
            "isolation.level": "read_committed", "fetch.wait.max.ms": 20, **workloads.CLIENT,
        }
    )  # fmt: skip


def _ages(*, exactly_once: bool) -> Callable[[Any], Sample]:
    """How old records are, by the time that their producer gave them, when a reader of the target
    gets them."""

    def measure(pair: Pair) -> Sample:
        topic = f"steady-{Nodes.runs}"
        workloads.create(Nodes.east, [topic], PARTITIONS)
        with pair.mirroring(topic, exactly_once=exactly_once) as program, Steady(topic):
            Ends(program.remote(topic), PARTITIONS).wait(1, program)
            time.sleep(SETTLE_SECONDS)
            cpu, begin = program.cpu_seconds(), time.perf_counter()
            ages = _observed(program.remote(topic), scaled_seconds(STEADY_SECONDS))
            cpu = (program.cpu_seconds() - cpu) / (time.perf_counter() - begin)
        for node, name in ((Nodes.east, topic), (Nodes.west, program.remote(topic))):
            workloads.drop(node, name)
        points = statistics.quantiles(ages, n=100)
        return Sample({"p50 ms": points[49], "p99 ms": points[98], "cores": cpu})

    return measure


def _observed(topic: str, seconds: float) -> list[float]:
    consumer = _reader(Nodes.west.bootstrap)
    places = [TopicPartition(topic, number) for number in range(PARTITIONS)]
    for each in places:
        each.offset = consumer.get_watermark_offsets(each, timeout=30)[1]
    consumer.assign(places)
    ages: list[float] = []
    until = time.perf_counter() + seconds
    while time.perf_counter() < until:
        messages = consumer.consume(500, timeout=0.02)
        now_ms = time.time() * 1e3
        ages += [now_ms - each.timestamp()[1] for each in messages if each.error() is None]
    consumer.close()
    if len(ages) < 100:
        raise SystemExit(f"only {len(ages)} records of {topic} came")
    return ages


def _checkpoints(pair: Pair) -> Sample:
    """Groups commit at the source while it is mirrored: how long until each has its checkpoints."""
    topic, groups = f"grouped-{Nodes.runs}", scaled(GROUPS)
    workloads.create(Nodes.east, [topic], GROUP_PARTITIONS)
    sender = Producer({"bootstrap.servers": Nodes.east.bootstrap, **workloads.CLIENT})
    for number in range(GROUP_PARTITIONS * 10):
        sender.produce(topic, b"%d" % number, partition=number % GROUP_PARTITIONS)
    sender.flush(workloads.WAIT_SECONDS)
    names = {"groups": f"{topic}-.*"}
    with pair.mirroring(topic, more=names) as program:
        ends = Ends(program.remote(topic), GROUP_PARTITIONS)
        ends.wait(GROUP_PARTITIONS * 10, program)
        time.sleep(SETTLE_SECONDS)  # its syncs are written
        offsets = dict.fromkeys(range(GROUP_PARTITIONS), 10)
        for number in range(groups):
            _commit(f"{topic}-{number}", topic, offsets)
        begin = time.perf_counter()
        found = Ends(program.remote("checkpoints.internal"), 1)
        seconds = found.wait(groups * GROUP_PARTITIONS, program) - begin
    return Sample({"seconds": seconds})


def _commit(group: str, topic: str, offsets: dict[int, int]) -> None:
    """Give an empty group its offsets; a coordinator that has just begun refuses them."""
    places = [TopicPartition(topic, *each) for each in offsets.items()]
    until = time.perf_counter() + workloads.WAIT_SECONDS
    admin = workloads.admin_of(Nodes.east)  # its futures end with it
    while time.perf_counter() < until:
        asked = admin.alter_consumer_group_offsets([ConsumerGroupTopicPartitions(group, places)])
        (found,) = (each.result(30) for each in asked.values())
        if not any(each.error for each in found.topic_partitions):
            return
    raise SystemExit(f"offsets of {group} are refused")


def _failover(pair: Pair) -> Sample:
    """A group stops in mid-stream and goes on at the target: what it reads again, and what it never
    reads. MirrorMaker 2's own client translates its checkpoints; ours is asked for the group."""
    topic = f"stream-{Nodes.runs}"
    group = f"{topic}-readers"
    workloads.create(Nodes.east, [topic], PARTITIONS)
    with pair.mirroring(topic, more={"groups": group}) as program:
        with Steady(topic) as stream:
            Ends(program.remote(topic), PARTITIONS).wait(1, program)
            time.sleep(SETTLE_SECONDS)
            read = _read_on(topic, scaled_seconds(STEADY_SECONDS))
            stream.go_on()
        _commit(group, topic, read)
        time.sleep(SETTLE_SECONDS)  # the last records arrive, and checkpoints are written
        there = _there(pair, program, topic, group)
    again = skipped = 0
    for partition, offset in read.items():
        at = _number(Nodes.east, topic, partition, offset)
        moved = _number(Nodes.west, program.remote(topic), partition, there.get(partition, 0))
        distance = (at - moved) // PARTITIONS
        again, skipped = again + max(0, distance), skipped + max(0, -distance)
    return Sample({"read again": float(again), "skipped": float(skipped)})


def _read_on(topic: str, seconds: float) -> dict[int, int]:
    """Read the stream, and stop in the middle of it; where."""
    consumer = _reader(Nodes.east.bootstrap)
    consumer.assign([TopicPartition(topic, number, 0) for number in range(PARTITIONS)])
    read: dict[int, int] = {}
    until = time.perf_counter() + seconds
    while time.perf_counter() < until or len(read) < PARTITIONS:
        for each in consumer.consume(500, timeout=0.1):
            read[each.partition()] = each.offset() + 1
    consumer.close()
    return read


def _number(node: Server, topic: str, partition: int, offset: int) -> int:
    """The number of the record at an offset."""
    consumer = _reader(node.bootstrap)
    consumer.assign([TopicPartition(topic, partition, offset)])
    message = consumer.poll(30)
    consumer.close()
    if message is None or message.error():
        raise SystemExit(f"{topic}-{partition} has no record at {offset}")
    return int(message.value()[:12])


def _there(pair: Pair, program: Program, topic: str, group: str) -> dict[int, int]:
    """Where the group goes on."""
    if not isinstance(pair, Maker):
        from anabranch.pipelines.mirror.translation import translate

        return {partition: at for (_, partition), at in translate(program.file, group).items()}
    reader = ROOT / "compat" / "clients" / "MirrorReader.java"
    words = ["java", "-cp", CLASSES, reader, Nodes.west.bootstrap, program.alias, group]
    done = subprocess.run(list(map(str, words)), capture_output=True, text=True, check=True)
    line = done.stdout.partition("translated: {")[2].partition("}\n")[0]
    found = {}
    for each in line.split(f"{program.remote(topic)}-")[1:]:
        partition, _, rest = each.partition("=OffsetAndMetadata{offset=")
        found[int(partition)] = int(rest.partition(",")[0])
    return found


def _rate_row(name: str, what: str, value_bytes: int, total_bytes: int,
              targets: dict[str, Target], **producer: Any) -> Row:  # fmt: skip
    return Row(
        name,
        f"{what}, {PARTITIONS} partitions, {total_bytes // MB} MB",
        _throughput(name, value_bytes, total_bytes),
        targets,
        servers=PAIRS,
        prepare=_fill(name, value_bytes, total_bytes, **producer),
        warm_up=False,
        rounds_at_most=3,
    )


def _pair_row(name: str, what: str, measure: Callable[[Any], Sample],
              targets: dict[str, Target]) -> Row:  # fmt: skip
    return Row(name, what, measure, targets, servers=PAIRS, warm_up=False, rounds_at_most=3)


QUARTER = {"MB/s": more(3), "CPU s/GB": less(1 / 4)}
AGES = {"p50 ms": less(1), "p99 ms": less(2)}
MIRROR_ROWS = [
    _rate_row("mirror-100b", "mirror 100 B, batches of 64 KB and more", 100, 300 * MB,
              {"MB/s": more(8)}, **{"batch.size": 100_000}),
    _rate_row("mirror-100b-2kb", "mirror 100 B, 2 KB batches", 100, 150 * MB,
              {"MB/s": more(3)}, **{"batch.size": 2_048}),
    _rate_row("mirror-1k", "mirror 1 KB", 1_000, 600 * MB, QUARTER, **{"batch.size": 100_000}),
    _rate_row("mirror-1k-lz4", "mirror 1 KB, lz4", 1_000, 600 * MB, QUARTER,
              **{"batch.size": 100_000, "compression.type": "lz4"}),
    _pair_row("mirror-age", "record age at the target, steady 10 MB/s, at least once",
              _ages(exactly_once=False), AGES),
    _pair_row("mirror-age-once", "record age at the target, steady 10 MB/s, exactly once",
              _ages(exactly_once=True), AGES),
    _pair_row("mirror-checkpoints",
              f"{GROUPS} groups × {GROUP_PARTITIONS} partitions commit: until all have checkpoints",
              _checkpoints, {"seconds": less(1)}),
    _pair_row("mirror-failover", "planned failover in mid-stream, 10 MB/s", _failover,
              {"read again": own_less(0), "skipped": own_less(0)}),
]  # fmt: skip
"""Each round is a run of either program from its start."""
