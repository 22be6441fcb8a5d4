"""The row of compaction of diskless topics: a job on Spark beside the cleaner of classic topics.

A partition has a gigabyte of 1 KB records, a tenth of whose keys are the newest of their key, as in
the row of the classic cleaner (compaction.py); all of it is tiered, into segments in a folder. Both
compact the same segments: the classic cleaner, from core, as its process does, on copies of them as
a log's folder has them, with files that it syncs; the job in this process's Spark session, which
has already run a task. CPU time is that of the cleaner's pass, and that of Spark and of the brokers
together.
"""

from __future__ import annotations

import os
import shutil
import time
from contextlib import suppress
from pathlib import Path

import compaction
import spark_side
import workloads
from confluent_kafka.cimpl import NewTopic
from diskless_rows import ALONE, DisklessTrio
from row import MB, Row
from scale import scaled
from servers import Server
from workloads import Sample

from anabranch.core.log.compaction import Job, Outcome, run
from anabranch.pipelines.compaction import compact
from anabranch.pipelines.tiering import Where, tier
from anabranch.server.files import RealFiles
from anabranch.testing.server_process import family_of

TICK = os.sysconf("SC_CLK_TCK")
KEY_MAP_BYTES, BUFFER_BYTES = 128 * MB, MB
"""As `log.cleaner.dedupe.buffer.size` has it, and twice what `log.cleaner.io.buffer.size` has."""


def create(server: Server, topic: str) -> None:
    """One partition, whose records may be tiered at once."""
    is_whole = scaled(compaction.RECORDS) == compaction.RECORDS
    segment = compaction.SEGMENT_BYTES if is_whole else compaction.QUICK_SEGMENT_BYTES
    settings = {
        "diskless.enable": "true",
        "cleanup.policy": "compact",
        "min.cleanable.dirty.ratio": "0.1",
        "diskless.tiering.age.ms": "0",
        "diskless.tiering.min.segment.bytes": "1",
        "segment.bytes": str(segment),
    }
    admin = workloads.admin_of(server)
    new = NewTopic(topic, 1, replication_factor=-1, config=settings)
    admin.create_topics([new])[topic].result(workloads.WAIT_SECONDS)
    workloads.await_leaders(admin, [topic], 1)


def cleaned(server: DisklessTrio, logs: list[Path]) -> tuple[float, float, int]:
    """Seconds and CPU seconds of a pass of the classic cleaner, and the bytes that it leaves."""
    folder = server.folder / "classic-0"
    folder.mkdir()
    for each in logs:
        shutil.copyfile(each, folder / each.name)
    sizes = tuple((int(each.stem), each.stat().st_size) for each in sorted(folder.iterdir()))
    job = Job(
        folder=str(folder), segments=sizes, first_dirty_offset=0, upto=scaled(compaction.RECORDS),
        now_ms=time.time_ns() // 1_000_000, delete_retention_ms=86_400_000,
        segment_bytes=compaction.SEGMENT_BYTES, segment_index_bytes=10 * MB,
        index_interval_bytes=4096, map_bytes=KEY_MAP_BYTES, buffer_bytes=BUFFER_BYTES,
        producers={}, aborted=(),
    )  # fmt: skip
    begin, cpu = time.perf_counter(), time.process_time()
    *_, outcome = run(RealFiles(), job)
    seconds, cpu = time.perf_counter() - begin, time.process_time() - cpu
    shutil.rmtree(folder)
    if not isinstance(outcome, Outcome) or outcome.upto != job.upto:
        raise SystemExit(f"the classic pass ended early: {outcome}")
    return seconds, cpu, outcome.written_bytes


def own_cpu_seconds() -> float:
    """Of this process, the JVM and its workers, with those that have ended."""
    ticks = 0
    for pid in family_of(os.getpid()):
        with suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            ticks += sum(map(int, fields[11:15]))
    return ticks / TICK


def compacting(server: Server) -> Sample:
    """Rates and CPU time of the job and of the classic cleaner on the same records."""
    assert isinstance(server, DisklessTrio)
    topic = f"compacted-{time.monotonic_ns()}"
    create(server, topic)
    compaction.write(server, topic)
    spark = spark_side.session()
    where = Where(server.bootstrap, f"file://{server.objects.resolve()}")
    before = set(server.objects.rglob("*.log"))
    told = tier(spark, where)
    logs = sorted(set(server.objects.rglob("*.log")) - before)
    size = sum(each.stat().st_size for each in logs)
    if told.faults or size < scaled(compaction.RECORDS) * compaction.VALUE_BYTES:
        raise SystemExit(f"not all was tiered: {told}")
    seconds, cpu, left = cleaned(server, logs)
    ours = -own_cpu_seconds() - server.cpu_seconds()
    done = compact(spark, where)
    ours += own_cpu_seconds() + server.cpu_seconds()
    if done.faults or done.bytes_before != size:
        raise SystemExit(f"not all was compacted: {done}")
    workloads.drop(server, topic)
    return Sample(
        {
            "MB/s": size / done.seconds / 1e6,
            "CPU s/GB": ours / (size / 1e9),
            "left %": 100 * done.bytes_after / size,
            "classic cleaner MB/s": size / seconds / 1e6,
            "classic cleaner CPU s/GB": cpu / (size / 1e9),
            "classic cleaner left %": 100 * left / size,
            "of the classic cleaner": seconds / done.seconds,
        }
    )


COMPACTION_ROWS = [
    Row(
        "spark-compaction",
        "compact 1 GB of tiered 1 KB records, a tenth live, on Spark, beside our classic cleaner",
        compacting,
        {},
        servers=ALONE,
        written_bytes=4_400 * MB,
        rounds_at_most=1,
        warm_up=False,
    ),
]
