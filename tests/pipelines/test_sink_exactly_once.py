"""`option("exactlyOnce", "true")` in Spark: what fails and is killed leaves one copy of each row."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path

import psutil
import pytest
from pyspark import TaskContext
from pyspark.errors import PySparkException, StreamingQueryException
from tests.client.transaction_kit import committed
from tests.pipelines.sink_streams import FILES, LINES, lines_of, start, write_files
from tests.pipelines.test_sink_stream import MIDDLE, python_workers

from anabranch.client.cluster import Cluster
from anabranch.client.transactions import list_transactions

ROOT = Path(__file__).parents[2]
ROWS, SLOTS, PARTITIONS = 4000, 4, 3
SMALL = {"kafka.batch.size": "2000", "kafka.buffer.memory": "65536",
         "kafka.max.request.size": "65536"}  # fmt: skip


def found_in(topics, topic, partitions=PARTITIONS):
    """The committed values, in order; waits until no transaction is open."""

    async def read():
        async with Cluster(topics.bootstrap) as cluster:
            return sorted((await committed(cluster, topic, partitions)).values())

    return asyncio.run(read())


def under_way(topics):
    async def ask():
        async with Cluster(topics.bootstrap) as cluster:
            return (await list_transactions(cluster, states=["Ongoing"])).ids

    return asyncio.run(ask())


EVERY = sorted(b"%d" % each for each in range(ROWS))


@pytest.fixture
def write(spark, topics):
    """Write the numbers below ROWS, through a function on Arrow batches."""
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")

    def written(topic, through, **options):
        frame = spark.range(0, ROWS, 1, SLOTS).selectExpr("CAST(id AS STRING) AS value")
        writer = frame.mapInArrow(through, "value string").write.format("anabranch").mode("append")
        given = {"kafka.bootstrap.servers": topics.bootstrap, "topic": topic, **SMALL}
        writer.options(exactlyOnce="true", **given, **options).save()

    yield written
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def unharmed(batches):
    yield from batches


def fails_at_first(batches):
    for number, batch in enumerate(batches):
        if number == 15 and TaskContext.get().attemptNumber() < 2:
            raise RuntimeError("this attempt fails")
        yield batch


def is_killed_at_first(batches):
    for number, batch in enumerate(batches):
        if number == 15 and TaskContext.get().attemptNumber() == 0:
            os.kill(os.getpid(), signal.SIGKILL)
        yield batch


def fails_in_one_slot(batches):
    for number, batch in enumerate(batches):
        if number == 15 and TaskContext.get().partitionId() == 1:
            raise RuntimeError("this slot fails")
        yield batch


@pytest.mark.slow
@pytest.mark.parametrize("through", [unharmed, fails_at_first, is_killed_at_first])
def test_attempts_that_fail_or_are_killed_leave_one_copy(topics, write, through):
    topic = topics.create(partitions=PARTITIONS)
    write(topic, through)
    assert found_in(topics, topic) == EVERY


@pytest.mark.slow
def test_a_write_that_fails_leaves_nothing(topics, write):
    topic = topics.create(partitions=PARTITIONS)
    with pytest.raises(PySparkException, match="this slot fails"):
        write(topic, fails_in_one_slot)
    assert found_in(topics, topic) == []
    assert under_way(topics) == []


@pytest.mark.slow
def test_a_job_that_is_run_again_under_its_name_writes_nothing_twice(topics, write):
    topic = topics.create(partitions=PARTITIONS)
    with pytest.raises(PySparkException, match="this slot fails"):
        write(topic, fails_in_one_slot, jobId=topic)
    for _ in range(2):
        write(topic, unharmed, jobId=topic)
    assert found_in(topics, topic) == EVERY
    write(topic, unharmed, jobId=f"{topic}-again")
    assert found_in(topics, topic) == sorted(EVERY * 2)


@pytest.mark.slow
def test_killed_workers_of_a_stream_repeat_no_row(spark, topics, tmp_path, write):
    topic = topics.create()
    write_files(tmp_path)
    query = start(spark, tmp_path, topics.bootstrap, topic, pause_seconds=0.05, exactlyOnce="true")
    lines_of(topics.bootstrap, topic, least=MIDDLE, reads=False)
    for worker in python_workers():
        with suppress(psutil.NoSuchProcess):
            worker.send_signal(signal.SIGKILL)
    try:
        query.awaitTermination()
    except StreamingQueryException:  # one of them worked for the driver
        query = start(spark, tmp_path, topics.bootstrap, topic, pause_seconds=0, exactlyOnce="true")
        query.awaitTermination()
    check_lines(topics, topic)


def check_lines(topics, topic):
    found = [int(each) for each in found_in(topics, topic, 1)]
    assert found == list(range(FILES * LINES))


@pytest.mark.slow
def test_a_killed_driver_of_a_stream_repeats_no_row(spark, topics, tmp_path, write):
    topic = topics.create()
    write_files(tmp_path)
    command = [sys.executable, "-m", "tests.pipelines.sink_streams"]
    driver = subprocess.Popen(
        [*command, str(tmp_path), topics.bootstrap, topic, "exactlyOnce=true"], cwd=ROOT,
        start_new_session=True, env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    try:
        lines_of(topics.bootstrap, topic, least=MIDDLE, reads=False)
    finally:
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGKILL)
        for each in started:
            each.send_signal(signal.SIGKILL)
        driver.wait()
        psutil.wait_procs(started)
    query = start(spark, tmp_path, topics.bootstrap, topic, pause_seconds=0, exactlyOnce="true")
    query.awaitTermination()
    check_lines(topics, topic)
