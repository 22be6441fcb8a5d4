"""Tiering of diskless topics on real brokers: segments, reads across the boundary, jobs that die."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
from contextlib import closing
from pathlib import Path

import psycopg
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec
from tests.pipelines.tiering_kit import (
    BEGIN_MS,
    SECONDS,
    VALUES,
    make,
    read,
    rows_of,
    runs,
    store_folder,
    write,
)

from anabranch.core.diskless.claim import CLAIM_KEY
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.wire.messages.tier_segment import FINISH, START
from anabranch.pipelines import tiering, tiering_task
from anabranch.pipelines.tiering import Where, key_ranges, tier
from anabranch.pipelines.tiering_task import Part
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.coordinator.postgres import SCHEMA
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.folder import FolderStore
from anabranch.stores.objects.verification import read_store, restore, verify
from anabranch.testing import LocalCluster


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("tiering")


@pytest.fixture(scope="module")
def cluster(folder):
    with LocalCluster(brokers=3, racks=["a", "b", "c"], folder=folder) as started:
        started.own_folder = folder
        yield started


@pytest.fixture(autouse=True)
def here(monkeypatch):
    """Tasks run in this process, one after the other, without Spark."""

    def waves(_spark, items, work):
        for each in items:
            yield [(each, json.loads(json.dumps(work(each))))]

    monkeypatch.setattr(tiering, "waves", waves)


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


@pytest.fixture
def where(cluster):
    return Where(cluster.bootstrap_servers, f"file://{store_folder(cluster)}")


def test_aged_records_become_segments_and_readers_notice_nothing(cluster, admin, where):
    make(admin, "whole")
    write(cluster, "whole", **{"enable.idempotence": True})
    before = [read(cluster, "whole", each, VALUES // 2) for each in range(2)]
    assert runs(cluster, "whole") >= 2
    done = tier(None, where)
    assert (done.segments, done.faults, done.given_up) == (2, {}, 0)
    assert done.rows_freed and runs(cluster, "whole") == 0
    assert [read(cluster, "whole", each, VALUES // 2) for each in range(2)] == before
    write(cluster, "whole", 40, first=VALUES)
    after = [read(cluster, "whole", each, VALUES // 2 + 20) for each in range(2)]
    assert [each[: VALUES // 2] for each in after] == before
    for broker in cluster.brokers:  # each of them, by itself
        asks = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
        partition = TopicPartition("whole", 0)
        for spec, offset in (
            (OffsetSpec.earliest(), 0),
            (OffsetSpec.latest(), VALUES // 2 + 20),
            (OffsetSpec.for_timestamp(BEGIN_MS + 100), 50),
            (OffsetSpec.for_timestamp(BEGIN_MS + VALUES), VALUES // 2),
            (OffsetSpec.max_timestamp(), VALUES // 2 + 19),
        ):
            asked = asks.list_offsets({partition: spec})[partition]
            assert asked.result(SECONDS).offset == offset
    tier(None, where)


def test_the_next_wave_goes_on_where_the_last_one_ended(cluster, admin, where):
    make(admin, "waves", 1)
    for number in range(3):
        write(cluster, "waves", 100, partitions=1, first=100 * number)
        assert tier(None, where).segments == 1
    assert [each[0] for each in read(cluster, "waves", 0, 300)] == list(range(300))
    assert read(cluster, "waves", 0, 150, 150)[0][0] == 150
    assert tier(None, where).segments == 0


def test_a_task_that_dies_leaves_its_rows_and_the_next_wave_makes_its_segment(
    cluster, admin, where, monkeypatch
):
    make(admin, "died", 1)
    write(cluster, "died", 100, partitions=1)
    puts = FolderStore.put
    for name in (".log", ".index", "leader-epoch-checkpoint", "segment.json"):
        with monkeypatch.context() as context:

            async def put(self, key, buffers, name=name):
                if key.endswith(name):
                    raise StorageFault("the task was killed")
                await puts(self, key, buffers)

            async def put_large(self, key, source, name=name):
                await put(self, key, [b"".join([bytes(each) async for each in source.pieces()])])

            context.setattr(FolderStore, "put", put)
            context.setattr(FolderStore, "put_large", put_large)
            done = tier(None, where)
        assert done.segments == 0 and "killed" in done.faults["died-0"]
        assert runs(cluster, "died")
    assert tier(None, where).segments == 1
    assert [each[0] for each in read(cluster, "died", 0, 100)] == list(range(100))
    states = rows_of(
        cluster, "SELECT s.state, count(*) FROM remote_segments s JOIN logs USING (topic_id, "
        "partition) WHERE topic_name = 'died' GROUP BY s.state ORDER BY s.state",
    )  # fmt: skip
    assert states == [(1, 1), (2, 4)]


def test_a_task_that_is_run_again_counts_what_it_had_made(cluster, admin, where, monkeypatch):
    """Spark runs a task again whose executor was killed after it had made a segment."""
    make(admin, "again", 2)
    write(cluster, "again")

    def twice(_spark, items, work):
        for each in items:
            work(each)
            yield [(each, json.loads(json.dumps(work(each))))]

    monkeypatch.setattr(tiering, "waves", twice)
    done = tier(None, where)
    assert (done.segments, done.given_up, done.faults, done.left) == (2, 0, {}, set())
    assert done.rows_freed and runs(cluster, "again") == 0


def test_two_jobs_at_once_are_told_apart(cluster, admin, where, monkeypatch):
    make(admin, "both", 1)
    write(cluster, "both", 100, partitions=1)

    def refused(task):
        with pytest.raises(ApiError, match="is at work") as refusal:
            tier(None, where)
        assert refusal.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        return tiering_task.tier_task(task)

    monkeypatch.setattr(tiering, "tier_task", refused)
    assert tier(None, where).segments == 1


def test_each_step_finds_the_leader_where_leadership_has_moved(cluster, admin, where, monkeypatch):
    make(admin, "moved", 1)
    write(cluster, "moved", 40, partitions=1)
    step, asked = tiering_task.Try._step, []

    async def at_another(self, number):
        asked.append(number)
        self._leader._leader_id = self._leader._leader_id % 3 + 1  # as after an election
        return await step(self, number)

    monkeypatch.setattr(tiering_task.Try, "_step", at_another)
    done = tier(None, where)
    assert (done.segments, done.faults, done.given_up) == (1, {}, 0)
    assert asked == [START, FINISH]


def test_a_damaged_object_stops_its_partition_and_no_other(cluster, admin, where):
    make(admin, "sound", 1)
    make(admin, "damaged", 1)
    write(cluster, "damaged", 40, partitions=1)
    write(cluster, "sound", 40, partitions=1)
    (name,) = {
        row[0]
        for row in rows_of(
            cluster, "SELECT object_key FROM runs JOIN wal_objects USING (object_id) JOIN logs "
            "USING (topic_id, partition) WHERE topic_name = 'damaged' ORDER BY base_offset LIMIT 1",
        )
    }  # fmt: skip
    path = store_folder(cluster) / name
    held = bytearray(path.read_bytes())
    at = held.index(b"value 0value 0")
    held[at] ^= 1
    path.write_bytes(held)
    done = tier(None, where)
    assert done.segments == 1
    assert list(done.faults) == ["damaged-0"]
    assert "does not match its checksum" in done.faults["damaged-0"]
    assert runs(cluster, "damaged")
    admin.delete_topics(["damaged"])["damaged"].result(SECONDS)


def test_a_store_of_another_cluster_is_refused(cluster, admin, where, tmp_path):
    make(admin, "elsewhere", 1)
    with pytest.raises(StorageFault, match="not the store of cluster"):
        tier(None, where._replace(storage_url=f"file://{tmp_path}"))
    (tmp_path / CLAIM_KEY).write_text('{"cluster_id": "another", "store_id": "x"}')
    with pytest.raises(StorageFault, match="belongs to cluster 'another'"):
        tier(None, where._replace(storage_url=f"file://{tmp_path}"))


def test_kafkas_dump_tool_reads_every_file_of_a_segment(cluster, admin, where, tmp_path):
    jars = Path(__file__).parents[2] / ".cache/kafka"
    if not jars.exists():
        pytest.skip("Apache Kafka's jars are not there: scripts/kafka-jars")
    make(admin, "dumped", 1)
    write(cluster, "dumped", 300, partitions=1, **{"enable.idempotence": True, "batch.size": 2000})
    assert tier(None, where).segments == 1
    topic_id = rows_of(cluster, "SELECT topic_id FROM logs WHERE topic_name = 'dumped'")[0][0]
    (folder,) = store_folder(cluster).rglob(f"{topic_id.hex()}-0/*")
    files = sorted(each for each in folder.iterdir() if each.suffix != ".json")
    assert len(files) == 5
    copy = tmp_path / "dumped-0"
    copy.mkdir()
    for each in files:
        (copy / each.name).write_bytes(each.read_bytes())
    names = ",".join(str(copy / each.name) for each in files if "checkpoint" not in each.name)
    dumped = subprocess.run(
        ["java", "-cp", f"{jars}/*", "kafka.tools.DumpLogSegments", "--files", names,
         "--index-sanity-check"],
        capture_output=True, text=True, timeout=120, check=False,
    )  # fmt: skip
    told = dumped.stdout + dumped.stderr
    assert dumped.returncode == 0, told
    assert "passed sanity check" in told and "Mismatches" not in told, told
    assert "lastOffset: 299" in told, told
    assert "producerId" in told and "crc" in told


LOGS = (
    "SELECT topic_id, partition, log_start_offset, high_watermark, byte_size, tiered_end_offset "
    "FROM {}logs ORDER BY 1, 2"
)


def logs_in(url):
    """The partitions that a coordinator has."""
    if url.startswith("sqlite://"):
        with closing(sqlite3.connect(url.removeprefix("sqlite://"))) as on:
            return on.execute(LOGS.format("")).fetchall()
    with psycopg.connect(url) as on:
        rows = on.execute(LOGS.format(f"{SCHEMA}.").encode()).fetchall()
    return [(bytes(topic_id), *others) for topic_id, *others in rows]


@pytest.mark.parametrize("engine", ["sqlite", "postgres"])
def test_a_lost_coordinator_is_restored_with_its_segments(tmp_path, engine, request):
    databases = [f"sqlite://{tmp_path}/{each}.db" for each in ("old", "new")]
    if engine == "postgres":
        databases = [str(request.getfixturevalue("postgres").new_database()) for _ in databases]
    old, new = databases
    config = {"diskless.coordinator.url": old}
    with LocalCluster(brokers=1, folder=tmp_path, config=config) as running:
        running.own_folder = tmp_path
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
        make(admin, "kept", 2)
        write(running, "kept", 200)
        store = f"file://{store_folder(running)}"
        assert tier(None, Where(running.bootstrap_servers, store)).segments == 2
        write(running, "kept", 60, first=200)
        before = logs_in(old)
        cluster_id = running.cluster_id

    async def rebuilt():
        objects = await open_objects(store)
        coordinator = await open_coordinator(new, cluster_id)
        try:
            held = await read_store(objects)
            done = await restore(objects, coordinator, held, with_unknown=False, now_ms=1)
            again = await read_store(objects)
            return done, await verify(objects, coordinator, again, is_whole=True)
        finally:
            await coordinator.close()
            await objects.close()

    done, verified = asyncio.run(rebuilt())
    assert [each for each in done.findings if each.kind.is_damage] == []
    assert [each for each in verified.findings if each.kind.is_damage] == []
    assert logs_in(new) == before
    assert all(row[-1] == 100 for row in before)


def test_neighbours_by_key_go_into_one_task():
    def part(number, size):
        return Part(bytes(16), "t", number, 1, 0, 1, b"", -1, -1, (("o", 0, 1, 0, size, 0, 0),))

    parts = [part(number, size) for number, size in enumerate((50, 50, 1, 200, 5))]
    cut = [[each.partition for each in taken] for taken in key_ranges(parts, 100)]
    assert cut == [[0, 1], [2], [3], [4]]


def test_what_runs_span_of_an_object_is_read_in_one_piece():
    spans = list(tiering_task._spans([(100, 200), (0, 50), (300, 400)]))
    assert spans == [(0, 400)]
    far = tiering_task.MOST_GAP_BYTES
    assert list(tiering_task._spans([(0, 50), (51 + far, 60 + far)])) == [(0, 50), (51 + far, 9)]
