"""Options and columns of the sink: what is refused, and what is said of it."""

from __future__ import annotations

import pytest
from pyspark.sql.types import StructType

from anabranch.core.wire.compression import Codec
from anabranch.pipelines.faults import OptionError, PipelineFault
from anabranch.pipelines.producer_options import REFUSED, WITH_EFFECT, WITHOUT_EFFECT
from anabranch.pipelines.sink import stream_writer_of, writer_of
from anabranch.pipelines.sink_options import read_options
from anabranch.pipelines.sink_rows import columns_of

SERVERS = {"kafka.bootstrap.servers": "127.0.0.1:9092"}


def read(**options):
    return read_options(
        {**SERVERS, **{name.replace("__", "."): text for name, text in options.items()}}
    )


def test_the_defaults_are_an_idempotent_producer_that_waits_for_all_replicas():
    options = read()
    assert options.producer.lane.acks == -1
    assert options.producer.lane.is_idempotent
    assert (options.codec, options.level, options.topic) == (Codec.NONE, None, None)


def test_producer_settings_are_taken_in_any_case():
    options = read_options(
        {
            **SERVERS, "Topic": "t", "KAFKA.compression.TYPE": "ZSTD",
            "kafka.compression.zstd.level": "7", "kafka.batch.size": "1000",
            "kafka.delivery.timeout.ms": "60000", "kafka.acks": "-1",
            "kafka.max.request.size": "5000",
        }
    )  # fmt: skip
    assert (options.codec, options.level, options.topic) == (Codec.ZSTD, 7, "t")
    assert (options.batch_bytes, options.request_bytes) == (1000, 5000)
    assert options.producer.lane.delivery_timeout_ms == 60_000


@pytest.mark.parametrize(("codec", "level"), [("gzip", None), ("zstd", -1)])
def test_a_level_of_minus_one_is_the_usual_one_of_gzip_only(codec, level):
    given = {"kafka.compression.type": codec, f"kafka.compression.{codec}.level": "-1"}
    assert read_options({**SERVERS, **given}).level == level


def test_settings_without_effect_are_accepted():
    read_options({**SERVERS, **{f"kafka.{name}": "1" for name in WITHOUT_EFFECT}})


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"kafka.acks": "1"}, "needs all: leave kafka.acks out"),
        ({"kafka.acks": "2"}, "'kafka.acks' is '2'; it must be one of all, -1, 1"),
        ({"kafka.batch.size": "big"}, "'kafka.batch.size' is 'big'; it must be a whole number"),
        ({"kafka.max.in.flight.requests.per.connection": "6"}, "it is at most 5. Lower it"),
        ({"kafka.delivery.timeout.ms": "10"}, "shorter than kafka.request.timeout.ms"),
        ({"kafka.buffer.memory": "100000"}, "smaller than kafka.max.request.size"),
        ({"kafka.compression.lz4.level": "3"}, "kafka.compression.type is none: set it to lz4"),
        ({"kafka.compresion.type": "lz4"}, "Did you mean 'kafka.compression.type'?"),
        ({"compression.type": "lz4"}, "Did you mean 'kafka.compression.type'?"),
        ({"sasl.mechanism": "PLAIN"}, "Did you mean 'kafka.sasl.mechanism'?"),
        ({"subscribe": "t"}, "It is an option of reading: drop it."),
        ({"kafka.transactional.id": "x"}, "means nothing without transactions"),
        ({"kafka.transaction.two.phase.commit.enable": "true"}, "use option exactlyOnce"),
        ({"exactlyOnce": "yes"}, "'exactlyOnce' is true or false, not 'yes'"),
        ({"jobId": "x"}, "set option 'exactlyOnce' to true"),
        ({"exactlyOnce": "true", "kafka.enable.idempotence": "false"}, "exactlyOnce needs it"),
        ({"exactlyOnce": "true", "jobId": "a/b"}, "'jobId' may have neither"),
        ({"exactlyOnce": "true", "kafka.transactional.id": "a+b"}, "may have neither"),
        ({"kafka.key.serializer": "x"}, "cast them to string or binary"),
        ({"path": "/data/x"}, "use save() or start() without one"),
        ({"topic": " "}, "'topic' is empty"),
        ({"topic": "a b"}, "'topic' names 'a b', which no topic can be called"),
        ({"kafka.bootstrap.servers": "localhost"}, "not host:port"),
    ],
)
def test_what_cannot_be_is_refused_with_what_to_do(given, said):
    with pytest.raises(OptionError) as refusal:
        read_options({**SERVERS, **given})
    assert said in str(refusal.value)


def scope(*, is_stream=False, **options):
    given = {name.replace("__", "."): text for name, text in options.items()}
    return read_options({**SERVERS, "exactlyOnce": "true", **given}, is_stream=is_stream).scope


def test_a_batch_write_has_a_name_of_its_own_or_that_of_its_job():
    assert read().scope is None
    assert scope().name != scope().name
    assert not scope().lasts
    first, second = scope(jobId="monday"), scope(jobId="monday")
    assert (first.name == second.name) and first.run != second.run
    assert scope(jobId="tuesday").name != first.name
    assert scope(jobId="monday").lasts
    assert scope(kafka__transactional__id="orders", jobId="monday").name == "orders+monday"


def test_a_stream_has_the_name_of_its_checkpoint_or_the_one_that_it_is_given():
    first = scope(is_stream=True, checkpointLocation="/a")
    assert first == scope(is_stream=True, checkpointLocation="/a")
    assert first.name != scope(is_stream=True, checkpointLocation="/b").name
    given = scope(is_stream=True, checkpointLocation="/a", kafka__transactional__id="orders")
    assert (given.name, given.lasts) == ("orders", True)
    with pytest.raises(OptionError, match="set option 'checkpointLocation'"):
        scope(is_stream=True)
    with pytest.raises(OptionError, match="this is a stream"):
        scope(is_stream=True, checkpointLocation="/a", jobId="x")


def test_the_cluster_must_be_named():
    with pytest.raises(OptionError, match=r"\.option\('kafka.bootstrap.servers'"):
        read_options({"topic": "t"})


def test_every_setting_of_kafkas_producer_is_in_one_table():
    from kafka import KafkaProducer

    known = {*WITH_EFFECT, *WITHOUT_EFFECT, *REFUSED}
    assert len(known) == len(WITH_EFFECT) + len(WITHOUT_EFFECT) + len(REFUSED)
    ours = {
        name.replace("_", ".") for name in KafkaProducer.DEFAULT_CONFIG
        if not name.startswith(("security_", "ssl_", "sasl_", "api_version", "kafka_client", "socks5", "proxy"))
    } - {"partitioner", "compression.type", "selector", "socket.options", "state.change.callback",
         "allow.auto.create.topics", "receive.message.max.bytes", "bootstrap.timeout.ms", "metrics.enabled", "raise.upon.socket.err.during.wakeup"}  # fmt: skip
    assert ours <= known, ours - known


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("schema", "said"),
    [
        ("value int", "Column `value` is of type int; it must be string or binary. Cast it"),
        ("key array<string>, value string", "Column `key` is of type array<string>; it must be"),
        ("value string, partition bigint", "`partition` is of type bigint; it must be int."),
        (
            "value string, headers map<string,string>",
            "must be array<struct<key:string,value:binary>>",
        ),
        ("key string", "There is no column `value`, which is required."),
        ("Value string", "there is `Value`, and names are compared with their case"),
    ],
)
def test_wrong_columns_are_named_with_their_types(schema, said):
    with pytest.raises(PipelineFault) as refusal:
        columns_of(StructType.fromDDL(schema), "t")
    assert said in str(refusal.value)


@pytest.mark.usefixtures("spark")
def test_all_wrong_columns_are_named_at_once():
    with pytest.raises(PipelineFault) as refusal:
        columns_of(StructType.fromDDL("topic int, key double, other date"), None)
    assert str(refusal.value).count("\n") == 2
    assert "other" not in str(refusal.value)


@pytest.mark.usefixtures("spark")
def test_a_topic_comes_from_the_option_or_the_column():
    schema = StructType.fromDDL("value string, topic int")
    assert columns_of(schema, "t").topic is None
    with pytest.raises(PipelineFault, match="Column `topic` is of type int; it must be string"):
        columns_of(schema, None)
    with pytest.raises(PipelineFault, match=r"no column `topic`: use option\('topic'"):
        columns_of(StructType.fromDDL("value string"), None)


@pytest.mark.usefixtures("spark")
def test_a_topic_is_not_overwritten_but_by_a_streams_mode_complete():
    schema = StructType.fromDDL("value string")
    with pytest.raises(PipelineFault, match=r"use mode\('append'\)"):
        writer_of({**SERVERS, "topic": "t"}, schema, overwrite=True)
    stream_writer_of({**SERVERS, "topic": "t"}, schema, overwrite=True)
