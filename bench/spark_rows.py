"""The rows of the DataFrame source and sink beside Spark's own Kafka connector, in one session.

Records are written once by confluent-kafka. Each round reads, or writes, all of them; the warm-up
round is the first of its kind in this session, and its figures are printed, too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from typing import Any

import spark_side
import workloads
from confluent_kafka import Producer
from row import Row, Target, less, more, own_less
from scale import scaled
from servers import Server
from spark_jobs import JOB_ROWS
from workloads import Sample

PARTITIONS = 2
RECORDS = 4_000_000
RECORDS_1K = 400_000
WRITTEN = 2_000_000
STEADY_PER_SECOND = 100_000
STEADY_SECONDS = 20
STEPS_PER_SECOND = 10
MB = 1_000_000


def _topic(codec: str, value_bytes: int) -> str:
    return f"measured-{codec}-{value_bytes}"


def _fill(codec: str, value_bytes: int, records: int) -> Callable[[Server], None]:
    """Write the records once; values repeat themselves by half, so that codecs have work."""

    def fill(server: Server) -> None:
        topic = _topic(codec, value_bytes)
        workloads.create(server, [topic], PARTITIONS)
        halves = workloads.values_of(value_bytes // 2)
        values = [half + half[:1] * (value_bytes - len(half)) for half in halves]
        Sender(server, topic, codec).send(values, scaled(records))

    return fill


class Sender:
    """Sends records to all partitions in turn, in batches of up to a megabyte."""

    def __init__(self, server: Server, topic: str, codec: str = "none") -> None:
        self._topic = topic
        self._failures = workloads.Failures()
        self._sent = 0
        self._producer = Producer(
            {
                "bootstrap.servers": server.bootstrap, "acks": 1, "linger.ms": 20,
                "compression.type": codec, "batch.size": 1_000_000,
                "batch.num.messages": 1_000_000, "queue.buffering.max.messages": 500_000,
                "delivery.report.only.error": True, "on_delivery": self._failures,
                **workloads.CLIENT,
            }
        )  # fmt: skip

    def send(self, values: list[bytes], count: int) -> None:
        """Send so many; returns when all are acknowledged."""
        for number in range(self._sent, self._sent + count):
            value = values[number % len(values)]
            while True:
                try:
                    self._producer.produce(self._topic, value, partition=number % PARTITIONS)
                    break
                except BufferError:
                    self._producer.poll(0.01)
        self._sent += count
        if self._producer.flush(workloads.WAIT_SECONDS) or self._failures.count:
            raise SystemExit(f"records of {self._topic} were not written")


def _read(
    codec: str, value_bytes: int, records: int, options: Mapping[str, str] | None = None
) -> Callable[[Server], Sample]:
    """All columns of all records, to a sink that forgets them."""

    def measure(server: Server) -> Sample:
        ready = {
            "rows": str(scaled(records)), "valuebytes": str(value_bytes),
            "partitions": str(PARTITIONS),
        }  # fmt: skip
        given = ready if spark_side.connector_of(server) == "ceiling" else options
        frame = spark_side.reader(server, _topic(codec, value_bytes), given)
        with spark_side.worker_memory() as peak:
            begin = time.perf_counter()
            spark_side.to_noop(frame)
            seconds = time.perf_counter() - begin
        figures = {"rows/s": scaled(records) / seconds}
        figures["MB/s"] = scaled(records) * value_bytes / MB / seconds
        figures["worker MB"] = peak[0]
        return Sample(figures)

    return measure


def _read_batches(server: Server) -> Sample:
    """Whole record batches on one side, decoded records on the other."""
    shape = "batches" if getattr(server, "shape", "") else "records"
    return _read("none", 100, RECORDS, {"shape": shape})(server)


def _available_now(server: Server) -> Sample:
    """A stream that reads the whole topic and stops."""
    with spark_side.checkpoint() as folder:
        stream = spark_side.session().readStream.format(spark_side.connector_of(server)).options(
            **{"kafka.bootstrap.servers": server.bootstrap, "subscribe": _topic("none", 100),
               "startingOffsets": "earliest"}
        )  # fmt: skip
        begin = time.perf_counter()
        query = (
            stream.load().writeStream.format("noop").option("checkpointLocation", folder)
            .trigger(availableNow=True).start()
        )  # fmt: skip
        query.awaitTermination()
        seconds = time.perf_counter() - begin
        rows = sum(each["numInputRows"] for each in spark_side.progress_of(query))
    if rows != scaled(RECORDS):
        raise SystemExit(f"{server.name}: the stream had {rows} rows")
    return Sample({"rows/s": rows / seconds})


def _steady(server: Server) -> Sample:
    """A stream that keeps up with a steady producer: how long its triggers take."""
    topic = "steady"
    workloads.create(server, [topic], PARTITIONS)
    values = workloads.values_of(100)
    seconds = scaled(STEADY_SECONDS)
    with spark_side.checkpoint() as folder:
        stream = spark_side.session().readStream.format(spark_side.connector_of(server)).options(
            **{"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic,
               "startingOffsets": "earliest"}
        )  # fmt: skip
        query = (
            stream.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        )
        sender = Sender(server, topic)
        sender.send(values, STEADY_PER_SECOND)
        query.processAllAvailable()  # the first trigger compiles
        before = len(spark_side.progress_of(query))
        _pace(sender, values, seconds)
        query.processAllAvailable()
        found = spark_side.progress_of(query)[before:]
        query.stop()
    workloads.drop(server, topic)
    taken = sorted(each["durationMs"]["triggerExecution"] for each in found)
    return Sample({"trigger p50 ms": taken[len(taken) // 2], "trigger max ms": taken[-1]})


def _pace(sender: Sender, values: list[bytes], seconds: int) -> None:
    begin = time.perf_counter()
    for step in range(seconds * STEPS_PER_SECOND):
        sender.send(values, STEADY_PER_SECOND // STEPS_PER_SECOND)
        time.sleep(max(0.0, begin + (step + 1) / STEPS_PER_SECOND - time.perf_counter()))


def _write(keyed: bool) -> Callable[[Server], Sample]:
    """A DataFrame that lies ready in memory, written to a topic."""

    def measure(server: Server) -> Sample:
        topic = f"written-{time.time_ns()}"
        workloads.create(server, [topic], PARTITIONS)
        frame = ready_frame(keyed)
        with spark_side.worker_memory() as peak:
            begin = time.perf_counter()
            frame.write.format(spark_side.connector_of(server)).mode("append").options(
                **{"kafka.bootstrap.servers": server.bootstrap, "topic": topic}
            ).save()
            seconds = time.perf_counter() - begin
        ends = workloads.ends_of(server, topic, PARTITIONS)
        workloads.drop(server, topic)
        if ends < scaled(WRITTEN):
            raise SystemExit(f"{server.name}: {ends} records of {scaled(WRITTEN)} were written")
        return Sample({"rows/s": scaled(WRITTEN) / seconds, "worker MB": peak[0]})

    return measure


FRAMES: dict[bool, Any] = {}


def ready_frame(keyed: bool) -> Any:
    """Rows of 100 bytes, made once and kept by Spark."""
    if keyed not in FRAMES:
        rows = spark_side.session().range(0, scaled(WRITTEN), 1, PARTITIONS)
        value = "cast(lpad(cast(id as string), 100, '0') as binary) as value"
        key = ["cast(cast(id as string) as binary) as key"] if keyed else []
        FRAMES[keyed] = rows.selectExpr(*key, value).cache()
        FRAMES[keyed].count()
    return FRAMES[keyed]


def _rows() -> list[Row]:
    return [
        *(_read_row(f"{size}b", "none", size, count) for size, count in SIZES.items()),
        *(_read_row(f"100b-{codec}", codec, 100, RECORDS) for codec in ("lz4", "zstd", "gzip")),
        _row("spark-read-100b-same-broker", "the same, both on Anabranch",
             _read("none", 100, RECORDS), {"rows/s": more(1.5)}, "JvmOnAnabranch",
             prepare=_fill("none", 100, RECORDS)),
        *(_row(f"spark-read-{size}b-of-ceiling",
               f"read {size} B beside a Python source of ready batches",
               _read("none", size, count), {"rows/s": more(0.8)}, "Ceiling",
               prepare=_fill("none", size, count)) for size, count in SIZES.items()),
        _row("spark-batches", "shape=batches beside decoded records, both ours",
             _read_batches, {"MB/s": more(5)}, "Ours", ours="Batches",
             prepare=_fill("none", 100, RECORDS)),
        _row("spark-available-now", "a stream reads the whole topic (availableNow)",
             _available_now, {"rows/s": more(1.5)}, prepare=_fill("none", 100, RECORDS)),
        _row("spark-steady", "a stream follows 100,000 records/s", _steady,
             {"trigger p50 ms": less(1)}),
        _row("spark-write-100b", "write 2 M rows of 100 B without keys", _write(False),
             {"rows/s": more(2), "worker MB": own_less(300)}),
        _row("spark-write-100b-keys", "write 2 M rows of 100 B with keys", _write(True),
             {"rows/s": more(2), "worker MB": own_less(300)}),
    ]  # fmt: skip


SIZES = {100: RECORDS, 1000: RECORDS_1K}


def _read_row(name: str, codec: str, value_bytes: int, records: int) -> Row:
    targets = {"rows/s": more(1.5), "worker MB": own_less(300)}
    what = f"batch read of {records:,} records of {value_bytes} B, codec {codec}, 2 partitions"
    return _row(f"spark-read-{name}", what, _read(codec, value_bytes, records), targets,
                prepare=_fill(codec, value_bytes, records))  # fmt: skip


def _row(
    name: str, what: str, measure: Callable[[Server], Sample], targets: Mapping[str, Target],
    peer: str = "JvmOnKafka", *, ours: str = "Ours",
    prepare: Callable[[Server], None] | None = None,
) -> Row:  # fmt: skip
    names = {"JvmOnKafka": "kafka", "JvmOnAnabranch": "jvm", "Ceiling": "ceiling"}
    servers = {
        "anabranch": getattr(spark_side, ours),
        names.get(peer, "records"): getattr(spark_side, peer),
    }
    return Row(name, what, measure, targets, servers=servers, prepare=prepare)


SPARK_ROWS = [*_rows(), *JOB_ROWS]
