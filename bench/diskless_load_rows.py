"""More rows of diskless topics: beside the raw store, at half the ceiling, cold, engines, racks.

Those of the data path one by one are in diskless_rows.py, which has the servers.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from contextlib import suppress
from urllib.request import urlopen

import diskless_engines
import lean
import outage
import wiped
import workloads
from compaction import Paced
from confluent_kafka import KafkaException, Message, Producer
from confluent_kafka.cimpl import NewTopic
from diskless_engines import PostgresEngine, SqliteEngine
from diskless_rows import (
    ALONE,
    BESIDE_CLASSIC,
    CONSUMED_BYTES,
    CONSUMED_TOPIC,
    DisklessTrio,
    fill,
    produced,
)
from row import Row, more, own_less, own_more
from scale import scaled
from servers import Server, free_port
from trio import Trio
from workloads import CLIENT, Sample

LOAD_SECONDS = 10.0
PARTITIONS = 12
EVERY = 20
"""Of so many records one is timed."""
RACKED_PARTITIONS, TOPIC_PARTITIONS = 100_000, 5_000
SHUFFLE_SECONDS = 120.0
RACKED_PACE_SECONDS = 0.02
"""A diskless record takes up to 8 ms from end to end on a quiet machine."""
SCRAPE_SECONDS = 0.25
"""Between two looks at the backlog. A page of metrics takes its node some milliseconds, for which a
client waits: so nobody looks before the pace lets the moves end."""
MOVES_PER_SECOND = 4_000
"""What a controller makes, which is less than diskless.managed.rf.max.moves.per.sec allows."""
BACKLOG = "kafka_controller_diskless_reassignment_backlog"


def beside_store(server: Server) -> Sample:
    """MB/s of producing beside that of storing the same objects without a broker.

    The raw rate needs no client, the other one does: so the CPU seconds of all three are told, and
    the rate at which client and store alone would keep all processors busy."""
    assert isinstance(server, DisklessTrio)
    known = set(server.objects.rglob("*-*"))
    begin = time.process_time()
    figures = produced(server).figures
    client = time.process_time() - begin
    sizes = [each.stat().st_size for each in set(server.objects.rglob("*-*")) - known]
    objects = [each for each in sizes if each > 100]
    raw, store = diskless_engines.raw_rate(server.folder / "raw", objects)
    client /= sum(objects) / 1e9
    return Sample(
        {
            "MB/s": figures["MB/s"],
            "raw MB/s": raw,
            "of the raw rate": figures["MB/s"] / raw,
            "CPU s/GB": figures["CPU s/GB"],
            "client's CPU s/GB": client,
            "store's CPU s/GB": store,
            "MB/s if brokers cost nothing": (os.cpu_count() or 1) * 1000 / (client + store),
        }
    )


def half_load(server: Server) -> Sample:
    """Milliseconds from handing over a record to its acknowledgement at half the ceiling, through
    connections that are open."""
    topic = f"half-{time.monotonic_ns()}"
    workloads.create(server, [topic], PARTITIONS)
    total_bytes = scaled(150_000_000)
    ceiling = total_bytes / workloads.send(
        server, topic, value_bytes=1000, total_bytes=total_bytes, batch_bytes=None,
        partitions=PARTITIONS,
    )  # fmt: skip
    taken = sorted(_paced(server, topic, ceiling / 2))
    workloads.drop(server, topic)
    return Sample(
        {
            "MB/s": ceiling / 2e6,
            "p50 ms": lean.quantile(taken, 0.5),
            "p99 ms": lean.quantile(taken, 0.99),
        }
    )


def _paced(server: Server, topic: str, bytes_per_second: float) -> list[float]:
    """Latencies in milliseconds of some of the records that are sent at a rate. A record of each
    partition goes before: without it the first hundredth of the time waits for connections."""
    taken: list[float] = []
    failures = workloads.Failures()

    def told(fault: object, message: Message) -> None:
        if fault is not None:
            failures(fault, message)
        taken.append(message.latency() * 1000)

    producer = Producer(
        {"bootstrap.servers": server.bootstrap, "acks": server.acks, "linger.ms": 5, **CLIENT}
    )
    values = workloads.values_of(1000)
    for partition in range(PARTITIONS):
        producer.produce(topic, values[0], partition=partition)
    producer.flush(workloads.WAIT_SECONDS)
    begin, number = time.perf_counter(), 0
    while (passed := time.perf_counter() - begin) < LOAD_SECONDS:
        for _ in range(max(0, int(passed * bytes_per_second / 1000) - number)):
            when = told if number % EVERY == 0 else None
            producer.produce(
                topic, values[number & 4095], partition=number % PARTITIONS, on_delivery=when
            )
            number += 1
            if number % 100 == 0:
                producer.poll(0)
        producer.poll(0.001)
    if producer.flush(workloads.WAIT_SECONDS) or failures.count:
        raise SystemExit(f"{server.name}: {failures.count} records refused")
    return taken


def cold(server: Server) -> Sample:
    """Reading a topic with brokers that have just started: nothing is cached in them."""
    assert isinstance(server, Trio)
    for each in server.nodes.values():
        each.kill()
    server.launch()
    server.await_port()
    server.settle()
    outage.await_true(lambda: _is_readable(server), "not readable", 60.0)
    return workloads.consume(
        server, CONSUMED_TOPIC, value_bytes=1000, total_bytes=scaled(CONSUMED_BYTES)
    )


def _is_readable(server: Server) -> bool:
    """Whether there is an end: a leader just elected does not know its high watermark yet."""
    with suppress(KafkaException):
        return workloads.ends_of(server, CONSUMED_TOPIC, 1) > 0
    return False


def _is_served(server: Server, topic: str) -> bool:
    """Whether its leader has followed the metadata so far: 100,000 others come before it."""
    with suppress(KafkaException):
        return workloads.ends_of(server, topic, 1) >= 0
    return False


class Racked(DisklessTrio):
    """Three nodes in racks a, b and c; the third is not started before it is called."""

    def __init__(self, *words: object, **fields: object) -> None:
        super().__init__(*words, **fields)  # type: ignore[arg-type]
        self.http = {number: free_port() for number in self.nodes}
        for number, each in self.nodes.items():
            each.settings |= {
                "broker.rack": "abc"[number - 1],
                "http.listener": f"127.0.0.1:{self.http[number]}",
            }
        self.last = self.nodes[3]

    def launch(self) -> None:
        """Start the first two."""
        self.nodes = {1: self.nodes[1], 2: self.nodes[2]}
        super().launch()

    def settle(self) -> None:
        """Wait until both are brokers of the cluster."""
        admin = workloads.admin_of(self)
        outage.await_true(
            lambda: len(admin.list_topics(timeout=10).brokers) == 2, "two brokers", 60.0
        )

    def begin_last(self) -> None:
        """The node of the third rack."""
        self.nodes[3] = self.last
        self.last.launch()

    def backlog(self) -> int:
        """Partitions that the active controller has still to look at or to change."""
        for number in self.nodes:
            with suppress(OSError):
                address = f"http://127.0.0.1:{self.http[number]}/metrics"
                with urlopen(address, timeout=30) as answer:
                    for line in answer.read().decode().splitlines():
                        if line.startswith(f"{BACKLOG} "):
                            return int(float(line.split()[1]))
        return -1


def racks(server: Server) -> Sample:
    """Seconds until each of 100,000 partitions has a replica in a rack that came, and what clients
    saw."""
    assert isinstance(server, Racked)
    server.start()
    server.settle()
    admin = workloads.admin_of(server)
    count = scaled(RACKED_PARTITIONS)
    for number in range(0, count, TOPIC_PARTITIONS):
        topic = NewTopic(f"racked-{number}", min(TOPIC_PARTITIONS, count - number), -1)
        for future in admin.create_topics([topic], request_timeout=120).values():
            future.result(130)
    workloads.create(server, ["paced"])
    outage.await_true(lambda: _is_served(server, "paced"), "its leader does not serve it", 60.0)
    with Paced(server, "paced", RACKED_PACE_SECONDS) as paced:
        quiet, taken = wiped.quiet_p99_ms(paced), len(paced.taken_ms)
        server.begin_last()
        begin = _first_move(server)
        time.sleep(count / MOVES_PER_SECOND)
        _await_backlog(server, lambda backlog: backlog == 0, "partitions wait")
        seconds = time.perf_counter() - begin
        busy = paced.p99_ms(taken)
    _check_racks(server)
    return Sample({"seconds": seconds, **wiped.clients_figures(quiet, busy)})


def _await_backlog(server: Racked, wanted: Callable[[int], bool], sentence: str) -> None:
    outage.await_true(
        lambda: wanted(server.backlog()), sentence, SHUFFLE_SECONDS, every_seconds=SCRAPE_SECONDS
    )


def _first_move(server: Racked) -> float:
    """When the controller has found the new rack."""
    _await_backlog(server, lambda backlog: backlog > 0, "the rack was not found")
    return time.perf_counter()


def _check_racks(server: Racked) -> None:
    """After the measurement, as this client shares a process with the one that is timed."""
    topics = workloads.admin_of(server).list_topics(timeout=120).topics
    for name, topic in topics.items():
        short = [each for each in topic.partitions.values() if len(each.replicas) < 3]
        if name.startswith("racked") and short:
            raise SystemExit(f"{name} has partitions without a replica in the new rack")


DISKLESS_LOAD_ROWS = [
    Row(
        "diskless-beside-store",
        "diskless beside the raw rate of its store: the same objects without a broker, 150 MB",
        beside_store,
        {"of the raw rate": own_more(0.6)},
        servers=ALONE,
        written_bytes=150_000_000,
    ),
    Row(
        "diskless-half-load",
        "half of what it takes at most, 50 ms between objects, 10 s: until the acknowledgement",
        half_load,
        {"p99 ms": own_less(100)},
        servers=ALONE,
        settings={"diskless.produce.commit.interval.ms": "50"},
    ),
    Row(
        "diskless-consume-cold",
        "1 KB from brokers that have just started, beside a classic topic, 200 MB",
        cold,
        {"MB/s": more(0.4)},
        servers=BESIDE_CLASSIC,
        prepare=fill,
    ),
    Row(
        "diskless-three-committers",
        "three processes that commit objects of 12 partitions on one SQLite file, 5 s",
        diskless_engines.three,
        {"slowest over fastest": own_more(0.5), "longest ms": own_less(250)},
        servers={"anabranch": SqliteEngine},
    ),
    Row(
        "diskless-coordinator-sqlite",
        "commits of 100 partitions on SQLite, and one of 10,000 beside one of 1,000",
        diskless_engines.rates,
        {"growth": own_less(1.5)},
        servers={"anabranch": SqliteEngine},
    ),
    Row(
        "diskless-coordinator-postgres",
        "the same on PostgreSQL",
        diskless_engines.rates,
        {"growth": own_less(1.5)},
        servers={"anabranch": PostgresEngine},
    ),
    Row(
        "diskless-new-rack",
        f"{RACKED_PARTITIONS:,} diskless partitions get a replica in a rack that comes",
        racks,
        {"seconds": own_less(30), "p99 over quiet": own_less(2)},
        servers={"anabranch": Racked},
        fresh=True,
        warm_up=False,
        rounds_at_most=1,
    ),
]
"""In the order in which a run takes them."""
