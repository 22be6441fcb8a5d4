"""The batch coordinator and the store alone: no broker, the product's own code in processes here.

`three` commits from three processes into one SQLite file, as three brokers of a machine do; `rates`
commits objects of many partitions on one engine; `raw_rate` stores objects of given sizes in a new
folder, each with its fsyncs, as many at once as three brokers do.
"""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from placement import InProcess
from scale import scaled, scaled_seconds
from servers import ROOT, Server
from workloads import POOL, Sample

from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.rows import Batch, Commit, LogKey, NewLogs
from anabranch.core.diskless.writer import MOST_UPLOADS
from anabranch.core.types import TopicId
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.objects.engines import open_objects

CLUSTER = "bench"
TOPIC = TopicId(bytes(range(16)))
EPOCH, LEASE_MS = 1, 600_000
BATCH_BYTES = 1_000
PROCESSES = 3
SECONDS = 5.0
BATCHES = 100
OBJECTS = 200
MANY = 10_000
TIMES = 5


class SqliteEngine(InProcess):
    """A folder for an SQLite file."""

    name = "anabranch"

    @property
    def url(self) -> str:
        """A file that is not there yet."""
        return f"sqlite://{self.folder.resolve()}/coordinator-{time.monotonic_ns()}.db"


class PostgresEngine(InProcess):
    """A PostgreSQL server, with its own settings."""

    name = "anabranch"

    def prepare(self) -> None:
        """Start it."""
        sys.path.insert(0, str(ROOT))
        from tests.stores.postgres_kit import PostgresServer

        self.postgres = PostgresServer().start()

    @property
    def url(self) -> str:
        """A new database."""
        return str(self.postgres.new_database())

    def stop(self) -> None:
        """End it."""
        self.postgres.remove()
        super().stop()


async def writer(url: str, broker: int) -> Coordinator:
    """A coordinator that knows a broker, and as many partitions as one object may have here."""
    coordinator = await open_coordinator(url, CLUSTER)
    await coordinator.take_control(EPOCH)
    await coordinator.create_logs(EPOCH, [NewLogs(TOPIC, "bench", 0, MANY)])
    await coordinator.register(broker, EPOCH)
    return coordinator


async def commits_of(
    coordinator: Coordinator, broker: int, count: int, partitions: int
) -> list[Commit]:
    """So many commits of one batch for each of so many partitions."""
    prepared = await coordinator.prepare(broker, EPOCH, count, LEASE_MS)
    batches = tuple(
        Batch(LogKey(TOPIC, each), each * BATCH_BYTES, BATCH_BYTES, 1, 1)
        for each in range(partitions)
    )
    size = partitions * BATCH_BYTES
    return [Commit(*each[:2], size, broker, EPOCH, batches) for each in prepared]


async def commit_seconds(coordinator: Coordinator, commits: Sequence[Commit]) -> list[float]:
    """What each commit takes, one after another."""
    taken = []
    for commit in commits:
        begin = time.perf_counter()
        answer = await coordinator.commit(commit)
        taken.append(time.perf_counter() - begin)
        assert len(answer.verdicts) == len(commit.batches), answer
    return taken


def rates(server: Server) -> Sample:
    """Batches a second, rows for an object, and what 10,000 partitions cost beside 1,000."""
    assert isinstance(server, SqliteEngine | PostgresEngine)
    return asyncio.run(_rates(server.url))


async def _rates(url: str) -> Sample:
    coordinator = await writer(url, 1)
    try:
        commits = await commits_of(coordinator, 1, scaled(OBJECTS), BATCHES)
        taken = await commit_seconds(coordinator, commits)
        per_partition = {}
        for partitions in (MANY // 10, MANY):
            few = await commits_of(coordinator, 1, TIMES, partitions)
            seconds = sorted(await commit_seconds(coordinator, few))
            per_partition[partitions] = seconds[TIMES // 2] / partitions
    finally:
        await coordinator.close()
    return Sample(
        {
            "batches/s": BATCHES * len(taken) / sum(taken),
            "commits/s": len(taken) / sum(taken),
            "rows per object": float(BATCHES),
            "ms of 10,000 partitions": per_partition[MANY] * MANY * 1000,
            "growth": per_partition[MANY] / per_partition[MANY // 10],
        }
    )


def three(server: Server) -> Sample:
    """Commits of three processes for some seconds: the slowest beside the fastest, the longest."""
    assert isinstance(server, SqliteEngine)
    url = server.url
    asyncio.run(_close(url))
    command = [sys.executable, str(Path(__file__).resolve()), url, str(scaled_seconds(SECONDS))]
    running = [
        subprocess.Popen([*command, str(broker)], stdout=subprocess.PIPE, cwd=ROOT)
        for broker in range(1, PROCESSES + 1)
    ]
    told = [json.loads(each.communicate()[0]) for each in running]
    counts = [each["commits"] for each in told]
    return Sample(
        {
            "commits/s": sum(each["commits"] / each["seconds"] for each in told),
            "slowest over fastest": min(counts) / max(counts),
            "longest ms": max(each["longest_ms"] for each in told),
        }
    )


async def _close(url: str) -> None:
    """Make the file and its partitions, so that no process does while others commit."""
    await (await writer(url, 1)).close()


async def commit_for(url: str, seconds: float, broker: int) -> dict[str, float]:
    """Commit objects of twelve partitions for so long."""
    coordinator = await open_coordinator(url, CLUSTER)
    await coordinator.register(broker, EPOCH)
    taken: list[float] = []
    begin = time.perf_counter()
    while time.perf_counter() < begin + seconds:
        taken += await commit_seconds(coordinator, await commits_of(coordinator, broker, 16, 12))
    passed = time.perf_counter() - begin
    await coordinator.close()
    return {"commits": len(taken), "seconds": passed, "longest_ms": max(taken) * 1000}


def raw_rate(folder: Path, sizes: Sequence[int]) -> tuple[float, float]:
    """MB/s and CPU seconds a GB of storing objects of these sizes without a broker; their bytes are
    as incompressible as those that producers send."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    content = memoryview(POOL * -(-max(sizes) // len(POOL)))
    begin = time.process_time()
    seconds = asyncio.run(_store(f"file://{folder.resolve()}", [content[:each] for each in sizes]))
    busy = time.process_time() - begin
    shutil.rmtree(folder)
    return sum(sizes) / seconds / 1e6, busy / (sum(sizes) / 1e9)


async def _store(url: str, contents: Sequence[memoryview]) -> float:
    store = await open_objects(url)
    some = asyncio.Semaphore(PROCESSES * MOST_UPLOADS)

    async def put(number: int, content: memoryview) -> None:
        async with some:
            await store.put(f"{CLUSTER}/wal/{number % 256:02x}/{number}", [content])

    begin = time.perf_counter()
    await asyncio.gather(*(put(number, each) for number, each in enumerate(contents)))
    seconds = time.perf_counter() - begin
    await store.close()
    return seconds


if __name__ == "__main__":
    print(json.dumps(asyncio.run(commit_for(sys.argv[1], float(sys.argv[2]), int(sys.argv[3])))))
