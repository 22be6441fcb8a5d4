"""The row of tiering: a job beside a loop that reads the same objects and writes the same bytes.

A topic has 100 partitions, records of 1 KB and objects of up to 8 MiB, in a folder. The loop reads
each object whole and writes its bytes to files of the size of a segment, each synced, with nothing
checked and no broker asked. The job has this process's Spark session, which has already run a task.
Meanwhile a producer sends one record at a time to another diskless topic.
"""

from __future__ import annotations

import os
import shutil
import threading
import time
from pathlib import Path

import spark_side
import workloads
from confluent_kafka.cimpl import NewTopic
from diskless_rows import ALONE, DisklessTrio
from row import MB, Row, own_less, own_more
from scale import scaled
from servers import Server
from workloads import Sample

from anabranch.pipelines.tiering import Where, tier

TOPIC, PARTITIONS = "tiered", 100
TOTAL_BYTES = 400 * MB
QUIET_RECORDS, BESIDE_RECORDS = 1_000, 100
SETTINGS = {"diskless.tiering.age.ms": "0", "diskless.tiering.min.segment.bytes": "1"}


def objects_of(server: DisklessTrio) -> list[Path]:
    """Objects of batches."""
    return [each for each in server.objects.rglob("*-*") if each.parent.parent.name == "wal"]


def loop(server: DisklessTrio, objects: list[Path]) -> tuple[float, int]:
    """Seconds of reading all objects and writing their bytes, and how many bytes these are."""
    folder = server.folder / "copied"
    folder.mkdir()
    total = sum(each.stat().st_size for each in objects)
    piece = max(1, total // PARTITIONS)
    begin, written, number = time.perf_counter(), 0, 0
    target = open(folder / "0", "wb", buffering=0)  # noqa: SIM115 - the next one takes its place
    for each in objects:
        written += target.write(each.read_bytes())
        if written >= piece:
            os.fsync(target.fileno())
            target.close()
            written, number = 0, number + 1
            target = open(folder / str(number), "wb", buffering=0)  # noqa: SIM115
    os.fsync(target.fileno())
    target.close()
    seconds = time.perf_counter() - begin
    shutil.rmtree(folder)
    return seconds, total


def create(server: Server, topic: str) -> None:
    """The topic that is tiered; records of others are not old enough."""
    admin = workloads.admin_of(server)
    new = NewTopic(topic, PARTITIONS, replication_factor=-1, config=SETTINGS)
    admin.create_topics([new])[topic].result(workloads.WAIT_SECONDS)
    workloads.await_leaders(admin, [topic], PARTITIONS)


def tiering(server: Server) -> Sample:
    """Rates of the loop and of the job, and what a producer waits, quietly and beside the job."""
    assert isinstance(server, DisklessTrio)
    topic = f"{TOPIC}-{time.monotonic_ns()}"
    quiet = _one_at_a_time(server, QUIET_RECORDS)
    before_objects = set(objects_of(server))
    create(server, topic)
    workloads.send(
        server, topic, value_bytes=1000, total_bytes=scaled(TOTAL_BYTES), batch_bytes=None,
        partitions=PARTITIONS,
    )  # fmt: skip
    objects = sorted(set(objects_of(server)) - before_objects)
    seconds, size = loop(server, objects)
    plain = size / seconds / 1e6
    spark = spark_side.session()
    spark.range(0, 8, 1, 2).mapInArrow(lambda batches: batches, "id long").count()
    late: list[float] = []
    over = threading.Event()

    def produce() -> None:
        while not over.is_set():
            late.append(_one_at_a_time(server, BESIDE_RECORDS))

    producing = threading.Thread(target=produce)
    producing.start()
    before = server.cpu_seconds()
    done = tier(spark, Where(server.bootstrap, f"file://{server.objects.resolve()}"))
    cpu = server.cpu_seconds() - before
    over.set()
    producing.join()
    if done.faults or done.bytes_tiered < scaled(TOTAL_BYTES):
        raise SystemExit(f"not all was tiered: {done}")
    workloads.drop(server, topic)
    rate = done.bytes_tiered / done.seconds / 1e6
    beside = sorted(late)[len(late) // 2]
    return Sample(
        {
            "MB/s": rate,
            "plain loop MB/s": plain,
            "of the plain loop": rate / plain,
            "rows": done.rows_freed,
            "object MB": size / len(objects) / 1e6,
            "brokers' CPU s/GB": cpu / (done.bytes_tiered / 1e9),
            "quiet p50 ms": quiet,
            "tiering p50 ms": beside,
            "p50 over quiet": beside / quiet,
        }
    )


def _one_at_a_time(server: Server, count: int) -> float:
    return workloads.one_at_a_time(server, value_bytes=100, count=scaled(count)).figures["p50 ms"]


TIERING_ROWS = [
    Row(
        "spark-tiering",
        "tier 1 KB records in objects of 100 partitions, folder store, 400 MB, beside a plain loop",
        tiering,
        {"of the plain loop": own_more(0.5), "p50 over quiet": own_less(3)},
        servers=ALONE,
        written_bytes=1_200 * MB,
        rounds_at_most=1,
        warm_up=False,
    ),
]
