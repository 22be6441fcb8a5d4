"""What options say, and what is refused."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from anabranch.client.ranges import PART_BYTES
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.option_table import EFFECTIVE, REFUSED, WITHOUT_EFFECT
from anabranch.pipelines.options import (
    EARLIEST,
    LATEST,
    Bound,
    check_batch,
    check_streaming,
    source_options,
)
from anabranch.pipelines.sink_options import read_options

PAGE = Path(__file__).resolve().parents[2] / "docs" / "pipelines" / "source.md"
NEEDED = {"kafka.bootstrap.servers": "host:9092", "subscribe": "orders"}

SPARKS = {
    "assign", "subscribe", "subscribePattern", "startingOffsets", "endingOffsets",
    "startingOffsetsByTimestamp", "endingOffsetsByTimestamp", "startingTimestamp",
    "endingTimestamp", "startingOffsetsByTimestampStrategy", "failOnDataLoss", "minPartitions",
    "maxRecordsPerPartition", "maxOffsetsPerTrigger", "minOffsetsPerTrigger", "maxTriggerDelay",
    "fetchOffset.numRetries", "fetchOffset.retryIntervalMs", "kafkaConsumer.pollTimeoutMs",
    "groupIdPrefix", "includeHeaders", "kafka.group.id", "kafka.bootstrap.servers",
}  # fmt: skip
"""The options of Spark's own Kafka source, as Spark 4.x documents them."""


def options(**more):
    return source_options({**NEEDED, **more})


def test_every_option_of_sparks_source_works_or_is_listed():
    assert {*EFFECTIVE, *WITHOUT_EFFECT} >= SPARKS


def test_the_page_lists_every_option():
    text = PAGE.read_text()
    listed = set(re.findall(r"`([\w.*]+)`", text))
    known = {*EFFECTIVE, *WITHOUT_EFFECT, *REFUSED}
    assert known <= listed, f"not on the page: {sorted(known - listed)}"


@pytest.mark.parametrize("name", sorted(WITHOUT_EFFECT))
def test_options_without_effect_may_stay(name):
    assert options(**{name: "any"}) == options()


def test_names_are_read_in_any_case():
    assert options(STARTINGOFFSETS="Earliest") == options(startingOffsets="earliest")


@pytest.mark.parametrize(
    ("given", "bound"),
    [
        ({"startingOffsets": "earliest"}, Bound(special=EARLIEST)),
        ({"startingOffsets": "latest"}, Bound(special=LATEST)),
        (
            {"startingOffsets": '{"orders":{"0":5,"1":-2}}'},
            Bound(offsets={"orders": {0: 5, 1: -2}}),
        ),
        ({"startingTimestamp": "17", "startingOffsets": "earliest"}, Bound(timestamp=17)),
        (
            {"startingOffsetsByTimestamp": '{"orders":{"0":17}}', "startingOffsets": "latest"},
            Bound(timestamps={"orders": {0: 17}}),
        ),
        (
            {"startingTimestamp": "17", "startingOffsetsByTimestamp": '{"orders":{"0":3}}'},
            Bound(timestamp=17),
        ),
    ],
)
def test_bounds_follow_sparks_precedence(given, bound):
    assert options(**given).starting == bound


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500", 500), ("500ms", 500), ("30s", 30_000), ("2 m", 120_000), ("1h", 3_600_000)],
)
def test_durations_have_units(text, ms):
    assert options(maxTriggerDelay=text).max_trigger_delay_ms == ms


@pytest.mark.parametrize(
    ("more", "words"),
    [
        ({"subscribePattern": "o.*"}, r"Exactly one of .* 2 \(subscribe, subscribePattern\)"),
        ({"subscribe": " , "}, "names no topic"),
        ({"subscribe": ""}, "'subscribe' is empty"),
        ({"kafka.bootstrap.servers": "host"}, "not host:port"),
        ({"startingOffsets": "earlier"}, "'startingOffsets' is JSON like earliest, latest or"),
        ({"startingOffsets": '{"orders":{"0":-3}}'}, "is JSON like"),
        ({"startingOffsets": '{"orders":[0]}'}, "is JSON like"),
        ({"startingOffsetsByTimestamp": '{"orders":{"0":-1}}'}, "is JSON like"),
        ({"startingTimestamp": "yesterday"}, "whole number from 0 up, not 'yesterday'"),
        ({"failOnDataLoss": "no"}, "'failOnDataLoss' is true or false, not 'no'"),
        ({"minPartitions": "0"}, "whole number from 1 to 100000"),
        ({"minPartitions": "2147483647"}, "'minPartitions' is a whole number from 1 to 100000"),
        ({"maxTriggerDelay": "soon"}, "is a duration like '30s'"),
        ({"shape": "rows"}, "'shape' is records or batches, not 'rows'"),
        ({"shape": "batches", "includeHeaders": "true"}, "'shape' and 'includeHeaders' conflict"),
        ({"minOffsetsPerTrigger": "9", "maxOffsetsPerTrigger": "5"}, "must not be greater than"),
        ({"kafka.isolation.level": "serial"}, "is read_uncommitted or read_committed"),
        ({"kafka.group.idd": "x"}, "unknown to the source. Did you mean 'kafka.group.id'"),
        ({"topic": "orders"}, "'topic' is unknown"),
        ({"kafka.enable.auto.commit": "true"}, "has no place here"),
        ({"path": "orders"}, r"use load\(\) without one, and option\('subscribe'"),
        ({"subscribe": "orders,a b"}, "'subscribe' names 'a b', which no topic can be called"),
        ({"subscribe": "x" * 40_000}, "'x{60}…', which no topic can be called"),
        ({"startingOffsets": '{"orders":{"0":1.9}}'}, "is JSON like"),
        ({"startingOffsets": '{"orders":{"0":true}}'}, "is JSON like"),
        ({"startingOffsets": '{"orders":{"0":9223372036854775808}}'}, "is JSON like"),
        ({"startingTimestamp": "9223372036854775808"}, "whole number from 0 up"),
        ({"kafka.fetch.max.wait.ms": "2147483648"}, "whole number from 0 to 2147483647"),
        ({"kafka.fetch.max.bytes": "2147483648"}, "whole number from 1 to 2147483647"),
        ({"kafka.max.partition.fetch.bytes": "2147483648"}, "whole number from 1 to 2147483647"),
    ],
)
def test_what_cannot_be_is_refused(more, words):
    with pytest.raises(OptionError, match=words):
        options(**more)


@pytest.mark.parametrize(
    ("name", "text", "words"),
    [
        ("subscribePattern", "a{99999999999999}", "is no regular expression: "),
        ("subscribePattern", "(" * 20_000 + ")" * 20_000, "is no regular expression: "),
        ("assign", "[" * 200_000, "is JSON like"),
    ],
    ids=["repetition", "brackets", "lists"],
)
def test_what_is_too_large_or_too_deep_is_refused(name, text, words):
    needed = {each: given for each, given in NEEDED.items() if each != "subscribe"}
    with pytest.raises(OptionError, match=f"'{name}' {words}"):
        source_options({**needed, name: text})


@pytest.mark.parametrize(
    ("of_partition", "of_all", "part_bytes"),
    [
        (None, None, PART_BYTES), ("8388608", None, 8 << 20), (None, "52428800", PART_BYTES),
        (None, "1000", 1000), ("8388608", "1000", 1000),
    ],
)  # fmt: skip
def test_the_smaller_maximum_of_a_fetch_applies(of_partition, of_all, part_bytes):
    given = {"kafka.max.partition.fetch.bytes": of_partition, "kafka.fetch.max.bytes": of_all}
    found = options(**{name: text for name, text in given.items() if text is not None})
    assert found.reading.part_bytes == part_bytes


def test_messages_name_pages_by_their_headings():
    headings = {each.read_text().split("\n")[0] for each in PAGE.parent.glob("*.md")}
    pages = set()
    for name in (source_options, read_options):
        with pytest.raises(OptionError) as caught:
            name({"no.such.option": "x"})
        pages.add(re.search("The page '(.+?)'", str(caught.value))[1])
    assert len(pages) == 2 and {f"# {each}" for each in pages} <= headings


@pytest.mark.parametrize(
    "text", ["{", '{"orders":[]}', '{"orders":["0"]}', '{"orders":[-1]}', "[]"]
)
def test_assigned_partitions_are_json(text):
    with pytest.raises(OptionError, match="'assign' is JSON like"):
        source_options({"kafka.bootstrap.servers": "host:9092", "assign": text})


@pytest.mark.parametrize(
    "more",
    [
        {"startingOffsets": "latest"}, {"endingOffsets": "earliest"},
        {"startingOffsets": '{"orders":{"0":-1}}'}, {"endingOffsets": '{"orders":{"0":-2}}'},
    ],
)  # fmt: skip
def test_a_batch_has_no_bound_without_records(more):
    with pytest.raises(OptionError, match=r"nothing would be read"):
        check_batch(options(**more))


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name):
    text = '{"orders":{"0":5}}' if name != "endingTimestamp" else "5"
    with pytest.raises(OptionError, match="a stream has no end"):
        check_streaming(options(**{name: text}))
