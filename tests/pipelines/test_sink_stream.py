"""`writeStream.format("anabranch")`: micro-batches, and what is repeated when something is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest
from pyspark.errors import StreamingQueryException
from tests.pipelines.sink_streams import FILES, LINES, lines_of, start, write_files

ROOT = Path(__file__).parents[2]
MIDDLE = LINES + LINES // 4
"""Records of the first micro-batch and some of the second."""


@pytest.fixture
def rows_at_once(spark):
    """Gives the session back the Arrow batches that it had."""
    yield
    spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")


def check_at_least_once(found, *, batch):
    """All lines are there, and only those of one micro-batch more than once."""
    assert found.keys() == set(range(FILES * LINES))
    repeated = {line // LINES for line, count in found.items() if count > 1}
    assert repeated <= {batch}
    assert max(found.values()) == 2, "nothing was under way when it was killed"


def python_workers():
    """The processes in which Spark runs this process's Python tasks."""
    every = psutil.Process().children(recursive=True)
    living = [each for each in every if each.status() != psutil.STATUS_ZOMBIE]
    daemons = {each.pid for each in living if "pyspark.daemon" in each.cmdline()}
    return [each for each in living if each.ppid() in daemons]


@pytest.mark.usefixtures("rows_at_once")
def test_micro_batches_are_written_and_counted(spark, topics, tmp_path):
    topic = topics.create()
    write_files(tmp_path)
    query = start(spark, tmp_path, topics.bootstrap, topic, pause_seconds=0)
    query.awaitTermination()
    assert lines_of(topics.bootstrap, topic) == dict.fromkeys(range(FILES * LINES), 1)
    written = [each["sink"]["numOutputRows"] for each in query.recentProgress]
    assert written == [LINES] * FILES


@pytest.mark.slow
@pytest.mark.usefixtures("rows_at_once")
def test_killed_workers_repeat_at_most_their_micro_batch(spark, topics, tmp_path):
    topic = topics.create()
    write_files(tmp_path)
    query = start(spark, tmp_path, topics.bootstrap, topic, pause_seconds=0.05)
    lines_of(topics.bootstrap, topic, least=MIDDLE)
    for worker in python_workers():
        worker.send_signal(signal.SIGKILL)
    query.awaitTermination()
    check_at_least_once(lines_of(topics.bootstrap, topic), batch=1)


@pytest.mark.slow
@pytest.mark.usefixtures("rows_at_once")
def test_a_killed_driver_repeats_at_most_the_last_micro_batch(spark, topics, tmp_path):
    topic = topics.create()
    write_files(tmp_path)
    command = [sys.executable, "-m", "tests.pipelines.sink_streams"]
    driver = subprocess.Popen(
        [*command, str(tmp_path), topics.bootstrap, topic], cwd=ROOT, start_new_session=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )  # fmt: skip
    try:
        lines_of(topics.bootstrap, topic, least=MIDDLE)
    finally:
        started = psutil.Process(driver.pid).children(recursive=True)
        driver.send_signal(signal.SIGKILL)
        for each in started:
            each.send_signal(signal.SIGKILL)
        driver.wait()
        psutil.wait_procs(started)
    query = start(spark, tmp_path, topics.bootstrap, topic, pause_seconds=0)
    query.awaitTermination()
    check_at_least_once(lines_of(topics.bootstrap, topic), batch=1)


@pytest.mark.usefixtures("rows_at_once")
def test_a_topic_that_is_missing_ends_the_stream_with_its_name(spark, topics, tmp_path):
    write_files(tmp_path)
    query = start(spark, tmp_path, topics.bootstrap, "no/topic", pause_seconds=0)
    with pytest.raises(StreamingQueryException, match="no/topic"):
        query.awaitTermination()
