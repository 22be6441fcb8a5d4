"""Compaction of diskless topics on real brokers: readers, retention, jobs that die, a restore."""

from __future__ import annotations

import asyncio
import json
import sqlite3
import subprocess
import threading
import time
from contextlib import closing
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic, OffsetSpec
from tests.pipelines.compaction_kit import run_here
from tests.pipelines.tiering_kit import SECONDS, rows_of, store_folder

from anabranch.cli.main import main
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.tiering.compaction_plan import grouped
from anabranch.pipelines import compaction, compaction_task, tiering
from anabranch.pipelines.compaction import compact
from anabranch.pipelines.tiering import Where, tier
from anabranch.stores.coordinator.engines import open_coordinator
from anabranch.stores.objects.engines import open_objects
from anabranch.stores.objects.folder import FolderStore
from anabranch.stores.objects.verification import read_store, restore, verify
from anabranch.testing import LocalCluster

KEYS = 20
SETTINGS = {
    "diskless.enable": "true",
    "cleanup.policy": "compact",
    "diskless.tiering.age.ms": "0",
    "diskless.tiering.min.segment.bytes": "1",
    "segment.bytes": "1048576",
    "min.cleanable.dirty.ratio": "0.01",
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("compaction")


@pytest.fixture(scope="module")
def cluster(folder):
    with LocalCluster(brokers=1, folder=folder) as started:
        started.own_folder = folder
        yield started


@pytest.fixture
def here(monkeypatch):
    """Tasks run in this process, one after the other, without Spark."""

    def waves(_spark, items, work):
        for each in items:
            yield [(each, json.loads(json.dumps(work(each))))]

    monkeypatch.setattr(tiering, "waves", waves)
    monkeypatch.setattr(compaction, "run_groups", run_here)


@pytest.fixture
def admin(cluster):
    return AdminClient({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})


@pytest.fixture
def where(cluster):
    return Where(cluster.bootstrap_servers, f"file://{store_folder(cluster)}")


def make(admin, name, partitions=1, **settings):
    config = {**SETTINGS, **{key.replace("_", "."): value for key, value in settings.items()}}
    topic = NewTopic(name, partitions, replication_factor=-1, config=config)
    for future in admin.create_topics([topic]).values():
        future.result(SECONDS)


def write(cluster, name, first, count, *, partitions=1, keys=KEYS, **config):
    """Values `first`, `first` + 1 …, whose keys come again and again."""
    failures = []
    producer = Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0, "linger.ms": 5, **config}
    )
    for number in range(first, first + count):
        producer.produce(
            name, b"value %d" % number * 5, key=b"key %d" % (number % keys),
            partition=number % partitions,
            on_delivery=lambda error, _: failures.append(error) if error else None,
        )  # fmt: skip
        if number % 50 == 49:
            producer.flush(SECONDS)
    assert producer.flush(SECONDS) == 0
    assert not failures


def read(cluster, name, partition, end, offset=OFFSET_BEGINNING):
    """(offset, key, value) up to an offset."""
    config = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "none", "log_level": 0}
    found = []
    with closing(Consumer({**config, "enable.partition.eof": True})) as consumer:
        consumer.assign([TopicPartition(name, partition, offset)])
        while True:
            batch = consumer.consume(500, SECONDS)
            assert batch, found[-1:]
            for each in batch:
                if each.error() and each.error().code() == -191:
                    assert consumer.position([TopicPartition(name, partition)])[0].offset == end
                    return found
                assert not each.error(), each.error()
                found.append((each.offset(), each.key(), each.value()))


def newest_of(records):
    """The last record of each key, in order."""
    newest = {key: (offset, key, value) for offset, key, value in records}
    return sorted(each for each in newest.values() if each[2] is not None)


def segments_of(cluster, name):
    return rows_of(
        cluster, "SELECT s.start_offset, s.end_offset, s.byte_size FROM remote_segments s JOIN "
        "logs USING (topic_id, partition) WHERE topic_name = ? AND s.state = 1 ORDER BY 1", name,
    )  # fmt: skip


def fill(cluster, where, name, waves=3, count=200, **more):
    """Some segments."""
    for number in range(waves):
        write(cluster, name, number * count, count, **more)
        assert tier(None, where).faults == {}


@pytest.mark.slow
def test_the_newest_records_stay_and_readers_come_to_the_end(cluster, admin, where, here):
    make(admin, "whole", 2)
    fill(cluster, where, "whole", partitions=2)
    before = [read(cluster, "whole", each, 300) for each in range(2)]
    size = sum(each[2] for each in segments_of(cluster, "whole"))
    done = compact(None, where)
    assert (done.partitions, done.faults, done.given_up) == (2, {}, 0)
    assert (done.segments, done.replaced, done.bytes_before) == (2, 6, size)
    assert done.bytes_after == sum(each[2] for each in segments_of(cluster, "whole")) < size / 10
    after = [read(cluster, "whole", each, 300) for each in range(2)]
    assert after == [newest_of(each) for each in before]
    assert read(cluster, "whole", 0, 300, 150) == after[0]
    assert compact(None, where).partitions == 0, "there is nothing dirty"
    write(cluster, "whole", 600, 100, partitions=2)
    assert read(cluster, "whole", 0, 350)[:10] == after[0]
    rows = rows_of(
        cluster, "SELECT l.byte_size, (SELECT sum(byte_size) FROM remote_segments s WHERE "
        "s.topic_id = l.topic_id AND s.partition = l.partition AND s.state = 1), (SELECT "
        "sum(byte_size) FROM runs r WHERE r.topic_id = l.topic_id AND r.partition = l.partition) "
        "FROM logs l WHERE topic_name = 'whole'",
    )  # fmt: skip
    assert all(total == segments + runs for total, segments, runs in rows)


@pytest.mark.slow
def test_tombstones_remove_their_keys_and_go_in_time(cluster, admin, where, here):
    make(admin, "tombs", delete_retention_ms="0")
    write(cluster, "tombs", 0, 40)
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    for number in range(0, KEYS, 2):
        producer.produce("tombs", None, key=b"key %d" % number)
    assert producer.flush(SECONDS) == 0
    tier(None, where)
    write(cluster, "tombs", 41, 1)
    tier(None, where)
    live = {b"key %d" % number for number in range(1, KEYS, 2)}
    for _ in range(3):
        assert compact(None, where).faults == {}
        assert {key for _, key, value in read(cluster, "tombs", 0, 51) if value} == live
    assert len(read(cluster, "tombs", 0, 51)) >= len(live)


def test_records_without_a_key_are_refused(cluster, admin, where):
    make(admin, "keyed")
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0})
    refused = []
    producer.produce("keyed", b"value", on_delivery=lambda error, _: refused.append(error))
    producer.flush(SECONDS)
    assert refused[0].code() == ErrorCode.INVALID_RECORD


@pytest.mark.slow
def test_look_ups_by_time_and_by_partition_end_still_hold(cluster, admin, where, here):
    make(admin, "times")
    fill(cluster, where, "times", waves=2, count=100)
    assert compact(None, where).partitions == 1
    (first, *_) = read(cluster, "times", 0, 200)
    partition = TopicPartition("times", 0)
    for broker in cluster.brokers:
        asks = AdminClient({"bootstrap.servers": f"{broker.host}:{broker.port}", "log_level": 0})
        for spec, offset in (
            (OffsetSpec.earliest(), 0),
            (OffsetSpec.latest(), 200),
            (OffsetSpec.for_timestamp(1), first[0]),
        ):
            asked = asks.list_offsets({partition: spec})[partition]
            assert asked.result(SECONDS).offset == offset
    admin.delete_records([TopicPartition("times", 0, 190)])[partition].result(SECONDS)
    assert [each[0] for each in read(cluster, "times", 0, 200)] == list(range(190, 200))


@pytest.mark.slow
def test_readers_of_segments_that_go_meanwhile_read_on(cluster, admin, where, here):
    """What a broker knew of is gone from the store: it asks for what there is now."""
    make(admin, "gone")
    fill(cluster, where, "gone")
    before = read(cluster, "gone", 0, 600)
    old = {each.name for each in _folders(cluster, "gone")}
    assert compact(None, where).partitions == 1
    for each in _folders(cluster, "gone"):
        if each.name in old:
            for one in each.iterdir():
                one.unlink()
    assert read(cluster, "gone", 0, 600) == newest_of(before)


def _folders(cluster, name):
    topic_id = rows_of(cluster, "SELECT topic_id FROM logs WHERE topic_name = ?", name)[0][0]
    return list(store_folder(cluster).rglob(f"{topic_id.hex()}-0/*"))


@pytest.mark.slow
def test_a_task_that_dies_changes_nothing_and_the_next_job_goes_on(
    cluster, admin, where, here, monkeypatch
):
    make(admin, "died")
    fill(cluster, where, "died")
    before, old = read(cluster, "died", 0, 600), segments_of(cluster, "died")
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
            done = compact(None, where)
        assert done.partitions == 0 and "killed" in done.faults["died-0"]
        assert segments_of(cluster, "died") == old
    assert read(cluster, "died", 0, 600) == before
    assert compact(None, where).partitions == 1
    assert read(cluster, "died", 0, 600) == newest_of(before)
    states = rows_of(
        cluster, "SELECT count(*) FROM remote_segments s JOIN logs USING (topic_id, "
        "partition) WHERE topic_name = 'died' AND s.state = 0",
    )  # fmt: skip
    assert states == [(0,)]


def test_keys_that_could_not_be_read_leave_their_partition_as_it_is(
    cluster, admin, where, here, monkeypatch
):
    make(admin, "unread")
    monkeypatch.setattr(compaction, "grouped", lambda segments, _most: grouped(segments, 1))
    fill(cluster, where, "unread", count=50)
    old = segments_of(cluster, "unread")
    reads = compaction_task.keys_of
    asked = []

    def keys_of(group, files):
        asked.append(group)
        if len(asked) == 1:
            raise StorageFault("away")
        return reads(group, files)

    monkeypatch.setattr(compaction_task, "keys_of", keys_of)
    done = compact(None, where)
    assert "run the job again" in done.faults["unread-0"]
    assert segments_of(cluster, "unread") == old
    assert compact(None, where).faults == {}


@pytest.mark.parametrize(
    ("name", "words"),
    [(".log", "is damaged"), (".snapshot", "there is no object")],
)
def test_a_damaged_segment_is_told_with_the_reason(cluster, admin, where, here, name, words):
    """To run the job again would be of no help."""
    topic = f"rotten-{name.strip('.')}"
    make(admin, topic)
    fill(cluster, where, topic, waves=2, count=50)
    old = segments_of(cluster, topic)
    (path, *_) = [one for each in _folders(cluster, topic) for one in each.glob(f"*{name}")]
    held = path.read_bytes()
    path.unlink()
    if name == ".log":
        path.write_bytes(held[:-1] + bytes([held[-1] ^ 1]))
    done = compact(None, where)
    assert words in done.faults[f"{topic}-0"]
    assert "run the job again" not in done.faults[f"{topic}-0"]
    assert segments_of(cluster, topic) == old
    path.write_bytes(held)
    assert compact(None, where).faults == {}


@pytest.mark.slow
def test_a_task_that_is_run_again_leaves_nothing_behind(cluster, admin, where, here, monkeypatch):
    """Spark runs a task again whose executor was killed after it had stored a segment."""
    make(admin, "again")
    fill(cluster, where, "again", waves=2, count=50)
    before = read(cluster, "again", 0, 100)

    def twice(spark, tasks):
        run_here(spark, tasks)
        return run_here(spark, tasks)

    monkeypatch.setattr(compaction, "run_groups", twice)
    done = compact(None, where)
    assert (done.given_up, done.faults) == (0, {})
    assert read(cluster, "again", 0, 100) == newest_of(before)
    states = rows_of(
        cluster, "SELECT s.state, count(*) FROM remote_segments s JOIN logs USING (topic_id, "
        "partition) WHERE topic_name = 'again' GROUP BY s.state ORDER BY s.state",
    )  # fmt: skip
    assert states == [(1, 1), (2, 3)], "of two tries one counts, the other one is being removed"


def test_two_jobs_at_once_are_told_apart(cluster, admin, where, here, monkeypatch):
    make(admin, "both")
    fill(cluster, where, "both", waves=1)

    def refused(spark, tasks):
        with pytest.raises(ApiError, match="is at work") as refusal:
            compact(None, where)
        assert refusal.value.code is ErrorCode.CONCURRENT_TRANSACTIONS
        write(cluster, "both", 200, 10)
        assert tier(None, where).segments == 1, "tiering has another claim"
        return run_here(spark, tasks)

    monkeypatch.setattr(compaction, "run_groups", refused)
    done = compact(None, where)
    assert (done.partitions, done.given_up) == (1, 0)
    assert len(segments_of(cluster, "both")) == 2


def test_a_job_that_lost_its_claim_changes_nothing(cluster, admin, where, here, monkeypatch):
    make(admin, "lost")
    fill(cluster, where, "lost", waves=1)
    old = segments_of(cluster, "lost")

    def robbed(spark, tasks):
        answers = run_here(spark, tasks)
        (path,) = Path(cluster.own_folder).rglob("diskless.db")
        with closing(sqlite3.connect(path, timeout=SECONDS)) as on:
            on.execute("UPDATE compaction_claims SET claim_id = 1")
            on.commit()
        return answers

    monkeypatch.setattr(compaction, "run_groups", robbed)
    done = compact(None, where)
    assert (done.partitions, done.faults) == (0, {})
    assert done.given_up >= 1
    assert segments_of(cluster, "lost") == old
    (path,) = Path(cluster.own_folder).rglob("diskless.db")
    with closing(sqlite3.connect(path, timeout=SECONDS)) as on:
        on.execute("DELETE FROM compaction_claims")
        on.commit()


@pytest.mark.slow
def test_on_spark_while_readers_read(cluster, admin, where, spark):
    """Two partitions with several groups each; readers meanwhile get old or new records,
    and of each key the newest one."""
    make(admin, "spark", 2)
    for number in range(3):
        write(cluster, "spark", number * 400, 400, partitions=2)
        assert tier(spark, where).faults == {}
    before = [read(cluster, "spark", each, 600) for each in range(2)]
    over, seen, failures = threading.Event(), [], []

    def read_on():
        try:
            while not over.is_set():
                seen.append([newest_of(read(cluster, "spark", each, 600)) for each in range(2)])
        except BaseException as fault:
            failures.append(fault)

    reader = threading.Thread(target=read_on)
    reader.start()
    try:
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(compaction, "grouped", lambda segments, _most: grouped(segments, 1))
            done = compact(spark, where)
        time.sleep(1)
    finally:
        over.set()
        reader.join()
    assert not failures
    assert (done.faults, done.given_up) == ({}, 0)
    assert done.partitions >= 2  # of the other topics, some have nothing that would change
    assert seen
    assert all(each == [newest_of(one) for one in before] for each in seen)
    assert [read(cluster, "spark", each, 600) for each in range(2)] == seen[0]


def test_kafkas_dump_tool_reads_every_file_of_a_compacted_segment(
    cluster, admin, where, here, tmp_path
):
    jars = Path(__file__).parents[2] / ".cache/kafka"
    if not jars.exists():
        pytest.skip("Apache Kafka's jars are not there: scripts/kafka-jars")
    make(admin, "dumped")
    fill(cluster, where, "dumped", count=150, keys=100, **{"enable.idempotence": True})
    old = {each.name for each in _folders(cluster, "dumped")}
    assert compact(None, where).faults == {}
    (new,) = [each for each in _folders(cluster, "dumped") if each.name not in old]
    files = sorted(each for each in new.iterdir() if each.suffix != ".json")
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
    assert "lastOffset: 449" in told and "producerId" in told, told


def test_a_lost_coordinator_is_restored_with_its_compacted_segments(tmp_path, here):
    """Also where the store still has the segments that they took the place of."""
    with LocalCluster(brokers=1, folder=tmp_path) as running:
        running.own_folder = tmp_path
        admin = AdminClient({"bootstrap.servers": running.bootstrap_servers, "log_level": 0})
        make(admin, "kept")
        where = Where(running.bootstrap_servers, f"file://{store_folder(running)}")
        fill(running, where, "kept", waves=2)
        old = {
            each: {one.name: one.read_bytes() for one in each.iterdir()}
            for each in _folders(running, "kept")
        }
        assert compact(None, where).partitions == 1
        write(running, "kept", 400, 60)
        query = (
            "SELECT topic_id, partition, log_start_offset, high_watermark, byte_size, "
            "tiered_end_offset FROM logs ORDER BY 1, 2"
        )
        segments = segments_of(running, "kept")
        before = rows_of(running, query)
        cluster_id, store = running.cluster_id, f"file://{store_folder(running)}"
    for folder, files in old.items():
        folder.mkdir(exist_ok=True)
        for name, held in files.items():
            (folder / name).write_bytes(held)
    new = tmp_path / "new" / "diskless.db"
    new.parent.mkdir()

    async def rebuilt():
        objects = await open_objects(store)
        coordinator = await open_coordinator(f"sqlite://{new}", cluster_id)
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
    with closing(sqlite3.connect(new)) as on:
        assert on.execute(query).fetchall() == before
        found = "SELECT start_offset, end_offset, byte_size FROM remote_segments WHERE state = 1"
        assert on.execute(found).fetchall() == segments
        assert on.execute("SELECT count(*) FROM remote_segments WHERE state = 2").fetchone() == (2,)


def test_a_dry_run_tells_what_is_due_and_starts_no_spark(cluster, admin, where, here):
    make(admin, "due")
    write(cluster, "due", 0, 30)
    arguments = ["spark", "compact", "--bootstrap-server", cluster.bootstrap_servers, "--dry-run"]
    told = CliRunner().invoke(main, arguments)
    assert told.exit_code == 0, told.output
    assert "due-0: nothing is tiered; 30 records not tiered\n" in told.stdout
    tier(None, where)
    told = CliRunner().invoke(main, arguments)
    assert "MB dirty; would be compacted" in told.stdout.split("due-0: ")[1].split("\n")[0]
    assert compact(None, where).faults == {}
    as_json = json.loads(CliRunner().invoke(main, [*arguments, "--json"]).stdout)
    (found,) = [each for each in as_json["waiting"] if each["name"] == "due-0"]
    assert (found["dirty_bytes"], found["is_due"], found["untiered_records"]) == (0, False, 0)
