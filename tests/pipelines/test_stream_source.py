"""Reading topics with `spark.readStream`, from real brokers, and starting again after a kill."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
import time

import psutil
import pytest
from confluent_kafka import Producer
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.streaming.datasource import ReadAllAvailable

from anabranch.client import admin
from anabranch.client.cluster import Cluster
from anabranch.pipelines import stream_source
from anabranch.pipelines.columns import BATCHES, RECORDS
from anabranch.pipelines.progress import lag
from anabranch.pipelines.range_reader import DataLoss
from anabranch.pipelines.stream_source import stream_reader_of

WAIT_SECONDS = 120

FIRST_ROWS_NEVER_END = """
import pathlib, sys, time
from anabranch.pipelines.session import local_session

options, checkpoint, rows, ready, begun = eval(sys.argv[1]), *sys.argv[2:]
spark = local_session(cores=1, conf={"spark.sql.streaming.noDataProgressEventInterval": "0"})
frame = spark.readStream.format("anabranch").options(**options).load()

def hang(batches):
    for batch in batches:
        pathlib.Path(begun).touch()
        time.sleep(600)
        yield batch

query = (
    frame.mapInArrow(hang, frame.schema)
    .selectExpr("topic", "partition", "offset", "string(value) value")
    .writeStream.format("json").option("path", rows).option("checkpointLocation", checkpoint)
    .trigger(processingTime="200 milliseconds").start()
)
while not query.lastProgress:
    time.sleep(0.05)
pathlib.Path(ready).touch()
query.awaitTermination()
"""


def until(condition, what, seconds=WAIT_SECONDS):
    """Wait for a condition."""
    end = time.monotonic() + seconds
    while not (found := condition()):
        assert time.monotonic() < end, f"{what} did not happen within {seconds} s"
        time.sleep(0.05)
    return found


@pytest.fixture
def stream(spark):
    """A streaming DataFrame of the options."""

    def loaded(options):
        return spark.readStream.format("anabranch").options(**options).load()

    return loaded


@pytest.fixture
def run(stream, tmp_path, spark):
    """Run a query over what is there; gives its progresses and all rows written so far."""

    def ran(options, *, checkpoint="checkpoint", **trigger):
        query = (
            stream(options)
            .select("topic", "partition", "offset", F.col("value").cast("string"))
            .writeStream.format("json")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / checkpoint))
            .trigger(**(trigger or {"availableNow": True}))
            .start()
        )
        query.awaitTermination(WAIT_SECONDS)
        fault = query.exception()
        query.stop()
        if fault is not None:
            raise fault
        rows = spark.read.schema("topic string, partition int, offset long, value string")
        found = rows.json(str(tmp_path / "rows")).collect()
        return query.recentProgress, sorted((row.partition, row.offset) for row in found)

    return ran


def offsets(partition, first, until):
    return [(partition, each) for each in range(first, until)]


def ends(progress):
    return [json.loads(each["sources"][0]["endOffset"]) for each in map(as_json, progress)]


def as_json(progress):
    return json.loads(progress.json) if not isinstance(progress, dict) else progress


@pytest.mark.slow
def test_a_stream_goes_on_where_its_checkpoint_ends(topics, run):
    topic = topics.create(partitions=2)
    topics.fill(topic, 0, 12)
    options = topics.options(topic, startingOffsets="earliest")
    assert run(options)[1] == offsets(0, 0, 12)
    topics.fill(topic, 0, 3, start=12)
    topics.fill(topic, 1, 4)
    progress, rows = run(options)
    assert rows == offsets(0, 0, 15) + offsets(1, 0, 4)
    assert ends(progress)[-1][topic] == {"0": 15, "1": 4}


@pytest.mark.slow
def test_admission_control_bounds_batches_and_ignores_the_least_when_only_now_counts(topics, run):
    topic = topics.create(partitions=2)
    topics.fill(topic, 0, 90)
    topics.fill(topic, 1, 10)
    options = topics.options(
        topic, startingOffsets="earliest", maxOffsetsPerTrigger="40", minOffsetsPerTrigger="40",
    )  # fmt: skip
    progress, rows = run(options)
    assert rows == offsets(0, 0, 90) + offsets(1, 0, 10)
    sizes = [as_json(each)["numInputRows"] for each in progress]
    assert [size for size in sizes if size] == [40, 40, 20]
    lags = [sum(lag(each).values()) for each in progress if as_json(each)["numInputRows"]]
    assert lags == [60, 20, 0]


@pytest.mark.slow
def test_partitions_that_are_added_are_read_from_their_beginning(topics, run):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    options = topics.options(topic, startingOffsets="earliest")
    run(options)
    asked(topics, lambda cluster: admin.create_partitions(cluster, topic, 2))
    until(lambda: topics.cluster.leader(topic, 1), "a leader of the new partition")
    topics.fill(topic, 1, 6)
    assert run(options)[1] == offsets(0, 0, 5) + offsets(1, 0, 6)


@pytest.mark.slow
def test_a_topic_that_is_created_again_is_told_from_the_first(topics, run):
    topic = topics.create()
    topics.fill(topic, 0, 8)
    options = topics.options(topic, startingOffsets="earliest")
    run(options)
    topics.cluster.delete_topic(topic)
    topics.create(name=topic)
    topics.fill(topic, 0, 20)
    with pytest.raises(PySparkException) as caught:
        run(options)
    assert f"{topic}-0: the topic was deleted and created again since; offsets from 8 on" in str(
        caught.value
    )
    _, rows = run({**options, "failOnDataLoss": "false"})
    assert sorted(rows) == sorted(offsets(0, 0, 8) + offsets(0, 0, 20))


@pytest.mark.slow
def test_a_topic_that_is_deleted_is_named(topics, run):
    topic = topics.create()
    topics.fill(topic, 0, 8)
    options = topics.options(
        topic, startingOffsets="earliest", **{"fetchOffset.retryIntervalMs": "50"}
    )
    run(options)
    topics.cluster.delete_topic(topic)
    with pytest.raises(PySparkException, match=f"{topic}-0: no longer there.* offsets from 8"):
        run(options)


@pytest.mark.slow
def test_records_deleted_before_they_were_read_are_named(topics, run):
    topic = topics.create()
    topics.fill(topic, 0, 20)
    options = topics.options(topic, startingOffsets="earliest")
    run(options)
    topics.fill(topic, 0, 200, start=20, size=50)
    asked(topics, lambda cluster: admin.delete_records(cluster, topic, {0: 60}))
    with pytest.raises(PySparkException) as caught:
        run(options)
    assert f"{topic}-0: the log begins at offset 60; offsets 20 to 59 have been" in str(
        caught.value
    )
    assert "failOnDataLoss" in str(caught.value)
    _, rows = run({**options, "failOnDataLoss": "false"})
    assert rows == offsets(0, 0, 20) + offsets(0, 60, 220)


def asked(topics, work):
    """What `work` finds out with a connection to the cluster."""

    async def connected():
        async with Cluster(topics.bootstrap) as cluster:
            return await work(cluster)

    return asyncio.run(connected())


@pytest.mark.slow
def test_a_checkpoint_of_another_topic_is_refused(topics, run):
    one, other = topics.create(), topics.create()
    topics.fill(one, 0, 3)
    topics.fill(other, 0, 3)
    run(topics.options(one, startingOffsets="earliest"))
    with pytest.raises(PySparkException, match=f"checkpoint is of topics {one}; .* topics {other}"):
        run(topics.options(other, startingOffsets="earliest"))


@pytest.mark.slow
def test_checkpoints_of_sparks_kafka_source_are_gone_on_from_and_newer_ones_refused(
    topics, run, tmp_path
):
    topic = topics.create()
    topics.fill(topic, 0, 9)
    options = topics.options(topic, startingOffsets="earliest", maxOffsetsPerTrigger="5")
    run(options)
    kept = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]"))[-1]
    version, meta, written = kept.read_text().split("\n")
    assert json.loads(written)[topic] == {"0": 9}

    def rewrite(offsets):
        kept.with_name(f".{kept.name}.crc").unlink(missing_ok=True)
        kept.write_text("\n".join([version, meta, json.dumps(offsets)]))

    rewrite({topic: {"0": 7}})
    topics.fill(topic, 0, 2, start=9)
    assert run(options)[1] == sorted(offsets(0, 0, 9) + offsets(0, 7, 11))
    kept = sorted((tmp_path / "checkpoint" / "offsets").glob("[0-9]"))[-1]
    rewrite({topic: {"0": 7}, "#": {"version": 2}})
    with pytest.raises(PySparkException, match="written in version 2 of the offsets"):
        run(options)


@pytest.mark.slow
def test_options_that_are_for_batches_are_refused(topics, stream, tmp_path):
    options = topics.options(topics.create(), endingOffsets="latest")
    query = stream(options).writeStream.format("noop")
    with pytest.raises(PySparkException, match=r"are for spark\.read: a stream has no end"):
        query.option("checkpointLocation", str(tmp_path)).start().processAllAvailable()


@pytest.mark.slow
def test_record_batches_stream_once_each_however_triggers_cut_them(topics, stream, tmp_path, spark):
    topic = topics.create()
    topics.fill(topic, 0, 40, batch=10)
    options = topics.options(
        topic, shape="batches", startingOffsets=json.dumps({topic: {"0": 5}}),
        maxOffsetsPerTrigger="7",
    )  # fmt: skip
    query = (
        stream(options).writeStream.format("memory").queryName("cut")
        .option("checkpointLocation", str(tmp_path)).trigger(availableNow=True).start()
    )  # fmt: skip
    assert query.awaitTermination(WAIT_SECONDS)
    found = [row.baseOffset for row in spark.table("cut").orderBy("baseOffset").collect()]
    assert found == [0, 10, 20, 30]


def test_a_first_batch_is_read_again_from_where_it_began(topics):
    """Spark does not keep where it began; a restart asks for the latest offset once more."""
    topic = topics.create()
    topics.fill(topic, 0, 5)
    reader = stream_reader_of(topics.options(topic), RECORDS)
    begun = reader.initialOffset()
    topics.fill(topic, 0, 7, start=5)
    end = reader.latestOffset(begun, ReadAllAvailable())
    (planned,) = reader.partitions(begun, end)
    topics.fill(topic, 0, 4, start=12)
    restarted = stream_reader_of(topics.options(topic), RECORDS)
    later = restarted.initialOffset()
    assert later != begun
    assert list(restarted.partitions(later, end)) == [planned]
    assert (planned.start, planned.until) == (5, 12)
    behind = restarted.latestOffset(end, ReadAllAvailable())
    (following,) = restarted.partitions(end, behind)
    assert (following.start, following.until) == (12, 16)


def test_a_first_batch_of_sparks_kafka_source_is_not_passed_over(topics):
    """Its checkpoint says where the batch ends, and not where it began."""
    topic = topics.create()
    topics.fill(topic, 0, 12)
    end = {topic: {"0": 9}}
    reader = stream_reader_of(topics.options(topic), RECORDS)
    with pytest.raises(DataLoss, match=r"first micro-batch .* set 'startingOffsets' to where"):
        reader.partitions(reader.initialOffset(), end)
    began = {"startingOffsets": json.dumps({topic: {"0": 5}})}
    reader = stream_reader_of(topics.options(topic, **began), RECORDS)
    (planned,) = reader.partitions(reader.initialOffset(), end)
    assert (planned.start, planned.until) == (5, 9)


def test_a_first_batch_in_which_a_topic_has_no_part_is_planned(topics):
    """Another source of the query has records."""
    topic = topics.create()
    reader = stream_reader_of(topics.options(topic), RECORDS)
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ReadAllAvailable())
    topics.fill(topic, 0, 3)
    restarted = stream_reader_of(topics.options(topic), RECORDS)
    assert list(restarted.partitions(restarted.initialOffset(), end)) == []


def delete_before(topics, topic, offset):
    asked(topics, lambda cluster: admin.delete_records(cluster, topic, {0: offset}))


def test_what_a_new_partition_loses_after_its_batch_was_decided_is_named(topics):
    topic, more = topics.create(), topics.create()
    options = topics.options(f"{topic},{more}", startingOffsets="earliest")
    begun = stream_reader_of(topics.options(topic), RECORDS).initialOffset()
    topics.fill(more, 0, 20)
    end = stream_reader_of(options, RECORDS).latestOffset(begun, ReadAllAvailable())
    delete_before(topics, more, 8)
    with pytest.raises(DataLoss, match=f"{more}-0: the log begins at offset 8; offsets 0 to 7"):
        stream_reader_of(options, RECORDS).partitions(begun, end)
    options["failOnDataLoss"] = "false"
    (planned,) = stream_reader_of(options, RECORDS).partitions(begun, end)
    assert (planned.start, planned.until) == (8, 20)


@pytest.fixture
def hidden(monkeypatch):
    """Topics that the metadata of all topics lacks, by how often it still will."""
    metadata, left = Cluster.metadata, {}

    async def without(cluster, names=None):
        answer = await metadata(cluster, names)
        if names is None:
            answer.topics = [each for each in answer.topics if not left.get(each.name)]
            left.update((name, count - 1) for name, count in left.items() if count)
        return answer

    monkeypatch.setattr(Cluster, "metadata", without)
    return left


def by_pattern(topics, **more):
    """Two topics, and options that find them by a pattern."""
    one = topics.create()
    other = topics.create(name=f"{one}-other")
    options = topics.options(one, **{"fetchOffset.retryIntervalMs": "1", **more})
    del options["subscribe"]
    return one, other, {**options, "subscribePattern": f"{one}.*", "startingOffsets": "earliest"}


def test_a_topic_that_the_metadata_lacks_once_is_asked_for_again(topics, hidden):
    """As after a start of a broker: the query failed, or lost the rest of the micro-batch."""
    one, other, options = by_pattern(topics)
    topics.fill(one, 0, 5)
    reader = stream_reader_of(options, RECORDS)
    begun = reader.initialOffset()
    hidden[one] = 1
    end = reader.latestOffset(begun, ReadAllAvailable())
    assert (end[one], end[other]) == ({"0": 5}, {"0": 0})
    hidden[one] = 1
    (planned,) = reader.partitions(begun, end)
    assert (planned.topic, planned.start, planned.until) == (one, 0, 5)


def test_a_topic_that_is_missing_while_a_batch_is_planned_is_left_to_its_task(topics, hidden):
    """The micro-batch was planned without it, and its records were passed over."""
    one, _, options = by_pattern(topics, failOnDataLoss="false")
    topics.fill(one, 0, 5)
    reader = stream_reader_of(options, RECORDS)
    begun = reader.initialOffset()
    end = reader.latestOffset(begun, ReadAllAvailable())
    hidden[one] = 1_000
    (planned,) = reader.partitions(begun, end)
    assert (planned.topic, planned.start, planned.until) == (one, 0, 5)
    assert sum(batch.num_rows for batch in reader.read(planned)) == 5


def test_a_topic_that_was_missing_goes_on_where_it_was(topics, hidden, capsys):
    """It was taken for a new one when it was there again, and read from its beginning."""
    one, other, options = by_pattern(topics, failOnDataLoss="false")
    topics.fill(one, 0, 5)
    reader = stream_reader_of(options, RECORDS)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    hidden[one] = 1_000
    meanwhile = reader.latestOffset(end, ReadAllAvailable())
    assert not reader.partitions(end, meanwhile)
    assert "offsets from 5 of" in capsys.readouterr().err
    strict = stream_reader_of({**options, "failOnDataLoss": "true"}, RECORDS)
    assert strict.latestOffset(meanwhile, ReadAllAvailable()) == meanwhile, "it is told once"
    topics.fill(one, 0, 2, start=5)
    topics.fill(other, 0, 3)
    begun, meanwhile = meanwhile, reader.latestOffset(meanwhile, ReadAllAvailable())
    (planned,) = reader.partitions(begun, meanwhile)
    assert (planned.topic, planned.start, planned.until) == (other, 0, 3)
    hidden.clear()
    restarted = stream_reader_of(options, RECORDS)
    (planned,) = restarted.partitions(
        meanwhile, restarted.latestOffset(meanwhile, ReadAllAvailable())
    )
    assert (planned.topic, planned.start, planned.until) == (one, 5, 7)


def test_topics_that_are_gone_for_good_do_not_crowd_out_one_that_is_missing(
    topics, hidden, monkeypatch
):
    monkeypatch.setattr(stream_source, "MOST_MISSING", 1)
    one, gone, options = by_pattern(topics, failOnDataLoss="false")
    topics.create(name=f"{one}-third")
    topics.fill(one, 0, 5)
    reader = stream_reader_of(options, RECORDS)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    hidden[gone] = 1_000
    end = reader.latestOffset(end, ReadAllAvailable())
    hidden[one] = 1_000
    end = reader.latestOffset(end, ReadAllAvailable())
    assert end["#"]["missing"] == {one: {"0": 5}}
    hidden.clear()
    assert not reader.partitions(end, reader.latestOffset(end, ReadAllAvailable()))


def test_those_that_are_missing_for_longest_are_forgotten_first(topics, hidden, monkeypatch):
    """A checkpoint keeps their order."""
    monkeypatch.setattr(stream_source, "MOST_MISSING", 2)
    one, other, options = by_pattern(topics, failOnDataLoss="false")
    names = [one, other, topics.create(name=f"{one}-b"), topics.create(name=f"{one}-a")]
    topics.create(name=f"{one}-stays")
    reader = stream_reader_of(options, RECORDS)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    for name in names:
        hidden[name] = 1_000
        end = json.loads(json.dumps(reader.latestOffset(end, ReadAllAvailable())))
    assert list(end["#"]["missing"]) == names[2:]


@pytest.mark.parametrize("again", [False, True], ids=["missing", "created again"])
def test_what_is_lost_is_told_once_though_the_query_waits_for_more(topics, hidden, capsys, again):
    one, _, options = by_pattern(topics, failOnDataLoss="false", minOffsetsPerTrigger="100")
    topics.fill(one, 0, 5)
    reader = stream_reader_of(options, RECORDS)
    limit = reader.getDefaultReadLimit()
    end = reader.latestOffset(reader.initialOffset(), limit)
    assert end[one] == {"0": 5}, "the first batch waits for nothing"
    if again:
        topics.cluster.delete_topic(one)
        topics.create(name=one)
        topics.fill(one, 0, 9)
    else:
        hidden[one] = 1_000
    for _ in range(3):
        end = reader.latestOffset(end, limit)
    assert capsys.readouterr().err.count("are lost") == 1


def test_a_checkpoint_whose_topic_is_missing_is_not_another_querys(topics):
    _, other, options = by_pattern(topics)
    end = stream_reader_of(options, RECORDS).initialOffset()
    del end["#"]["fresh"]
    end["#"]["missing"] = {other: end.pop(other)}
    reader = stream_reader_of(topics.options(other, failOnDataLoss="false"), RECORDS)
    assert other in reader.latestOffset(end, ReadAllAvailable())


def test_a_run_over_what_is_there_reads_a_topic_that_is_lacking_as_it_begins(topics, hidden):
    """It was left for the next run. One that is new since is: a run is to end."""
    one, _, options = by_pattern(topics)
    topics.fill(one, 0, 5)
    begun = stream_reader_of(options, RECORDS).initialOffset()
    reader = stream_reader_of(options, RECORDS)
    hidden[one] = 1
    reader.prepareForTriggerAvailableNow()
    new = topics.create(name=f"{one}-new")
    topics.fill(new, 0, 3)
    end = reader.latestOffset(begun, ReadAllAvailable())
    assert (end[one], end[new]) == ({"0": 5}, {"0": 0})
    topics.fill(one, 0, 2, start=5)
    assert reader.latestOffset(end, ReadAllAvailable()) == end


def test_a_topic_that_was_created_again_while_it_was_missing_begins_anew(topics, hidden):
    one, _, options = by_pattern(topics, failOnDataLoss="false")
    topics.fill(one, 0, 5)
    reader = stream_reader_of(options, RECORDS)
    end = reader.latestOffset(reader.initialOffset(), ReadAllAvailable())
    topics.cluster.delete_topic(one)
    meanwhile = reader.latestOffset(end, ReadAllAvailable())
    topics.create(name=one)
    topics.fill(one, 0, 9)
    (planned,) = reader.partitions(meanwhile, reader.latestOffset(meanwhile, ReadAllAvailable()))
    assert (planned.start, planned.until) == (0, 9)


def test_topics_that_the_query_no_longer_reads_are_forgotten(topics):
    _, other, options = by_pattern(topics, failOnDataLoss="false")
    begun = stream_reader_of(options, RECORDS).initialOffset()
    narrower = stream_reader_of({**options, "subscribePattern": other}, RECORDS)
    found = narrower.latestOffset(begun, ReadAllAvailable())
    assert set(found) == {other, "#"} and "missing" not in found["#"]


def test_a_query_whose_log_was_cut_goes_on_with_what_comes_after(topics):
    """Where records may be lost: it does not wait until the log is as long as it was."""
    topic = topics.create()
    topics.fill(topic, 0, 5)
    options = topics.options(topic, failOnDataLoss="false")
    reader = stream_reader_of(options, RECORDS)
    found = reader.latestOffset({topic: {"0": 9}}, ReadAllAvailable())
    assert found[topic] == {"0": 5}
    assert not reader.partitions({topic: {"0": 9}}, found)
    assert reader.latestOffset(found, ReadAllAvailable()) == found
    topics.fill(topic, 0, 2)
    (planned,) = reader.partitions(found, reader.latestOffset(found, ReadAllAvailable()))
    assert (planned.start, planned.until) == (5, 7)


def test_a_query_whose_log_was_cut_does_not_wait_for_more_records(topics):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    options = topics.options(topic, failOnDataLoss="false", minOffsetsPerTrigger="100")
    reader = stream_reader_of(options, RECORDS)
    limit = reader.getDefaultReadLimit()
    for known in (2, 9):  # the first batch waits for nothing
        assert reader.latestOffset({topic: {"0": known}}, limit)[topic] == {"0": 5}


def test_a_batch_in_which_a_log_begins_is_read_where_others_are_lost(topics):
    topic = topics.create()
    topics.fill(topic, 0, 30, batch=10)
    options = topics.options(topic, shape="batches", failOnDataLoss="false")
    delete_before(topics, topic, 15)
    reader = stream_reader_of(options, BATCHES)
    end = reader.latestOffset({topic: {"0": 5}}, ReadAllAvailable())
    (planned,) = reader.partitions({topic: {"0": 5}}, end)
    found = [base for rows in reader.read(planned) for base in rows["baseOffset"].to_pylist()]
    assert found == [10, 20]


@pytest.mark.slow
def test_what_was_read_before_it_was_committed_is_not_cut(topics):
    """A query goes on with `read_committed` while a transaction is open that it has read."""
    topic = topics.create()
    producer = Producer({"bootstrap.servers": topics.bootstrap, "transactional.id": topic})
    producer.init_transactions()
    producer.begin_transaction()
    producer.produce(topic, b"open")
    assert producer.flush(30) == 0
    options = topics.options(topic, startingOffsets="earliest")
    before = stream_reader_of(options, RECORDS)
    begun = before.latestOffset(before.initialOffset(), ReadAllAvailable())
    assert begun[topic] == {"0": 1}
    after = stream_reader_of({**options, "kafka.isolation.level": "read_committed"}, RECORDS)
    assert after.latestOffset(begun, ReadAllAvailable()) == begun
    producer.commit_transaction()
    until(
        lambda: after.latestOffset(begun, ReadAllAvailable())[topic] == {"0": 2},
        "the marker of the transaction",
    )


@pytest.mark.slow
def test_a_driver_killed_in_its_first_batch_loses_nothing(topics, run, tmp_path):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    ready, begun = tmp_path / "ready", tmp_path / "begun"
    options = topics.options(topic)
    driver = subprocess.Popen(
        [sys.executable, "-c", FIRST_ROWS_NEVER_END, repr(options),
         *(str(tmp_path / each) for each in ("checkpoint", "rows", "ready", "begun"))],
        start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:
        until(lambda: ready.exists() or driver.poll() is not None, "the query's start")
        assert driver.poll() is None, "the driver ended by itself"
        topics.fill(topic, 0, 7, start=5)
        until(begun.exists, "the first batch")
    finally:
        os.killpg(driver.pid, signal.SIGKILL)
        driver.wait()
    topics.fill(topic, 0, 4, start=12)
    _, rows = run(options)
    assert rows == offsets(0, 5, 16)


@pytest.mark.slow
def test_a_killed_python_worker_loses_and_repeats_nothing(topics, stream, tmp_path, spark):
    topic = topics.create()
    topics.fill(topic, 0, 60_000, batch=200, size=400)  # more than is fetched and taken ahead
    killed = threading.Event()

    def slowly(batches):
        for batch in batches:
            time.sleep(0.5)
            yield batch

    frame = stream(topics.options(topic, startingOffsets="earliest"))
    query = (
        frame.mapInArrow(slowly, frame.schema).select("offset")
        .writeStream.format("json").option("path", str(tmp_path / "rows"))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True).start()
    )  # fmt: skip
    jvm = psutil.Process(spark.sparkContext._gateway.proc.pid)

    def kill_readers():
        daemons = [each for each in jvm.children(recursive=True) if "pyspark.daemon" in line(each)]
        for each in (child for daemon in daemons for child in children(daemon)):
            if any(place.laddr and place.raddr for place in connections(each)):
                each.kill()
                killed.set()
        return killed.is_set() or not query.isActive

    until(lambda: query.status["isTriggerActive"], "the first trigger")
    until(kill_readers, "a worker's connection to a broker")
    assert query.awaitTermination(WAIT_SECONDS)
    assert killed.is_set()
    rows = spark.read.schema("offset long").json(str(tmp_path / "rows")).collect()
    assert sorted(row.offset for row in rows) == list(range(60_000))


def line(process):
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def children(process):
    """What it has started; nothing when it has just ended."""
    try:
        return process.children()
    except psutil.Error:
        return []


def connections(process):
    try:
        return process.net_connections("tcp")
    except psutil.Error:
        return []
