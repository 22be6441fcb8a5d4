"""Kills of the driver with all that is its, and of workers: exactly once, each record comes once."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from tests.pipelines.mirror.test_command import file as file  # noqa: PLC0414 - a fixture
from tests.pipelines.mirror.test_slot import EXACTLY_ONCE, batch

from anabranch.client.cluster import Cluster
from anabranch.client.fetch import list_offsets
from anabranch.core.errors import ApiError
from anabranch.core.types import LATEST

RECORDS = 20_000
CHUNK = 200
LIMIT_SECONDS = 240


def start(path):
    """The command, in a session of its own."""
    words = [sys.executable, "-m", "anabranch", "mirror", "run", path, "--master", "local[2]"]
    return subprocess.Popen(
        words, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )


def descendants(pid):
    """Every process below one."""
    parents = {}
    for entry in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = entry.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        parents.setdefault(int(fields[1]), []).append(int(entry.parent.name))
    found, left = [], [pid]
    while left:
        children = parents.get(left.pop(), [])
        found += children
        left += children
    return found


def workers(pid):
    """The Python workers of a job that are at work."""
    found = []
    for each in descendants(pid):
        try:
            words = Path(f"/proc/{each}/cmdline").read_bytes()
        except OSError:
            continue
        if b"pyspark.daemon" in words:
            found.append(each)
    return found[1:]


def kill_a_worker(pid):
    """Kill one that is at work, as soon as there is one."""
    until(lambda: workers(pid))
    os.kill(workers(pid)[0], signal.SIGKILL)


def end(process):
    """Kill a job with all that is its."""
    for each in [process.pid, *descendants(process.pid)]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(each, signal.SIGKILL)
    process.wait()


def arrived(clusters, topic):
    """Records that have arrived in both partitions."""
    with contextlib.suppress(ApiError):
        return sum(len(clusters.read(clusters.west, f"east.{topic}", each)) for each in (0, 1))
    return 0


def ends(clusters, topic):
    """The sum of the ends of both partitions on the target; 0 while there is no topic."""

    async def work():
        async with Cluster(clusters.west.bootstrap_servers) as cluster:
            with contextlib.suppress(ApiError):
                return sum((await list_offsets(cluster, f"east.{topic}", LATEST)).values())
            return 0

    return asyncio.run(work())


def until(condition):
    """Wait for something."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.3)


def wait_for_progress(clusters, topic, producing):
    """Wait until something more has arrived, unless everything has."""
    before = ends(clusters, topic)
    until(lambda: ends(clusters, topic) > before or not producing.is_alive())


@pytest.mark.slow
def test_each_record_comes_once_whatever_is_killed(clusters, file):
    topic = clusters.topic(partitions=2)
    path = file(topics=topic, **{"wave.seconds": "4"}, **EXACTLY_ONCE)

    def produce():
        for first in range(0, RECORDS, CHUNK):
            for partition in range(2):
                clusters.produce(topic, partition, batch(first, CHUNK))
            time.sleep(0.05)

    producing = threading.Thread(target=produce)
    producing.start()
    process = start(path)
    try:
        until(lambda: ends(clusters, topic) > 0)
        for _ in range(2):
            for _ in range(2):
                kill_a_worker(process.pid)
                wait_for_progress(clusters, topic, producing)
            end(process)
            process = start(path)
            wait_for_progress(clusters, topic, producing)
        producing.join()
        until(lambda: arrived(clusters, topic) >= 2 * RECORDS)
    finally:
        end(process)
        producing.join()
    for partition in range(2):
        values = [each.value for each in clusters.read(clusters.west, f"east.{topic}", partition)]
        assert values == [b"v%d" % each for each in range(RECORDS)]
