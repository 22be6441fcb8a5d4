"""The rows of the jobs: a table that a killed driver goes on with, and a scrub of three replicas.

Sizes come from the environment: `TABLE_RECORDS` (2,000,000) and `SCRUB_GB` (10, of all three
replicas together), so that both can be tried in a minute. Both are measured from the start of the
job to its end, the start of Spark left out.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import spark_side
import workloads
from confluent_kafka import Producer
from row import MB, Row, own_less, own_more
from scale import scaled
from servers import Server
from trio import AnabranchTrio
from workloads import Sample

from anabranch.testing.server_process import family_of

PARTITIONS = 2
TABLE_RECORDS = int(os.environ.get("TABLE_RECORDS", "2000000"))
SCRUB_GB = float(os.environ.get("SCRUB_GB", "10"))
SCRUB_VALUE_BYTES = 1000
MICRO_BATCHES = 8
SCHEMA = "number bigint, text string"
LONGEST_SECONDS = 600.0
LOOK_SECONDS = 0.1
SHOWN = 5


def _fill_json(server: Server) -> None:
    """Numbered JSON records of some 100 bytes."""
    topic = table_topic()
    workloads.create(server, [topic], PARTITIONS)
    failures = workloads.Failures()
    producer = Producer(
        {
            "bootstrap.servers": server.bootstrap, "acks": server.acks, "linger.ms": 20,
            "batch.size": 1_000_000, "delivery.report.only.error": True, "on_delivery": failures,
            **workloads.CLIENT,
        }
    )  # fmt: skip
    text = "x" * 70
    for number in range(scaled(TABLE_RECORDS)):
        value = b'{"number":%d,"text":"%s"}' % (number, text.encode())
        while True:
            try:
                producer.produce(topic, value, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.01)
    if producer.flush(workloads.WAIT_SECONDS) or failures.count:
        raise SystemExit(f"records of {topic} were not written")


def table_topic() -> str:
    """The topic of the table."""
    return "tabled"


def _tables(server: Server) -> Sample:
    """Keep a table, kill driver and workers when half of it is there, start again, and count."""
    folder = Path(tempfile.mkdtemp(prefix="anabranch-bench-"))
    records = scaled(TABLE_RECORDS)
    try:
        killed_seconds = _run_table(server, folder, kill_at=records // 2)
        seconds = _run_table(server, folder, kill_at=None)
        rows, numbers = _counted(folder)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    return Sample(
        {
            "rows/s": records / (killed_seconds + seconds),
            "lost": float(records - numbers),
            "twice": float(rows - numbers),
        }
    )


def _run_table(server: Server, folder: Path, *, kill_at: int | None) -> float:
    """Seconds of one run of the verb, which is killed when the table has so many rows."""
    words = [
        sys.executable, "-m", "anabranch", "spark", "tables",
        "--bootstrap-server", server.bootstrap, "--topic", table_topic(),
        "--table", str(folder / "table"), "--schema", SCHEMA,
        "--max-records", str(max(1, scaled(TABLE_RECORDS) // MICRO_BATCHES)), "--json",
    ]  # fmt: skip
    log = folder / "output.log"
    begin = time.perf_counter()
    with open(log, "wb") as output:
        process = subprocess.Popen(words, stdout=output, stderr=output, start_new_session=True)
    try:
        if kill_at is None:
            if process.wait(LONGEST_SECONDS):
                raise SystemExit(f"the table's job failed: {_last_words(log)}")
            return time.perf_counter() - begin
        while _rows(folder) < kill_at:
            if process.poll() is not None:
                raise SystemExit(f"the table's job ended before its SIGKILL: {_last_words(log)}")
            time.sleep(LOOK_SECONDS)
    finally:
        for pid in family_of(process.pid) if process.poll() is None else ():
            with suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        process.wait()
    return time.perf_counter() - begin


def _last_words(log: Path) -> str:
    """The end of what a job printed."""
    return " / ".join(log.read_text(errors="replace").splitlines()[-SHOWN:])


def _rows(folder: Path) -> int:
    """Rows of the table, by its log."""
    from deltalake import DeltaTable
    from deltalake.exceptions import DeltaError

    with suppress(DeltaError, OSError):
        if DeltaTable.is_deltatable(str(folder / "table")):
            actions = DeltaTable(str(folder / "table")).get_add_actions(flatten=True)
            return sum(row["num_records"] or 0 for row in _dictionaries(actions))
    return 0


def _dictionaries(table: Any) -> list[dict[str, Any]]:
    import pyarrow as pa

    found: list[dict[str, Any]] = pa.table(table).to_pylist()
    return found


def _counted(folder: Path) -> tuple[int, int]:
    """(rows, different numbers) of the table."""
    from deltalake import DeltaTable

    column = DeltaTable(str(folder / "table")).to_pyarrow_table(columns=["number"])["number"]
    return len(column), len(column.unique())


def _fill_scrubbed(server: Server) -> None:
    """A third of the size, as each byte is there three times."""
    workloads.create(server, ["scrubbed"], PARTITIONS)
    total = scaled(int(SCRUB_GB * 1e9)) // server.replicas
    workloads.send(
        server, "scrubbed", value_bytes=SCRUB_VALUE_BYTES, total_bytes=total,
        batch_bytes=1_000_000, partitions=PARTITIONS,
    )  # fmt: skip


def _scrub(server: Server) -> Sample:
    """The scrub beside the same tasks that only read: pieces, waves and readers are the same."""
    import spark_reading

    from anabranch.pipelines.scrub import scrub

    spark = spark_side.session()
    spark.sparkContext.addPyFile(spark_reading.__file__)
    read_bytes, read_seconds = spark_reading.read_all(spark, server.bootstrap, "scrubbed")
    report = scrub(spark, server.bootstrap, ["scrubbed"])
    if not report.is_clean:
        told = json.dumps([*report.differences, *report.not_compared][:SHOWN])
        raise SystemExit(f"the scrub is not clean: {told}")
    rate, reading = report.bytes_read / report.seconds, read_bytes / read_seconds
    return Sample(
        {"MB/s": rate / MB, "only reading MB/s": reading / MB, "of reading": rate / reading}
    )


class ScrubbedTrio(AnabranchTrio):
    """Three nodes whose replicas are compared."""

    connector = "anabranch"


JOB_ROWS = [
    Row(
        "spark-tables-killed",
        f"{TABLE_RECORDS:,} JSON records to a Delta table, SIGKILL of the job when half is there",
        _tables,
        {"lost": own_less(0), "twice": own_less(0)},
        servers={"anabranch": spark_side.Ours},
        prepare=_fill_json,
        note="from start to SIGKILL and from start to end, Spark's own start included",
        warm_up=False,
        rounds_at_most=2,
    ),
    Row(
        "spark-scrub",
        f"scrub of {SCRUB_GB:g} GB in three replicas beside tasks that only read them",
        _scrub,
        {"of reading": own_more(0.6)},
        servers={"anabranch": ScrubbedTrio},
        prepare=_fill_scrubbed,
        rounds_at_most=3,
    ),
]
"""After the rows of spark_rows.py."""
