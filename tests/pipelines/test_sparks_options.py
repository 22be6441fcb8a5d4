"""The options that Spark 4.x documents for its Kafka source and sink, and Kafka's client settings.

The lists are those of Spark's integration guide and of the Java classes `ConsumerConfig` and
`ProducerConfig` of Kafka 3.9 and 4.1. Each option works, or is accepted without effect, or is
refused where Spark refuses it or where silence would change what the job means.
"""

from __future__ import annotations

import pytest

from anabranch.pipelines import option_table, producer_options
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.options import source_options
from anabranch.pipelines.security_options import is_security_option
from anabranch.pipelines.sink_options import read_options

SERVERS = {"kafka.bootstrap.servers": "host:9092"}
NEEDED = {**SERVERS, "subscribe": "orders"}

SOURCE = {
    "assign": '{"orders":[0]}', "subscribe": "payments", "subscribePattern": "o.*",
    "kafka.bootstrap.servers": "other:9092", "startingTimestamp": "5",
    "startingOffsetsByTimestamp": '{"orders":{"0":5}}', "startingOffsets": "earliest",
    "endingTimestamp": "5", "endingOffsetsByTimestamp": '{"orders":{"0":5}}',
    "endingOffsets": "latest", "failOnDataLoss": "false", "kafkaConsumer.pollTimeoutMs": "5",
    "fetchOffset.numRetries": "9", "fetchOffset.retryIntervalMs": "9", "maxOffsetsPerTrigger": "5",
    "minOffsetsPerTrigger": "5", "maxTriggerDelay": "5m", "minPartitions": "5",
    "maxRecordsPerPartition": "5", "includeHeaders": "true",
    "startingOffsetsByTimestampStrategy": "latest",
}  # fmt: skip
"""Every option of Spark's source that has an effect there, with a value that is not the usual."""
SOURCE_WITHOUT_EFFECT = {"groupIdPrefix": "jobs", "kafka.group.id": "jobs"}
SOURCE_REFUSED = {
    "group.id", "kafka.auto.offset.reset", "kafka.key.deserializer", "kafka.value.deserializer",
    "kafka.enable.auto.commit", "kafka.interceptor.classes",
}  # fmt: skip

OUR_SOURCE = {
    "kafka.client.id": "me", "kafka.isolation.level": "read_committed",
    "kafka.max.partition.fetch.bytes": "5000", "kafka.fetch.max.bytes": "5000",
    "kafka.fetch.max.wait.ms": "5", "kafka.default.api.timeout.ms": "5", "shape": "batches",
    "failOnCorruption": "false", "maxBytesPerPartition": "5",
}  # fmt: skip
"""The other options that the page calls effective."""

CONSUMER = """
allow.auto.create.topics auto.commit.interval.ms auto.include.jmx.reporter auto.offset.reset
bootstrap.servers check.crcs client.dns.lookup client.id client.rack config.providers
connections.max.idle.ms default.api.timeout.ms enable.auto.commit enable.metrics.push
exclude.internal.topics fetch.max.bytes fetch.max.wait.ms fetch.min.bytes group.id
group.instance.id group.protocol group.remote.assignor heartbeat.interval.ms interceptor.classes
isolation.level key.deserializer max.partition.fetch.bytes max.poll.interval.ms max.poll.records
metadata.max.age.ms metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy
metric.reporters metrics.num.samples metrics.recording.level metrics.sample.window.ms
partition.assignment.strategy receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
request.timeout.ms retry.backoff.max.ms retry.backoff.ms sasl.jaas.config sasl.mechanism
security.protocol security.providers send.buffer.bytes session.timeout.ms
share.acknowledgement.mode socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.keystore.password ssl.truststore.location value.deserializer
""".split()  # noqa: SIM905  # one name a word
PRODUCER = """
acks auto.include.jmx.reporter batch.size bootstrap.servers buffer.memory client.dns.lookup
client.id compression.gzip.level compression.lz4.level compression.type compression.zstd.level
config.providers connections.max.idle.ms delivery.timeout.ms enable.idempotence enable.metrics.push
interceptor.classes key.serializer linger.ms max.block.ms max.in.flight.requests.per.connection
max.request.size metadata.max.age.ms metadata.max.idle.ms
metadata.recovery.rebootstrap.trigger.ms metadata.recovery.strategy metric.reporters
metrics.num.samples metrics.recording.level metrics.sample.window.ms
partitioner.adaptive.partitioning.enable partitioner.availability.timeout.ms partitioner.class
partitioner.ignore.keys receive.buffer.bytes reconnect.backoff.max.ms reconnect.backoff.ms
request.timeout.ms retries retry.backoff.max.ms retry.backoff.ms sasl.jaas.config sasl.mechanism
security.protocol security.providers send.buffer.bytes socket.connection.setup.timeout.max.ms
socket.connection.setup.timeout.ms ssl.keystore.password ssl.truststore.location
transaction.timeout.ms transaction.two.phase.commit.enable transactional.id value.serializer
""".split()  # noqa: SIM905  # one name a word

SINK = {
    "acks": "1", "batch.size": "5", "bootstrap.servers": "other:9092", "buffer.memory": "5000000",
    "client.id": "me", "compression.gzip.level": "5", "compression.lz4.level": "5",
    "compression.type": "zstd", "compression.zstd.level": "5", "delivery.timeout.ms": "50000",
    "enable.idempotence": "false", "max.block.ms": "5",
    "max.in.flight.requests.per.connection": "3", "max.request.size": "5000",
    "partitioner.class": producer_options.ROUND_ROBIN, "partitioner.ignore.keys": "true",
    "request.timeout.ms": "5", "retries": "5", "retry.backoff.max.ms": "5000",
    "retry.backoff.ms": "5", "transaction.timeout.ms": "5000", "transactional.id": "orders",
}  # fmt: skip
"""Every producer setting that takes effect, with a value that is not the usual."""
ALSO = {
    "acks": {"enable.idempotence": "false"},
    **{f"compression.{each}.level": {"compression.type": each} for each in ("gzip", "lz4", "zstd")},
}
"""What a setting needs beside it."""


def selection(name):
    chosen = {"assign", "subscribe", "subscribePattern"}
    return SERVERS if name in chosen else NEEDED


def kafka(settings):
    return {f"kafka.{name}": text for name, text in settings.items()}


@pytest.mark.parametrize("name", sorted({**SOURCE, **OUR_SOURCE}))
def test_every_effective_option_of_the_source_changes_what_is_read(name):
    given = {**selection(name), name: {**SOURCE, **OUR_SOURCE}[name]}
    assert source_options(given) != source_options(NEEDED)


def test_no_option_of_the_source_is_called_effective_without_being_tried():
    assert set(option_table.EFFECTIVE) == {*SOURCE, *OUR_SOURCE}


@pytest.mark.parametrize("name", sorted(SOURCE_WITHOUT_EFFECT))
def test_options_about_groups_are_listed_without_effect(name):
    assert source_options({**NEEDED, name: "jobs"}) == source_options(NEEDED)
    assert name in option_table.WITHOUT_EFFECT


@pytest.mark.parametrize("name", sorted(SOURCE_REFUSED))
def test_what_sparks_source_refuses_is_refused(name):
    with pytest.raises(OptionError, match="has no place here"):
        source_options({**NEEDED, name: "latest"})


@pytest.mark.parametrize("setting", CONSUMER)
def test_every_setting_of_the_consumer_is_known(setting):
    name = f"kafka.{setting}"
    tables = option_table.EFFECTIVE, option_table.WITHOUT_EFFECT, option_table.REFUSED
    places = [*(name in table for table in tables), is_security_option(name)]
    assert places.count(True) == 1, name


@pytest.mark.parametrize("name", sorted(SINK))
def test_every_effective_setting_of_the_sink_changes_how_is_written(name):
    usual = {**SERVERS, **kafka(ALSO.get(name, {}))}
    if name.startswith("transaction"):
        usual |= {"exactlyOnce": "true", "checkpointLocation": "/a"}
    changed = {**usual, f"kafka.{name}": SINK[name]}
    assert read_options(changed, is_stream=True) != read_options(usual, is_stream=True)


def test_no_setting_of_the_sink_is_called_effective_without_being_tried():
    assert set(producer_options.WITH_EFFECT) == set(SINK)


@pytest.mark.parametrize("setting", PRODUCER)
def test_every_setting_of_the_producer_is_in_one_table(setting):
    tables = [
        setting in producer_options.WITH_EFFECT, setting in producer_options.WITHOUT_EFFECT,
        setting in producer_options.REFUSED, is_security_option(f"kafka.{setting}"),
    ]  # fmt: skip
    assert tables.count(True) == 1, setting


def test_the_sinks_own_options_are_those_that_spark_documents():
    usual = read_options(SERVERS)
    assert read_options({**SERVERS, "topic": "orders"}).topic == "orders"
    assert read_options({**SERVERS, "includeHeaders": "true"}) == usual
