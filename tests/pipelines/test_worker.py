"""What workers of Spark keep out of their collections of garbage, and who is none of them."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa

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


def frozen(main):
    """Objects that are left out after the first and the second call, in a process of a module."""
    code = f"import __main__, types\n__main__.__spec__ = types.SimpleNamespace(name={main!r})\n"
    done = subprocess.run(
        [sys.executable, "-c", code + CODE], capture_output=True, text=True, check=True
    )
    return [int(each) for each in done.stdout.split()]


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
