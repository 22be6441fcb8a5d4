"""Workers of Spark: what they keep out of their collections of garbage, and how they end."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest

from anabranch.pipelines import range_reader, sink_task
from anabranch.pipelines.columns import arrow_schema
from anabranch.pipelines.offset_ranges import OffsetRange
from anabranch.pipelines.options import source_options
from anabranch.pipelines.sink_options import read_options
from anabranch.pipelines.sink_rows import SinkColumns
from anabranch.pipelines.source import columns_of

CODE = """
import gc
from anabranch.pipelines import worker
worker.leave_out_of_collections()
first = gc.get_freeze_count()
kept = [[] for _ in range(10_000)]
worker.leave_out_of_collections()
print(first, gc.get_freeze_count())
"""

ENDING = """
import traceback
import anabranch.pipelines
for fault in (BrokenPipeError(), ConnectionResetError(), EOFError(), OSError(28, "disk full")):
    try:
        raise fault
    except BaseException:
        traceback.print_exc()
print(traceback.format_exc is __import__("traceback").format_exc)
"""
STREAM = """
import sys
import time

import psutil

from anabranch.pipelines.session import local_session

spark = local_session(cores=2, conf={"spark.driver.memory": "500m"})
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
rows = spark.readStream.format("anabranch").options(**options, startingOffsets="earliest").load()
query = rows.writeStream.format("noop").trigger(availableNow=True).start()
query.awaitTermination()
java, threads = spark.sparkContext._gateway.proc.pid, spark._jvm.java.lang.Thread
daemons, workers = [], []
for each in psutil.Process(java).children():
    try:
        if "pyspark.daemon" in each.cmdline():
            each.suspend()  # so that each worker sees the closed connection before its daemon ends it
            daemons.append(each)
            workers += each.children()
    except psutil.NoSuchProcess:  # ended meanwhile
        pass
spark.stop()
_, left = psutil.wait_procs(workers, timeout=60)
for each in daemons:
    each.resume()
while any("stderr reader" in each.getName() for each in threads.getAllStackTraces().keySet()):
    time.sleep(0.05)  # what they wrote is passed on until they have ended
print(query.lastProgress["numInputRows"], len(workers) > 0, len(left))
"""


def run_as(main, code):
    """What a program does in a process that began with a module."""
    begin = f"import __main__, types\n__main__.__spec__ = types.SimpleNamespace(name={main!r})\n"
    return subprocess.run(
        [sys.executable, "-c", begin + code], capture_output=True, text=True, check=True
    )


def frozen(main):
    """Objects that are left out after the first and the second call, in a process of a module."""
    return [int(each) for each in run_as(main, CODE).stdout.split()]


def test_a_worker_leaves_out_what_is_there_after_its_first_task():
    first, second = frozen("pyspark.daemon")
    assert first > 1000
    assert abs(second - first) < 1000  # what is imported later is looked at


def test_another_process_is_left_alone():
    assert frozen("job") == [0, 0]


def test_tasks_that_read_and_write_end_with_it(topics, monkeypatch):
    ended = []
    topic = topics.create(1)
    for module, name in ((sink_task, "write"), (range_reader, "read")):
        monkeypatch.setattr(
            module, "leave_out_of_collections", lambda name=name: ended.append(name)
        )
    servers = {"kafka.bootstrap.servers": topics.bootstrap}
    rows = pa.RecordBatch.from_arrays([pa.array([b"a"])], names=["value"])
    sink_task.write_rows(
        read_options({**servers, "topic": topic}), SinkColumns(None, None, 0, None, None), [rows]
    )
    options = source_options({**servers, "subscribe": topic})
    schema = arrow_schema(columns_of(options))
    found = list(range_reader.read_range_of(options, OffsetRange(topic, 0, b"", 0, 1), schema))
    assert [each.num_rows for each in found] == [1]
    assert ended == ["write", "read"]


@pytest.mark.parametrize(("main", "printed"), [("pyspark.daemon", 1), ("job", 4)])
def test_only_a_workers_closed_connection_is_not_printed(main, printed):
    done = run_as(main, ENDING)
    assert done.stderr.count("Traceback") == printed
    assert "OSError: [Errno 28] disk full" in done.stderr
    assert done.stdout == "True\n"


@pytest.mark.slow
def test_a_stream_that_has_ended_leaves_no_traceback(topics):
    topic = topics.create(2)
    topics.fill(topic, 0, 100)
    done = subprocess.run(
        [sys.executable, "-c", STREAM, topics.bootstrap, topic],
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["100", "True", "0"]
    assert "Traceback" not in done.stderr, done.stderr
