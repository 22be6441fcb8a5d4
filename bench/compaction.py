"""Compacting a gigabyte while clients work: how fast, and what the clients notice.

A topic of one partition is filled with 1 KB records, a tenth of whose keys are the newest of their
key; it is then made compactable, and its cleaning has ended when the folder's
`cleaner-offset-checkpoint` names the partition. The rate is the bytes of the closed segments over
that time. Both servers have one cleaner thread, look for work every 100 ms and have no byte limit,
which is the default of both.

The clients are a producer (acks=all) and a consumer on another topic: a record every few
milliseconds, timed from when it was due until it was consumed, so that a stall counts for all that
were due in it.
"""

from __future__ import annotations

import threading
import time
from pathlib import Path

import lean
import workloads
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType
from confluent_kafka.cimpl import NewTopic
from scale import scaled, scaled_seconds
from servers import Server
from workloads import Sample

VALUE_BYTES = 1_000
RECORDS = 1_000_000
LIVE_SHARE = 10
"""One record in so many is the newest of its key."""
SEGMENT_BYTES = 100_000_000
QUICK_SEGMENT_BYTES = 10_000_000
QUIET_SECONDS = 8.0
PACE_SECONDS = 0.004
UNPACED = 100
"""First records, each due when the one before has come: they warm up client and server."""
WAIT_SECONDS = 180.0
CHECKPOINT = "cleaner-offset-checkpoint"
SETTINGS = {"log.cleaner.threads": "1", "log.cleaner.backoff.ms": "100"}
PACED_TOPIC = "paced"


def checkpointed(text: str, topic: str) -> int | None:
    """Where the cleaning of partition 0 of `topic` has come to, by a checkpoint file's text."""
    for line in text.splitlines()[2:]:
        name, _, place = line.partition(" ")
        if name == topic and place.split()[0] == "0":
            return int(place.split()[1])
    return None


def closed_bytes(folder: Path) -> int:
    """Bytes of all segments of a partition's folder but the newest."""
    return sum(path.stat().st_size for path in sorted(folder.glob("*.log"))[:-1])


def prepare(server: Server) -> None:
    """The topic of the clients that notice."""
    workloads.create(server, [PACED_TOPIC])


def fill(server: Server, topic: str) -> None:
    """Create a topic that is not cleaned yet, and write every key `LIVE_SHARE` times."""
    records = scaled(RECORDS)
    segment = SEGMENT_BYTES if records == RECORDS else QUICK_SEGMENT_BYTES
    config = {"cleanup.policy": "delete", "segment.bytes": str(segment)}
    admin = workloads.admin_of(server)
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(WAIT_SECONDS)
    workloads.await_leaders(admin, [topic], 1)
    write(server, topic)


def write(server: Server, topic: str) -> None:
    """Write every key `LIVE_SHARE` times."""
    records = scaled(RECORDS)
    producer = Producer({"bootstrap.servers": server.bootstrap, "acks": 1, **workloads.CLIENT})
    values = workloads.values_of(VALUE_BYTES)
    keys = records // LIVE_SHARE
    for number in range(records):
        key = b"key-%07d" % (number * 7919 % keys)
        while True:
            try:
                producer.produce(topic, values[number & 4095], key, partition=0)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(WAIT_SECONDS):
        raise SystemExit(f"{server.name}: records unsent")


def compact(server: Server, topic: str) -> float:
    """Make the topic compactable; seconds until its cleaning is checkpointed."""
    entries = [
        ConfigEntry(name, value, incremental_operation=AlterConfigOpType.SET)
        for name, value in (("cleanup.policy", "compact"), ("min.cleanable.dirty.ratio", "0.1"))
    ]
    resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=entries)
    checkpoint = server.folder / "data" / CHECKPOINT
    admin = workloads.admin_of(server)
    begin = time.perf_counter()
    admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)
    while time.perf_counter() - begin < WAIT_SECONDS:
        if checkpoint.exists() and checkpointed(checkpoint.read_text(), topic):
            return time.perf_counter() - begin
        time.sleep(0.01)
    raise SystemExit(f"{server.name}: {topic} was not cleaned within {WAIT_SECONDS:g} s")


class Paced:
    """A producer and a consumer with a record on its way every few milliseconds.

    A record's time begins when it was due, so `pace_seconds` must be more than one takes: else the
    figure is the length of a queue.
    """

    def __init__(
        self, server: Server, topic: str = PACED_TOPIC, pace_seconds: float = PACE_SECONDS
    ) -> None:
        self.taken_ms: list[float] = []
        self._topic, self._pace_seconds = topic, pace_seconds
        self._over = threading.Event()
        settings = {"bootstrap.servers": server.bootstrap, **workloads.CLIENT}
        self._producer = Producer({**settings, "acks": "all", "linger.ms": 0})
        self._consumer = Consumer(
            {**settings, "group.id": "paced", "enable.auto.commit": False, "fetch.wait.max.ms": 100}
        )
        end = self._consumer.get_watermark_offsets(TopicPartition(topic, 0), timeout=30)[1]
        self._consumer.assign([TopicPartition(topic, 0, end)])
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Paced:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()
        self._consumer.close()

    def _run(self) -> None:
        (value,) = workloads.values_of(100, 1)
        due = 0.0
        while not self._over.is_set():
            if len(self.taken_ms) <= UNPACED:
                due = time.perf_counter()
            self._producer.produce(self._topic, value, partition=0)
            self._producer.poll(0)
            if self._consumer.poll(30.0) is None:
                return
            now = time.perf_counter()
            self.taken_ms.append((now - due) * 1000)
            due += self._pace_seconds
            time.sleep(max(0.0, due - now))

    def p99_ms(self, since: int = 0) -> float:
        """The quantile of what was taken since then."""
        return lean.quantile(self.taken_ms[since:], 0.99)


def compaction(server: Server) -> Sample:
    """MB/s of cleaning, what is left, and the paced clients' p99 quiet and meanwhile."""
    topic = f"compacted-{time.monotonic_ns()}"
    folder = server.folder / "data" / f"{topic}-0"
    fill(server, topic)
    size = closed_bytes(folder)
    with Paced(server) as paced:
        while len(paced.taken_ms) < 3 * UNPACED:
            time.sleep(0.1)
        first = len(paced.taken_ms)
        time.sleep(scaled_seconds(QUIET_SECONDS))
        quiet, taken = paced.p99_ms(first), len(paced.taken_ms)
        before = server.cpu_seconds()
        seconds = compact(server, topic)
        cpu = server.cpu_seconds() - before
        busy = paced.p99_ms(taken)
        count = len(paced.taken_ms) - taken
    left = closed_bytes(folder)
    if count < 1 or left > size / 2:
        raise SystemExit(f"{server.name}: {left} of {size} bytes are left, {count} records paced")
    workloads.drop(server, topic)
    return Sample(
        {
            "MB/s": size / seconds / 1e6,
            "CPU s/GB": cpu / (size / 1e9),
            "left %": 100 * left / size,
            "p99 ms quiet": quiet,
            "p99 ms meanwhile": busy,
            "p99 over quiet": busy / quiet,
        }
    )
