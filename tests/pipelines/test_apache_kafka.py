"""The source on Apache Kafka, with transactions that Kafka's coordinator ended.

Runs with ANABRANCH_TEST_PEER=kafka and the jars of `scripts/kafka-jars`; the suite needs no Java of
the machine's own, and no Kafka.
"""

from __future__ import annotations

import os

import pytest

if os.environ.get("ANABRANCH_TEST_PEER") != "kafka":
    pytest.skip("needs ANABRANCH_TEST_PEER=kafka", allow_module_level=True)

import confluent_kafka
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.pipelines.scrub import scrub


@pytest.fixture(scope="module")
def bootstrap(tmp_path_factory):
    from bench.servers import Kafka

    settings = {
        "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
        "transaction.state.log.min.isr": 1, "offsets.topic.num.partitions": 1,
        "transaction.state.log.num.partitions": 1,
    }  # fmt: skip
    server = Kafka(settings, tmp_path_factory.mktemp("kafka"))
    server.start()
    server.await_port()
    yield server.bootstrap
    server.stop()


@pytest.fixture
def read(spark, bootstrap):
    def loaded(topic, **more):
        servers = {"kafka.bootstrap.servers": bootstrap, "subscribe": topic}
        frame = spark.read.format("anabranch").options(**servers, **more).load()
        return [(row.offset, row.value) for row in frame.orderBy("offset").collect()]

    return loaded


def create(bootstrap, topic):
    admin = AdminClient({"bootstrap.servers": bootstrap})
    for future in admin.create_topics([NewTopic(topic, 1, 1)]).values():
        future.result(60)


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_a_topic_of_kafkas_is_read(bootstrap, read, codec):
    topic = f"codec-{codec}"
    create(bootstrap, topic)
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "compression.type": codec, "linger.ms": 20}
    )
    for each in range(200):
        producer.produce(topic, b"value %d" % each * 10)
    assert producer.flush(60) == 0
    rows = [(each, b"value %d" % each * 10) for each in range(200)]
    assert read(topic) == rows
    assert read(topic, minPartitions="3") == rows


def test_aborted_records_are_hidden_from_readers_of_committed_ones(bootstrap, read):
    create(bootstrap, "transactions")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "transactional.id": "t"})
    producer.init_transactions(60)
    for number, end in enumerate(("commit", "abort", "commit", "abort")):
        producer.begin_transaction()
        for each in range(3):
            producer.produce("transactions", b"%s %d %d" % (end.encode(), number, each))
        assert producer.flush(60) == 0, "an abort drops what was not sent"
        getattr(producer, f"{end}_transaction")(60)
    written = [
        (number * 4 + each, b"%s %d %d" % (end.encode(), number, each))
        for number, end in enumerate(("commit", "abort", "commit", "abort"))
        for each in range(3)
    ]
    assert read("transactions") == written
    committed = [(offset, value) for offset, value in written if value.startswith(b"commit")]
    assert read("transactions", **{"kafka.isolation.level": "read_committed"}) == committed


def test_a_stream_of_kafkas_topic_goes_on_where_it_ended(bootstrap, spark, tmp_path):
    create(bootstrap, "streamed")
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap})
    options = {"kafka.bootstrap.servers": bootstrap, "subscribe": "streamed"}
    frame = spark.readStream.format("anabranch").options(**options, startingOffsets="earliest")
    for first in (0, 50):
        for each in range(first, first + 50):
            producer.produce("streamed", b"%d" % each)
        producer.flush(60)
        query = (
            frame.load().selectExpr("offset").writeStream.format("json")
            .option("path", str(tmp_path / "rows"))
            .option("checkpointLocation", str(tmp_path / "checkpoint"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        assert query.awaitTermination(120)
        rows = spark.read.schema("offset long").json(str(tmp_path / "rows")).collect()
        assert sorted(row.offset for row in rows) == list(range(first + 50))


def test_rows_are_written_to_kafkas_topic_and_its_replica_is_compared(bootstrap, read, spark):
    create(bootstrap, "written")
    rows = spark.range(0, 500, 1, 2).selectExpr("string(id) key", "string(id) value")
    options = {"kafka.bootstrap.servers": bootstrap, "topic": "written"}
    rows.write.format("anabranch").mode("append").options(
        **options, **{"kafka.compression.type": "lz4"}
    ).save()
    assert sorted(int(value) for _, value in read("written")) == list(range(500))
    whole = spark.read.format("anabranch").options(
        **{"kafka.bootstrap.servers": bootstrap, "subscribe": "written", "shape": "batches"}
    )  # fmt: skip
    assert whole.load().selectExpr("sum(recordCount)").first()[0] == 500
    report = scrub(spark, bootstrap, ["written"])
    assert report.is_clean and (report.partitions, report.replicas) == (1, 1)
