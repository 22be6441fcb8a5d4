"""Spark on this machine for the rows of spark_rows.py: one session, its workers, three connectors.

What: one local session with the jars of Spark's own Kafka connector on its path, so that both
connectors run in the same JVM, warmed up alike; the broker that each reads or writes; and a source
that yields batches which are ready, as the ceiling of any Python source. Rule kept: a figure of
memory is that of the largest Python worker, through /proc.
"""

from __future__ import annotations

import functools
import shutil
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

from servers import ROOT, Anabranch, Kafka, Server

from anabranch.testing.server_process import family_of

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

JARS = ROOT / ".cache" / "spark-kafka"
CORES = 2
MEGABYTE = 1 << 20


class Ours(Anabranch):
    """The DataFrame source and sink of this project on a node of this project."""

    connector = "anabranch"


class JvmOnKafka(Kafka):
    """Spark's own connector on Apache Kafka, as its users run it."""

    connector = "kafka"


class JvmOnAnabranch(Anabranch):
    """Spark's own connector on a node of this project: the broker is the same, the rest is not."""

    name = "jvm"
    connector = "kafka"


class OursOnKafka(Kafka):
    """The DataFrame source and sink of this project on Apache Kafka."""

    connector = "anabranch"


class Batches(Ours):
    """Whole record batches, not decoded."""

    shape = "batches"


class Ceiling(Anabranch):
    """Batches that are ready: what is left is Spark's own cost of a Python source."""

    name = "ceiling"
    connector = "ceiling"


@functools.cache
def session() -> SparkSession:
    """The session of this process; Spark ends with it."""
    from anabranch.pipelines.session import local_session

    jars = ",".join(map(str, sorted(JARS.glob("*.jar"))))
    spark = local_session("bench", cores=CORES, conf={"spark.jars": jars})
    add_ceiling(spark)
    return spark


def add_ceiling(spark: SparkSession) -> None:
    """Make `format("ceiling")` known to a session, and its module to the session's workers: they
    do not look for modules in this folder."""
    import spark_ceiling

    spark.sparkContext.addPyFile(spark_ceiling.__file__)
    spark.dataSource.register(spark_ceiling.CeilingSource)


def reader(server: Server, topic: str, options: Mapping[str, str] | None = None) -> DataFrame:
    """A whole topic as a DataFrame."""
    words = {"startingOffsets": "earliest", "endingOffsets": "latest", **(options or {})}
    found = session().read.format(connector_of(server)).options(**words)
    where = {"kafka.bootstrap.servers": server.bootstrap, "subscribe": topic}
    return found.options(**where).load()


def connector_of(server: Server) -> str:
    """The name of the server's side for `format`."""
    return str(getattr(server, "connector"))  # noqa: B009 - of the kinds above alone


def workers() -> list[int]:
    """The Python workers of this session's JVM."""
    gateway = session().sparkContext._gateway
    return [pid for pid in family_of(gateway.proc.pid)[1:] if _is_python(pid)]


def _is_python(pid: int) -> bool:
    with suppress(OSError):
        return "python" in Path(f"/proc/{pid}/cmdline").read_text().partition("\0")[0]
    return False


def _resident_bytes(pid: int) -> int:
    with suppress(OSError):
        fields = Path(f"/proc/{pid}/status").read_text().partition("RssAnon:")[2].split()
        return int(fields[0]) * 1024 if fields else 0
    return 0


@contextmanager
def worker_memory() -> Iterator[list[float]]:
    """The largest anonymous memory of a Python worker while the block runs, in MB."""
    peak = [0.0]
    over = threading.Event()

    def watch() -> None:
        while not over.wait(0.05):
            sizes = [_resident_bytes(pid) for pid in workers()]
            peak[0] = max(peak[0], *(size / MEGABYTE for size in sizes), 0.0)

    thread = threading.Thread(target=watch, daemon=True)
    thread.start()
    try:
        yield peak
    finally:
        over.set()
        thread.join()


@contextmanager
def checkpoint() -> Iterator[str]:
    """A folder for a stream's checkpoint, gone afterwards."""
    folder = tempfile.mkdtemp(prefix="anabranch-bench-")
    try:
        yield folder
    finally:
        shutil.rmtree(folder, ignore_errors=True)


def to_noop(frame: DataFrame) -> None:
    """Produce every row with all its columns, and forget them."""
    frame.write.format("noop").mode("overwrite").save()


def progress_of(query: Any) -> list[dict[str, Any]]:
    """The progress of each trigger of a query that found records."""
    return [each for each in query.recentProgress if each["numInputRows"]]
