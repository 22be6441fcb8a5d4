"""Jobs on a standalone cluster of Spark, as a user starts them, with a worker killed in the middle."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest
from deltalake import DeltaTable
from tests.pipelines.standalone import Standalone, end

from anabranch.core.wire.records import Record, build_batch

pytestmark = pytest.mark.slow
RECORDS = 2_400
PARTITIONS = 48
PATIENCE_SECONDS = 200

READ = """
import json, sys
from pyspark.sql import SparkSession
from anabranch.pipelines.session import ship

def origin(batches):
    import pyarrow, anabranch
    for batch in batches:
        yield pyarrow.RecordBatch.from_pydict({"origin": [anabranch.__file__]})

spark = SparkSession.builder.getOrCreate()
ship(spark)
options = {"kafka.bootstrap.servers": sys.argv[1], "subscribe": sys.argv[2]}
frame = spark.read.format("anabranch").options(**options).load()
values = sorted(row[0] for row in frame.selectExpr("string(value)").collect())
origins = {row[0] for row in spark.range(4).mapInArrow(origin, "origin string").collect()}
print(json.dumps({"values": values, "origins": sorted(origins)}))
"""


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture
def start(standalone, tmp_path):
    """Start a program of the user, else Python; what it leaves behind is ended."""
    started = []

    def begin(*words, program=sys.executable, **more):
        process = subprocess.Popen(
            [program, *words],
            env={**standalone.environment, **more},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            cwd=tmp_path,
        )
        started.append(process)
        return process

    yield begin
    for each in started:
        if each.poll() is None:
            end(psutil.Process(each.pid))


def json_of(process):
    """What a process that has to succeed printed on its last line."""
    stdout, stderr = process.communicate(timeout=PATIENCE_SECONDS)
    assert process.returncode == 0, stderr
    return json.loads(stdout[stdout.index("{") :])


def wait_until(condition, process):
    deadline = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < deadline
        time.sleep(0.02)


def fill(topics, partitions, count):
    topic = topics.create(partitions=partitions)
    for partition in range(partitions):
        records = [
            Record(at, 1_700_000_000_000, b"k", b'{"id": %d}' % (at * partitions + partition))
            for at in range(count // partitions)
        ]
        topics.produce(topic, partition, build_batch(records))
    return topic


def test_the_archive_alone_lets_a_script_of_spark_submit_read(standalone, start, topics, tmp_path):
    topic, script = fill(topics, 4, 400), tmp_path / "read.py"
    script.write_text(READ)
    submit = str(Path(sys.executable).with_name("spark-submit"))
    words = ["--master", standalone.url, str(script), topics.bootstrap, topic]
    told = json_of(start(*words, program=submit))
    assert sorted(json.loads(each)["id"] for each in told["values"]) == list(range(400))
    assert told["origins"] and all(".zip/anabranch/" in each for each in told["origins"])


def test_the_first_task_names_what_executors_lack(standalone, start, topics):
    words = ["--master", standalone.url, "--bootstrap-server", topics.bootstrap]
    job = start("-m", "anabranch", "spark", "scrub", *words, PYSPARK_PYTHON="bare")
    _, stderr = job.communicate(timeout=PATIENCE_SECONDS)
    (sentence,) = [line for line in stderr.splitlines() if line.startswith("Error: ")]
    assert job.returncode == 1
    assert "has no pyarrow and no numpy and no msgspec" in sentence
    assert "Traceback" not in stderr


def test_a_table_is_complete_though_a_worker_is_killed(standalone, start, topics, tmp_path):
    topic, table = fill(topics, 4, RECORDS), str(tmp_path / "table")
    job = start(
        "-m", "anabranch", "spark", "tables", "--master", standalone.url, "--json", "--topic", topic,
        "--bootstrap-server", topics.bootstrap, "--table", table, "--schema", "id bigint",
        "--max-records", "200",
    )  # fmt: skip
    wait_until(lambda: version_of(table) >= 3, job)
    standalone.kill_busy_worker()
    killed_at = version_of(table)
    told = json_of(job)
    assert killed_at < told["version"], "the job was done before the worker was killed"
    assert (told["rows"], told["dead_letters"]) == (RECORDS, 0)
    ids = DeltaTable(table).to_pyarrow_table().column("id").to_pylist()
    assert sorted(ids) == list(range(RECORDS))
    standalone.add_worker()


def version_of(table):
    return DeltaTable(table).version() if DeltaTable.is_deltatable(table) else -1


def test_a_scrub_is_complete_though_a_worker_is_killed(standalone, start, topics, tmp_path):
    topic, notes = fill(topics, PARTITIONS, PARTITIONS * 10), tmp_path / "notes.jsonl"
    job = start(
        "-m", "anabranch", "spark", "scrub", "--master", standalone.url, "--json", "--topic", topic,
        "--bootstrap-server", topics.bootstrap, "--notes", str(notes),
    )  # fmt: skip
    wait_until(lambda: notes.exists() and len(notes.read_bytes().splitlines()) > 1, job)
    standalone.kill_busy_worker()
    done = len(notes.read_bytes().splitlines()) - 1
    told = json_of(job)
    assert done < PARTITIONS, "the job was done before the worker was killed"
    assert (told["partitions"], told["differing"], told["not_compared"]) == (PARTITIONS, 0, [])
    names = [json.loads(line)["name"] for line in notes.read_bytes().splitlines()[1:-1]]
    ranges = [name.split(" of ")[0] for name in names]
    assert sorted(ranges) == sorted(f"{topic}-{each}/0-10" for each in range(PARTITIONS))
