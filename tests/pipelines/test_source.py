"""Reading topics with `spark.read`, from a real broker."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import functions as F  # noqa: N812

from anabranch.client.ranges import PATIENCE_SECONDS
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.pipelines import offset_ranges, source
from anabranch.pipelines.columns import RECORDS
from anabranch.pipelines.offset_ranges import OffsetRange, offsets_at
from anabranch.pipelines.options import source_options
from anabranch.pipelines.range_reader import PartsAhead
from anabranch.pipelines.source import reader_of
from anabranch.testing import LocalCluster

HIDES_TRACEBACKS = "spark.sql.execution.pyspark.udf.hideTraceback.enabled"


@pytest.fixture
def read(spark):
    """A DataFrame of the options."""

    def loaded(options):
        return spark.read.format("anabranch").options(**options).load()

    return loaded


def values(frame):
    """The numbers that `fill` counted, in the order of partition and offset."""
    rows = frame.select("partition", "offset", F.expr("substring(string(value), 2)").alias("n"))
    return [(row.partition, row.offset, row.n) for row in sorted(rows.collect())]


def expected(partition, first, until):
    return [(partition, each, str(each)) for each in range(first, until)]


def test_a_topic_is_read_with_the_columns_of_sparks_kafka_source(topics, read):
    topic = topics.create()
    batch = build_batch([
        Record(0, 1_700_000_000_123, b"k", b"v", (("h", b"1"), ("n", None))),
        Record(1, 1_700_000_000_124, None, None),
    ])  # fmt: skip
    topics.produce(topic, 0, batch)
    frame = read(topics.options(topic, includeHeaders="true"))
    assert frame.dtypes == [
        ("key", "binary"), ("value", "binary"), ("topic", "string"), ("partition", "int"),
        ("offset", "bigint"), ("timestamp", "timestamp"), ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]  # fmt: skip
    first, second = frame.withColumn("ms", F.unix_millis("timestamp")).drop("timestamp").collect()
    assert first.asDict(recursive=True) == {
        "key": b"k", "value": b"v", "topic": topic, "partition": 0, "offset": 0,
        "timestampType": 0, "ms": 1_700_000_000_123,
        "headers": [{"key": "h", "value": b"1"}, {"key": "n", "value": None}],
    }  # fmt: skip
    assert (second.key, second.value, second.headers, second.ms) == (
        None, None, None, 1_700_000_000_124,
    )  # fmt: skip


@pytest.mark.parametrize("codec", range(5))
def test_every_codec_and_partition_is_read(topics, read, codec):
    topic = topics.create(partitions=2)
    topics.fill(topic, 0, 25, codec=codec)
    topics.fill(topic, 1, 5, codec=codec)
    assert values(read(topics.options(topic))) == expected(0, 0, 25) + expected(1, 0, 5)


def test_offsets_begin_and_end_where_options_say(topics, read):
    topic = topics.create(partitions=2)
    topics.fill(topic, 0, 30)
    topics.fill(topic, 1, 30)
    options = topics.options(
        topic,
        startingOffsets=json.dumps({topic: {"0": 7, "1": -2}}),
        endingOffsets=json.dumps({topic: {"0": -1, "1": 12}}),
    )
    assert values(read(options)) == expected(0, 7, 30) + expected(1, 0, 12)


def test_timestamps_begin_and_end_a_read(topics, read):
    topic = topics.create(partitions=2)
    topics.fill(topic, 0, 30, batch=1)
    topics.fill(topic, 1, 10, batch=1)
    options = topics.options(topic, startingTimestamp="1000005", endingTimestamp="1000020")
    assert values(read(options)) == expected(0, 5, 20) + expected(1, 5, 10)
    by_partition = topics.options(
        topic,
        startingOffsetsByTimestamp=json.dumps({topic: {"0": 1_000_009, "1": 1_000_001}}),
        endingOffsetsByTimestamp=json.dumps({topic: {"0": 1_000_011, "1": 1_000_002}}),
    )
    assert values(read(by_partition)) == expected(0, 9, 11) + expected(1, 1, 2)


def test_a_timestamp_behind_all_records_follows_the_strategy(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    late = topics.options(topic, startingTimestamp="2000000")
    with pytest.raises(PySparkException, match="startingOffsetsByTimestampStrategy"):
        read(late).count()
    assert read({**late, "startingOffsetsByTimestampStrategy": "latest"}).count() == 0


def test_topics_are_selected_by_list_pattern_and_partition(topics, read):
    names = [topics.create(partitions=2, name=f"selected-{each}") for each in ("a", "b")]
    for name in names:
        topics.fill(name, 0, 3)
        topics.fill(name, 1, 2)
    servers = {"kafka.bootstrap.servers": topics.bootstrap}
    for selection, count in (
        ({"subscribe": "selected-a, selected-b"}, 10),
        ({"subscribePattern": "selected-.*"}, 10),
        ({"subscribePattern": "selected"}, None),
        ({"assign": '{"selected-a":[1],"selected-b":[0]}'}, 5),
    ):
        frame = read({**servers, **selection})
        if count is None:
            with pytest.raises(PySparkException, match="No topic matches"):
                frame.count()
        else:
            assert frame.count() == count


def test_ranges_are_split_by_bytes_by_records_and_by_number(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 70_000, batch=5000, size=50)
    whole = read(topics.options(topic))
    assert whole.rdd.getNumPartitions() == 1
    for more, least in (
        ({"maxBytesPerPartition": "1000000"}, 4),
        ({"maxRecordsPerPartition": "20000"}, 4),
        ({"minPartitions": "3"}, 3),
    ):
        split = read(topics.options(topic, **more))
        assert split.rdd.getNumPartitions() >= least
        assert split.select(F.sum("offset"), F.count("*")).first() == (70_000 * 69_999 // 2, 70_000)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_other_clients_have_written_is_read(topics, read, codec):
    import confluent_kafka
    import kafka

    topic = topics.create()
    first = confluent_kafka.Producer(
        {"bootstrap.servers": topics.bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for each in range(100):
        first.produce(topic, b"one %d" % each * 20, b"k%d" % each, headers=[("n", b"%d" % each)])
    first.flush(30)
    second = kafka.KafkaProducer(
        bootstrap_servers=topics.bootstrap, compression_type=None if codec == "none" else codec
    )
    for each in range(100):
        second.send(topic, b"two %d" % each * 20, None, headers=[("n", b"%d" % each)])
    second.flush(30)
    second.close()
    rows = read(topics.options(topic, includeHeaders="true")).orderBy("offset").collect()
    assert [(row.key, row.value, row.headers[0].value) for row in rows] == [
        *((b"k%d" % each, b"one %d" % each * 20, b"%d" % each) for each in range(100)),
        *((None, b"two %d" % each * 20, b"%d" % each) for each in range(100)),
    ]


def test_a_topic_without_records_gives_no_rows(topics, read):
    assert read(topics.options(topics.create(partitions=3))).count() == 0


def test_filters_narrow_what_is_read(topics, read):
    topic = topics.create(partitions=2)
    topics.fill(topic, 0, 100, batch=1)
    topics.fill(topic, 1, 100, batch=1)
    frame = read(topics.options(topic))
    narrowed = frame.where("partition = 1 and offset >= 90 and offset < 95")
    assert values(narrowed) == expected(1, 90, 95)
    late = frame.where("timestamp >= timestamp_millis(1000097) and offset != 98")
    assert values(late) == [
        (partition, each, str(each)) for partition in (0, 1) for each in (97, 99)
    ]
    plan = narrowed._jdf.queryExecution().executedPlan().toString()
    assert "Filter (" not in plan, plan
    assert "Filter (" in late._jdf.queryExecution().executedPlan().toString()


def test_sessions_that_offer_no_filters_read_too(topics, read, spark):
    topic = topics.create()
    topics.fill(topic, 0, 10)
    spark.conf.set("spark.sql.python.filterPushdown.enabled", "false")
    try:
        assert values(read(topics.options(topic)).where("offset > 7")) == expected(0, 8, 10)
    finally:
        spark.conf.set("spark.sql.python.filterPushdown.enabled", "true")


def test_record_batches_are_read_as_they_lie_in_the_log(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 25, codec=4)
    rows = read(topics.options(topic, shape="batches")).orderBy("baseOffset").collect()
    assert [(row.baseOffset, row.lastOffset, row.recordCount) for row in rows] == [
        (0, 9, 10), (10, 19, 10), (20, 24, 5),
    ]  # fmt: skip
    read_back = [each for row in rows for each in decode_records(row.bytes)]
    assert [each.value for each in read_back] == [b"v%d" % each for each in range(25)]
    assert {(row.topic, row.partition, row.codec, row.producerId) for row in rows} == {
        (topic, 0, "zstd", -1)
    }
    split = read(topics.options(topic, shape="batches", minPartitions="6"))
    assert sorted(row.baseOffset for row in split.collect()) == [0, 10, 20]


# What goes wrong.


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"startingOffsets": "latest"}, "'startingOffsets' may not be latest"),
        ({"statringOffsets": "earliest"}, "Did you mean 'startingOffsets'?"),
        ({"assign": '{"a":[0]}'}, "Exactly one of the options"),
        ({"kafka.ssl.keystore.key": "hunter2"}, "name it in kafka.ssl.keystore.location"),
        ({"kafka.key.deserializer": "x"}, "keys are bytes; cast the column"),
        ({"kafka.bootstrap.servers": "nowhere"}, "is not host:port"),
        ({"maxOffsetsPerTrigger": "-1"}, "is a whole number from 1 up"),
    ],
)
def test_options_that_cannot_be_are_named(topics, read, more, words):
    topic = topics.create()
    with pytest.raises(PySparkException) as caught:
        read(topics.options(topic, **more)).count()
    assert words in str(caught.value)
    assert "hunter2" not in str(caught.value)


def test_a_missing_topic_is_named_soon(topics, read):
    options = topics.options("no-such-topic", **{"fetchOffset.retryIntervalMs": "10"})
    with pytest.raises(PySparkException, match="There is no topic 'no-such-topic'"):
        read(options).count()


def test_a_cluster_that_does_not_answer_is_named(topics, read):
    options = {
        **topics.options("any"), "kafka.bootstrap.servers": "127.0.0.1:1",
        "fetchOffset.numRetries": "0",
    }  # fmt: skip
    with pytest.raises(PySparkException, match=r"No broker of 127\.0\.0\.1:1 answers"):
        read(options).count()


def test_offsets_beyond_the_log_are_named_or_left_out(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    options = topics.options(topic, endingOffsets=json.dumps({topic: {"0": 9}}))
    with pytest.raises(PySparkException, match=rf"The log of {topic}-0 has offsets 0 to 4; .* 8"):
        read(options).count()
    assert values(read({**options, "failOnDataLoss": "false"})) == expected(0, 0, 5)


def test_an_offset_behind_the_log_is_named_or_reads_nothing(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    options = topics.options(topic, startingOffsets=json.dumps({topic: {"0": 9}}))
    with pytest.raises(PySparkException, match=r"has offsets 0 to 4; offsets from 9 on were"):
        read(options).count()
    assert read({**options, "failOnDataLoss": "false"}).count() == 0


@pytest.mark.parametrize(
    "more",
    [
        {"endingOffsets": "latest"},
        {"endingOffsets": '{"TOPIC":{"0":-1}}'},
        {"endingTimestamp": "4000000000000"},
        {"startingTimestamp": "4000000000000", "startingOffsetsByTimestampStrategy": "latest"},
    ],
)
def test_records_that_come_while_a_read_is_planned_are_no_loss(topics, monkeypatch, more):
    topic = topics.create()
    topics.fill(topic, 0, 5)

    async def and_a_record_more(*asked):
        found = await offsets_at(*asked)
        await asyncio.to_thread(topics.fill, topic, 0, 1)
        return found

    for module in (source, offset_ranges):
        monkeypatch.setattr(module, "offsets_at", and_a_record_more)
    given = {name: text.replace("TOPIC", topic) for name, text in more.items()}
    (planned,) = reader_of(topics.options(topic, **given), RECORDS).partitions()
    assert planned.until > 5


def test_columns_of_a_jobs_own_are_refused(topics, spark):
    options = topics.options(topics.create())
    frame = spark.read.format("anabranch").schema("value string").options(**options).load()
    with pytest.raises(PySparkException, match="The columns of the source are struct<key:binary"):
        frame.count()


def test_a_reading_that_is_given_up_ends_at_once(topics):
    """Its thread waits for records that never come; nobody waits for the thread."""
    topic = topics.create()
    topics.fill(topic, 0, 5)
    wanted = OffsetRange(topic, 0, b"", 0, 6)
    began = time.monotonic()
    with PartsAhead(source_options(topics.options(topic)), wanted) as parts:
        next(iter(parts))
    assert time.monotonic() - began < PATIENCE_SECONDS / 4
    assert not [each for each in threading.enumerate() if each.name == "anabranch-fetch"]


@pytest.mark.slow
def test_a_topic_that_is_deleted_while_it_is_read_is_named(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 5)
    options = topics.options(topic, **{"kafkaConsumer.pollTimeoutMs": "500"})
    frame = read(options)
    assert frame.rdd.getNumPartitions() == 1, "the ranges are planned"
    topics.cluster.delete_topic(topic)
    with pytest.raises(PySparkException) as caught:
        frame.rdd.count()
    assert f"{topic}-0: offsets 0 to 4 cannot be read: the topic" in str(caught.value)
    assert "failOnDataLoss" in str(caught.value)


@pytest.mark.slow
def test_a_corrupt_batch_is_named_or_left_out(topics, read):
    topic = topics.create()
    topics.fill(topic, 0, 30)
    folder = Path(topics.cluster.brokers[0].folder) / f"{topic}-0"
    (segment,) = folder.glob("*.log")
    content = bytearray(segment.read_bytes())
    content[len(content) // 2] ^= 1
    with segment.open("r+b") as file:
        file.write(content)
    with pytest.raises(PySparkException) as caught:
        read(topics.options(topic)).count()
    assert f"{topic}-0: the batch of offsets 10 to 19 is corrupt" in str(caught.value)
    assert "make that broker the leader" in str(caught.value)
    whole = read(topics.options(topic, failOnCorruption="false"))
    assert values(whole) == expected(0, 0, 10) + expected(0, 20, 30)


def test_a_broker_killed_while_it_is_read_from_is_followed_by_the_next(topics_of, read, tmp_path):
    begun = tmp_path / "begun"

    def slowly(batches):
        for batch in batches:
            begun.touch()
            time.sleep(0.5)
            yield batch

    with LocalCluster(brokers=3) as cluster:
        topics = topics_of(cluster)
        topic = topics.create()
        topics.fill(topic, 0, 4000, batch=10, size=5000)
        cluster.wait_in_sync(topic)
        options = topics.options(topic, **{"kafka.max.partition.fetch.bytes": "60000"})
        frame = read(options)
        sums = frame.mapInArrow(slowly, frame.schema).select(F.sum("offset"), F.count("*"))
        counted = []
        reader = threading.Thread(target=lambda: counted.append(sums.first()))
        reader.start()
        end = time.monotonic() + 100
        while not begun.exists():
            assert time.monotonic() < end and reader.is_alive()
            time.sleep(0.02)
        leader = cluster.leader(topic)
        cluster.kill(leader)
        reader.join(150)
        assert counted == [(4000 * 3999 // 2, 4000)]
        assert cluster.leader(topic) != leader


@pytest.mark.slow
@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"startingoffset": "earliest"}, "Option 'startingoffset' is unknown to the source."),
        ({"endingOffsets": '{"TOPIC":{"0":90}}'}, "offsets up to 89 were asked for."),
        ({}, "TOPIC-0: the batch of offsets 0 to 9 is corrupt:"),
    ],
    ids=["option", "plan", "task"],
)
def test_without_tracebacks_the_sentence_follows_sparks_own_line(topics, read, spark, more, words):
    topic = topics.create()
    topics.fill(topic, 0, 10)
    (segment,) = (Path(topics.cluster.brokers[0].folder) / f"{topic}-0").glob("*.log")
    with segment.open("r+b") as file:
        file.seek(-1, 2)
        file.write(b"!")
    options = {name: text.replace("TOPIC", topic) for name, text in more.items()}
    spark.conf.set(HIDES_TRACEBACKS, "true")
    try:
        with pytest.raises(PySparkException) as caught:
            read(topics.options(topic, **options)).count()
    finally:
        spark.conf.unset(HIDES_TRACEBACKS)
    told = str(caught.value)
    assert "Traceback" not in told
    assert words.replace("TOPIC", topic) in "\n".join(told.splitlines()[:2]), told
