"""`df.write.format("anabranch")` into real brokers; what it wrote is read with another client."""

from __future__ import annotations

import threading
import time
from itertools import chain

import pytest
from confluent_kafka import Consumer, TopicPartition
from pyspark.errors import PySparkException

from anabranch.client.partitioner import partition_for
from anabranch.core.wire.compression import Codec
from anabranch.pipelines.sink_task import Written, gathered
from anabranch.testing import LocalCluster


def records(bootstrap, topic):
    """Every record of a topic as confluent-kafka reads it, in the order of partition and offset."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "sink-tests"})
    partitions = consumer.list_topics(topic, 20).topics[topic].partitions
    ends = {
        each: consumer.get_watermark_offsets(TopicPartition(topic, each), 20)[1]
        for each in partitions
    }
    consumer.assign([TopicPartition(topic, each, 0) for each in ends])
    found = []
    while len(found) < sum(ends.values()):
        message = consumer.poll(20)
        assert message is not None, f"{len(found)} of {sum(ends.values())} records came"
        assert message.error() is None
        found.append(message)
    consumer.close()
    return sorted(found, key=lambda each: (each.partition(), each.offset()))


def values(bootstrap, topic):
    return [each.value() for each in records(bootstrap, topic)]


@pytest.fixture
def write(topics):
    """Write a DataFrame with options."""

    def written(frame, topic=None, **options):
        writer = frame.write.format("anabranch").mode("append")
        writer.option("kafka.bootstrap.servers", topics.bootstrap)
        if topic is not None:
            writer.option("topic", topic)
        writer.options(**options).save()

    return written


def test_keys_values_headers_and_partitions_arrive(spark, topics, write):
    topic = topics.create(partitions=4)
    schema = (
        "key binary, value string, partition int, headers array<struct<key:string,value:binary>>"
    )
    rows = [
        (b"a", "one", None, [("h", b"1"), ("h", None)]),
        (b"", "two", None, []),
        (b"c", None, None, None),
        (b"d", "three", 3, None),
        (None, "four", 2, None),
        (None, "", None, None),
    ]
    before_ms = time.time() * 1000
    write(spark.createDataFrame(rows, schema), topic)
    found = records(topics.bootstrap, topic)
    told = {(each.key(), each.value()): (each.partition(), each.headers() or []) for each in found}
    assert len(found) == len(rows)
    assert told[b"a", b"one"] == (partition_for(b"a", 4), [("h", b"1"), ("h", None)])
    assert told[b"", b"two"] == (partition_for(b"", 4), [])
    assert told[b"c", None] == (partition_for(b"c", 4), [])
    assert told[b"d", b"three"] == (3, [])
    assert told[None, b"four"] == (2, [])
    assert (None, b"") in told
    assert all(before_ms - 1000 < each.timestamp()[1] < time.time() * 1000 + 1000 for each in found)


@pytest.mark.parametrize("codec", list(Codec))
def test_many_rows_arrive_in_order_of_each_key_with_every_codec(spark, topics, write, codec):
    topic = topics.create(partitions=3)
    frame = spark.range(0, 3000, 1, 2).selectExpr(
        "concat('k', id % 10) AS key", "concat(id, repeat('.', 50)) AS value"
    )
    write(frame, topic, **{"kafka.compression.type": codec.name, "kafka.batch.size": "20000"})
    found = records(topics.bootstrap, topic)
    numbers = {}
    for each in found:
        assert each.partition() == partition_for(each.key(), 3)
        number = int(each.value().rstrip(b"."))
        numbers.setdefault((each.key(), number >= 1500), []).append(number)
    assert sorted(chain(*numbers.values())) == list(range(3000))
    assert all(each == sorted(each) for each in numbers.values())


def test_rows_go_to_the_topic_that_they_name_unless_the_option_names_one(spark, topics, write):
    first, second = topics.create(), topics.create(partitions=2)
    frame = spark.range(20).selectExpr(
        f"if(id % 4 = 0, '{first}', '{second}') AS topic", "CAST(id AS STRING) AS value",
        "id AS another_column",
    )  # fmt: skip
    write(frame)
    assert set(values(topics.bootstrap, first)) == {b"0", b"4", b"8", b"12", b"16"}
    assert len(values(topics.bootstrap, second)) == 15
    third = topics.create()
    write(frame, third)
    assert len(values(topics.bootstrap, third)) == 20


@pytest.mark.slow
def test_rows_of_the_source_are_written_as_they_were_read(spark, topics, write):
    origin, copy = topics.create(), topics.create()
    topics.fill(origin, 0, 50)
    frame = spark.read.format("anabranch").options(**topics.options(origin)).load()
    write(frame.drop("topic"), copy)
    told = [(each.key(), each.value()) for each in records(topics.bootstrap, copy)]
    assert told == [(b"k%d" % each, b"v%d" % each) for each in range(50)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("columns", "options", "said"),
    [
        (["CAST(NULL AS STRING) AS topic", "'x' AS value"], {},
         "Row 0 of this task has no topic: the column `topic` is null. Filter such rows out"),
        (["repeat('x', 2000) AS value"], {"topic": "T", "kafka.max.request.size": "1000"},
         "bytes, and kafka.max.request.size is 1000. Filter such rows out or split them"),
        (["'x' AS value", "7 AS partition"], {"topic": "T"}, "has the partitions 0 to 0: correct"),
        (["'x' AS value", "-1 AS partition"], {"topic": "T"}, "A row has partition -1"),
        (["'x' AS value", "array(named_struct('key', CAST(NULL AS STRING), 'value', "
          "CAST('v' AS BINARY))) AS headers"], {"topic": "T"}, "A row has a header without a key"),
        (["'x' AS value"], {"topic": "no/topic"}, "INVALID_TOPIC_EXCEPTION|topic"),
        (["id AS value"], {"topic": "T"}, "Column `value` is of type bigint; it must be string"),
        (["'x' AS value"], {"topic": "T", "kafka.ack": "all"}, "Did you mean 'kafka.acks'?"),
    ],
)  # fmt: skip
def test_what_cannot_be_written_is_told(spark, topics, write, columns, options, said):
    topic = topics.create()
    options = {key: topic if text == "T" else text for key, text in options.items()}
    with pytest.raises(PySparkException) as refusal:
        write(spark.range(1).selectExpr(*columns), **options)
    assert any(each in str(refusal.value) for each in said.split("|"))


def test_a_topic_is_neither_replaced_nor_written_without_saying_append(spark, topics):
    writer = spark.range(1).selectExpr("'x' AS value").write.format("anabranch")
    writer.options(**{"kafka.bootstrap.servers": topics.bootstrap, "topic": topics.create()})
    with pytest.raises(PySparkException, match=r"use mode\('append'\)"):
        writer.mode("overwrite").save()
    with pytest.raises(PySparkException, match='use either the "Append"'):
        writer.mode("error").save()


@pytest.mark.slow
def test_a_record_over_the_topics_limit_is_told_with_the_remedy(spark, topics, write):
    topic = topics.create(config={"max.message.bytes": 500})
    with pytest.raises(PySparkException, match=r"Raise the topic's max\.message\.bytes"):
        write(spark.range(1).selectExpr("repeat('x', 900) AS value"), topic)


@pytest.mark.slow
def test_a_leader_is_killed_during_a_write_and_every_row_arrives_once(spark, topics_of):
    settings = {"min.insync.replicas": 2}
    with LocalCluster(brokers=3, config=settings) as cluster:
        topics = topics_of(cluster)
        topic = topics.create(partitions=3, replication_factor=3)

        def slowly(batches):
            for batch in batches:
                time.sleep(0.03)
                yield batch

        spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "200")
        killer = threading.Timer(1.0, cluster.kill, [1])
        try:
            frame = spark.range(0, 20_000, 1, 2).selectExpr("lpad(id, 100, '0') AS value")
            writer = frame.mapInArrow(slowly, "value string").write.format("anabranch")
            writer.option("kafka.bootstrap.servers", cluster.bootstrap_servers)
            writer.option("kafka.buffer.memory", "70000").option("kafka.max.request.size", "9000")
            killer.start()
            writer.option("topic", topic).mode("append").save()
        finally:
            killer.join()
            spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
        assert cluster.state(1) != "running"
        found = sorted(int(each) for each in values(cluster.bootstrap_servers, topic))
        assert found == list(range(20_000))


def test_rows_are_gathered_to_a_bounded_size():
    import pyarrow as pa

    small = [pa.record_batch({"value": [b"%d" % each] * 10}) for each in range(50)]
    large = pa.record_batch({"value": [b"x" * 100] * 1000})
    together = list(gathered([*small, large, *small], 10_000))
    assert sum(each.num_rows for each in together) == 2000
    assert max(each.nbytes for each in together) < 22_000
    assert len(together) < 20
    alone = list(gathered([pa.record_batch({"value": [b"x" * 50_000]})], 10_000))
    assert [each.num_rows for each in alone] == [1]
    assert list(gathered([pa.record_batch({"value": pa.array([], pa.binary())})], 100)) == []


def test_what_tasks_wrote_adds_up():
    assert Written(1, 2, 3) + Written(10, 20, 30) == Written(11, 22, 33)
