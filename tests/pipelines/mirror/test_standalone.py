"""A mirror on a standalone cluster of Spark, as a user starts it, with a worker killed in the middle."""

from __future__ import annotations

import subprocess
import sys
import time

import psutil
import pytest
from tests.pipelines.mirror.test_command import arrived
from tests.pipelines.mirror.test_command import file as file  # noqa: PLC0414 - a fixture
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, batch, seen
from tests.pipelines.standalone import Standalone, end

pytestmark = pytest.mark.slow
PATIENCE_SECONDS = 200


@pytest.fixture(scope="module")
def standalone(tmp_path_factory):
    cluster = Standalone(tmp_path_factory.mktemp("standalone"))
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


def test_each_record_comes_once_though_a_worker_is_killed(standalone, clusters, file, tmp_path):
    topic = clusters.topic(partitions=2)
    for partition in range(2):
        clusters.produce(topic, partition, batch(0, 3_000))
    path = file(topics=topic, **EXACTLY_ONCE, **{"wave.seconds": "6"})
    words = ["-m", "anabranch", "mirror", "run", path, "--master", standalone.url, "--waves", "6"]
    job = subprocess.Popen(
        [sys.executable, *words], env=standalone.environment, cwd=tmp_path, text=True,
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    try:
        deadline = time.monotonic() + PATIENCE_SECONDS
        while not arrived(clusters, topic):
            assert time.monotonic() < deadline and job.poll() is None, job.communicate()
            time.sleep(0.2)
        clusters.produce(topic, 0, batch(3_000, 3_000))
        standalone.kill_busy_worker()
        clusters.produce(topic, 1, batch(3_000, 3_000))
        out, err = job.communicate(timeout=PATIENCE_SECONDS)
    finally:
        if job.poll() is None:
            end(psutil.Process(job.pid))
    assert job.returncode == 0, err
    assert "records, " in out and "Traceback" not in err
    for partition in range(2):
        copied = seen(clusters.read(clusters.west, f"east.{topic}", partition))
        assert copied == seen(clusters.read(clusters.east, topic, partition))
        assert len(copied) == 6_000
