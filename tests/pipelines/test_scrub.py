"""`scrub` against real brokers: equal replicas, one that was changed on its disk, one that is away."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from confluent_kafka import Producer

from anabranch.core.wire.batch import walk
from anabranch.pipelines.compacted import compare_records
from anabranch.pipelines.comparison import UNREACHABLE
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.offset_ranges import Place
from anabranch.pipelines.scrub import Partition, look, pieces_of, scrub
from anabranch.pipelines.waves import Notes, NotesFault
from anabranch.testing import LocalCluster

RECORDS = 5_000
SMALL_RANGE = 100_000


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(brokers=3) as running:
        yield running


def fill(cluster, topic, *, partitions=1, config=None, records=RECORDS):
    cluster.create_topic(topic, partitions=partitions, replication_factor=3, config=config or {})
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"})
    for number in range(records):
        producer.produce(topic, key=f"k{number % 50}", value=f"value {number}".encode() * 5)
        if number % 500 == 0:
            producer.flush()  # several batches
    producer.produce(topic, key="k7", value=None)
    assert producer.flush(30) == 0


def segment_of(cluster, topic, broker_id):
    folder = next(each.folder for each in cluster.brokers if each.broker_id == broker_id)
    (found,) = Path(folder).rglob(f"{topic}-0/*.log")
    return found


def flip_last_value(segment):
    """Change the last byte but one of a file of record batches, as a rotting disk might."""
    with open(segment, "r+b") as file:
        file.seek(-30, 2)
        byte = file.read(1)
        file.seek(-30, 2)
        file.write(bytes([byte[0] ^ 1]))


@pytest.fixture
def here(monkeypatch):
    """Tasks run in this process, one after the other, without Spark."""

    def waves(_spark, items, work):
        yield [(each, json.loads(json.dumps(work(each)))) for each in items]

    monkeypatch.setattr(f"{scrub.__module__}.waves", waves)


def test_a_replica_that_was_away_is_compared_when_the_scrub_goes_on(here, cluster, tmp_path):
    fill(cluster, "returned", records=500)
    segment = segment_of(cluster, "returned", 3)
    notes = tmp_path / "notes.jsonl"
    with cluster.kill(3):
        first = scrub(None, cluster.bootstrap_servers, ["returned"], notes_path=notes)
        assert not first.differing and first.not_compared
    cluster.wait_in_sync("returned")
    flip_last_value(segment)
    again = scrub(None, cluster.bootstrap_servers, ["returned"], notes_path=notes)
    assert [each["brokers"] for each in again.differences] == [[3]]


def test_notes_of_a_topic_do_not_count_for_another_of_the_same_name(here, cluster, tmp_path):
    notes = tmp_path / "notes.jsonl"
    fill(cluster, "again", records=500)
    scrub(None, cluster.bootstrap_servers, ["again"], notes_path=notes)
    without_its_end(notes)
    cluster.delete_topic("again")
    fill(cluster, "again", records=500)
    flip_last_value(segment_of(cluster, "again", 2))
    again = scrub(None, cluster.bootstrap_servers, ["again"], notes_path=notes)
    assert [each["brokers"] for each in again.differences] == [[2]]


def test_a_scrub_that_ended_is_begun_anew(here, cluster, tmp_path):
    notes = tmp_path / "notes.jsonl"
    fill(cluster, "nightly", records=500)
    assert scrub(None, cluster.bootstrap_servers, ["nightly"], notes_path=notes).is_clean
    flip_last_value(segment_of(cluster, "nightly", 2))
    rotten = scrub(None, cluster.bootstrap_servers, ["nightly"], notes_path=notes)
    assert [each["brokers"] for each in rotten.differences] == [[2]]


def without_its_end(notes):
    """A file of notes as a scrub leaves it that was killed before its end."""
    lines = notes.read_bytes().splitlines(keepends=True)
    notes.write_bytes(b"".join(each for each in lines if b'"name"' in each or b'"job"' in each))


def test_equal_replicas_of_several_topics_are_equal(spark, cluster):
    fill(cluster, "sound", partitions=3)
    lines = []
    report = scrub(
        spark, cluster.bootstrap_servers, ["sound"], range_bytes=SMALL_RANGE, tell=lines.append
    )
    assert report.is_clean, report
    assert (report.partitions, report.replicas) == (3, 9)
    assert report.bytes_read >= 3 * RECORDS * 35
    assert "ranges" in lines[-1]


def test_a_byte_that_rotted_on_one_disk_is_found(spark, cluster):
    fill(cluster, "rotten")
    flip_last_value(segment_of(cluster, "rotten", 2))
    report = scrub(spark, cluster.bootstrap_servers, ["rotten"], range_bytes=SMALL_RANGE)
    (difference,) = report.differences
    assert (difference["kind"], difference["brokers"]) == ("corrupt", [2])
    assert "on broker 2" in difference["sentence"]


@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_a_replica_without_its_first_segment_lacks_those_offsets(spark, cluster, policy):
    topic = f"without-first-{policy}"
    settings = {"cleanup.policy": policy, "internal.segment.bytes": 100_000, "retention.ms": -1}
    fill(cluster, topic, config=settings)
    folder = next(each.folder for each in cluster.brokers if each.broker_id == 3)
    with cluster.kill(3):
        first, *others = sorted(Path(folder).rglob(f"{topic}-0/*.log"))
        assert others
        for each in first.parent.glob(f"{first.stem}.*"):
            each.unlink()
    cluster.wait_in_sync(topic)
    report = scrub(spark, cluster.bootstrap_servers, [topic])
    (told,) = report.differences
    assert (told["kind"], told["offset"], told["brokers"]) == ("missing", 0, [3])
    assert f"its log begins at {int(others[0].stem)}" in told["sentence"]
    assert not report.not_compared


def test_a_diskless_topic_has_no_replicas_to_compare(here, cluster):
    cluster.create_topic("objects", config={"diskless.enable": True})
    with pytest.raises(PipelineFault, match=r"'objects' is diskless: .* `anabranch diskless"):
        scrub(None, cluster.bootstrap_servers, ["objects"])
    _, partitions, _ = asyncio.run(look(cluster.bootstrap_servers, None))
    assert "objects" not in {each.place.topic for each in partitions}


@pytest.mark.slow
def test_compacted_replicas_are_compared_by_record_and_key(spark, cluster):
    compact = {"cleanup.policy": "compact"}
    fill(cluster, "compacted", config=compact)
    report = scrub(spark, cluster.bootstrap_servers, ["compacted"])
    assert report.is_clean, report
    assert report.bytes_read >= 3 * RECORDS * 35
    flip_last_value(segment_of(cluster, "compacted", 3))
    rotten = scrub(spark, cluster.bootstrap_servers, ["compacted"])
    assert {"corrupt", "latest"} <= {each["kind"] for each in rotten.differences}
    assert all(3 in each["brokers"] or "3 at" in each["sentence"] for each in rotten.differences)


@pytest.mark.slow
def test_a_compacted_replica_that_goes_away_is_not_called_different(spark, cluster):
    fill(cluster, "compacted-away", config={"cleanup.policy": "compact"}, records=100)
    place = Place("compacted-away", 0)
    with cluster.kill(3):
        found = compare_records(spark, cluster.bootstrap_servers, place, (1, 2, 3), 0, 101)
    (told,) = found.differences
    assert (told.kind, told.brokers, found.differing) == (UNREACHABLE, (3,), 0)


@pytest.mark.slow
def test_records_of_aborted_transactions_are_no_difference(spark):
    """One replica has been compacted and the other has not."""
    compact = {
        "cleanup.policy": "compact", "segment.ms": 1000, "delete.retention.ms": 0,
        "min.cleanable.dirty.ratio": 0, "max.compaction.lag.ms": 500,
    }  # fmt: skip
    with LocalCluster(brokers=2, broker_config={2: {"log.cleaner.enable": False}}) as cluster:
        cluster.create_topic("aborted", partitions=1, replication_factor=2, config=compact)
        producer = Producer(
            {"bootstrap.servers": cluster.bootstrap_servers, "transactional.id": "t"}
        )
        producer.init_transactions()

        def transact(key, *, commits):
            producer.begin_transaction()
            producer.produce("aborted", key=key, value="value")
            producer.flush()
            (producer.commit_transaction if commits else producer.abort_transaction)()

        transact("kept", commits=True)
        transact("kept", commits=False)
        while len(kept := offsets_on(cluster, "aborted", 1)) == len(
            offsets_on(cluster, "aborted", 2)
        ):
            transact("again", commits=True)
            time.sleep(0.2)
        assert kept[0] == 0
        transact("open", commits=True)
        producer.begin_transaction()
        producer.produce("aborted", key="kept", value="open")
        producer.flush()
        report = scrub(spark, cluster.bootstrap_servers, ["aborted"])
        assert report.is_clean, report


def offsets_on(cluster, topic, broker_id):
    """The first offsets of the batches of data that a broker has on its disk."""
    folder = next(each.folder for each in cluster.brokers if each.broker_id == broker_id)
    return [
        header.base_offset
        for segment in sorted(Path(folder).rglob(f"{topic}-0/*.log"))
        for _, header in walk(segment.read_bytes())
        if not header.is_control and header.record_count
    ]


def test_what_is_done_is_not_done_again(spark, cluster, tmp_path):
    fill(cluster, "noted")
    notes = tmp_path / "notes.jsonl"
    first = scrub(
        spark, cluster.bootstrap_servers, ["noted"], range_bytes=SMALL_RANGE, notes_path=notes
    )
    lines = notes.read_bytes().splitlines(keepends=True)
    assert len(lines) > 2
    notes.write_bytes(b"".join(lines[:2]) + lines[2][:10])  # killed within a line
    again = scrub(
        spark, cluster.bootstrap_servers, ["noted"], range_bytes=SMALL_RANGE, notes_path=notes
    )
    assert again.bytes_read == first.bytes_read
    *_, end = after = notes.read_bytes().splitlines()
    names = [json.loads(line)["name"] for line in after[1:-1]]
    assert len(names) == len(set(names)) == len(lines) - 2
    assert json.loads(end) == {"finished": True}
    cluster.create_topic("unnoted", partitions=1, replication_factor=3)
    with pytest.raises(NotesFault, match="is of another job"):
        scrub(spark, cluster.bootstrap_servers, ["unnoted"], notes_path=notes)
    notes.write_text("no note\n")
    with pytest.raises(NotesFault, match="line 1: this is no note"):
        scrub(spark, cluster.bootstrap_servers, ["noted"], notes_path=notes)


@pytest.mark.parametrize("text", ['{"mine": 1}', "{", "mine", '{"job": {"job": "scrub", "mi'])
def test_a_file_that_is_not_of_notes_stays_as_it_is(tmp_path, text):
    path = tmp_path / "mine.json"
    path.write_text(text)
    job = {"job": "scrub", "topics": ["orders"]}
    if text == "{":  # as far as a kill let the first note come
        Notes(path, job).close()
        assert json.loads(path.read_text()) == {"job": job}
        return
    with pytest.raises(NotesFault, match="line 1: this is no note of a job; name another file"):
        Notes(path, job)
    assert path.read_text() == text


def test_pieces_have_no_gap_and_no_overlap():
    partition = Partition(Place("t", 0), (1, 2), (), 5, 1005, 10_000, False)
    pieces = list(pieces_of("b", partition, 1_000))
    assert len(pieces) == 10
    assert [each.start for each in pieces] == [5, *(each.until for each in pieces[:-1])]
    assert pieces[-1].until == 1005
    assert not list(pieces_of("b", partition._replace(until=5), 1_000))


@pytest.mark.slow
def test_a_broker_that_is_away_is_named_and_not_taken_for_equal(spark, cluster):
    fill(cluster, "alone")
    with cluster.kill(3):
        report = scrub(spark, cluster.bootstrap_servers, ["alone"])
    assert not report.differing and not report.is_clean
    assert [each["brokers"] for each in report.not_compared] == [[3]]


@pytest.mark.slow
def test_a_partition_without_a_leader_keeps_none_from_being_compared(here, cluster):
    cluster.create_topic("headless", partitions=3, replication_factor=1)
    replicas = {cluster.leader("headless", each): each for each in range(3)}
    with cluster.kill(3):
        report = scrub(None, cluster.bootstrap_servers, ["headless"])
    assert (report.partitions, report.replicas, report.differing) == (3, 2, 0)
    (told,) = report.not_compared
    assert (told["partition"], told["brokers"]) == (replicas[3], [3])
    assert "has no leader" in told["sentence"]
