"""Console producer and consumer: records in and out, and all that they can print."""

from __future__ import annotations

from typing import Any

from compat.families.topics import create
from compat.peer import Output, Peer
from compat.row import row

PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
KEYED = ("--property", "parse.key=true", "--property", "key.separator=:")
EVERYTHING = ("key", "value", "headers", "timestamp", "offset", "partition", "epoch")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def lines(first: int, beyond: int) -> str:
    """Lines `key-N:value-N`."""
    return "".join(f"key-{number}:value-{number}\n" for number in range(first, beyond))


def produce(peer: Peer, topic: str, text: str, *words: object, **options: Any) -> Output:
    """Send the lines with the console producer."""
    return peer.tool(PRODUCER, *peer.at, "--topic", topic, *words, text=text, **options)


def fill(peer: Peer, topic: str, count: int) -> None:
    """Send `count` keyed records."""
    produce(peer, topic, lines(0, count), *KEYED)


def consume(peer: Peer, *words: object, **options: Any) -> Output:
    """Read with the console consumer."""
    return peer.tool(CONSUMER, *peer.at, *words, **options)


def read(peer: Peer, topic: str, count: int, *words: object) -> list[str]:
    """`count` records of partition 0 from its beginning."""
    at = ("--topic", topic, "--partition", 0, "--offset", "earliest", "--max-messages", count)
    return consume(peer, *at, *words).lines


def printing(*what: str) -> list[str]:
    """The words that make the consumer print these parts of each record."""
    return [word for name in what for word in ("--property", f"print.{name}=true")]


@row("console-records")
def carries_records(peer: Peer) -> object:
    """Records go in by the console producer and come out by the console consumer, in order."""
    create(peer, "console")
    fill(peer, "console", 100)
    return read(peer, "console", 100, *printing("key", "offset", "partition"))


@row("console-headers-and-nulls")
def carries_headers_and_nulls(peer: Peer) -> object:
    """Headers, null keys, null values and empty ones come back as they were sent."""
    create(peer, "console-headers")
    text = "a:1,b:2\tkey\tvalue\nNULL\tNULL\tNULL\na:NULL\tkey\t\n"
    parse = ("parse.key=true", "parse.headers=true", "null.marker=NULL")
    produce(peer, "console-headers", text, *(w for each in parse for w in ("--property", each)))
    return read(peer, "console-headers", 3, *printing(*EVERYTHING))


@row("console-codecs")
def carries_every_codec(peer: Peer) -> object:
    """Records of every codec come back as they were sent."""
    create(peer, "console-codecs")
    for number, codec in enumerate(CODECS):
        text = lines(number * 20, number * 20 + 20)
        produce(peer, "console-codecs", text, *KEYED, f"--compression-codec={codec}")
    return read(peer, "console-codecs", 100, *printing("key", "offset"))


@row("console-acks")
def carries_records_with_any_acks(peer: Peer) -> object:
    """acks 0, 1 and all, synchronous and not, without idempotence."""
    create(peer, "console-acks")
    plain = ("--producer-property", "enable.idempotence=false")
    for number, acks in enumerate(("0", "1", "all")):
        words = ("--request-required-acks", acks, *plain, *KEYED)
        sync = ("--sync", "--timeout", 1) if number % 2 else ()
        produce(peer, "console-acks", lines(number * 10, number * 10 + 10), *words, *sync)
    return read(peer, "console-acks", 30)


@row("console-offset")
def reads_from_an_offset(peer: Peer) -> object:
    """The consumer starts at an offset of a partition."""
    create(peer, "console-offset", 2)
    fill(peer, "console-offset", 50)
    at = ("--topic", "console-offset", "--partition", 1, "--offset", 5, "--max-messages", 10)
    return consume(peer, *at, *printing("offset", "partition", "key")).lines


@row("console-log-append-time")
def stamps_records(peer: Peer) -> object:
    """A topic with LogAppendTime prints the broker's times."""
    create(peer, "console-stamped", message_timestamp_type="LogAppendTime")
    fill(peer, "console-stamped", 2)
    return read(peer, "console-stamped", 2, *printing("timestamp"))


@row("console-large")
def carries_a_large_record(peer: Peer) -> object:
    """A record of 900 kB comes back; one over the topic's limit is refused by the broker."""
    create(peer, "console-large")
    create(peer, "console-small", max_message_bytes=10_000)
    large = "x" * 900_000
    produce(peer, "console-large", large + "\n")
    came = read(peer, "console-large", 1)
    refused = produce(peer, "console-small", "y" * 20_000 + "\n", "--sync", fails=True)
    peer.say(refused.complaint)
    return came == [large], "RecordTooLargeException" in refused.err


@row("console-auto-create")
def creates_on_first_use(peer: Peer) -> object:
    """A topic is created automatically by the first record."""
    produce(peer, "console-new", "first\n")
    return read(peer, "console-new", 1)


@row("console-read-committed")
def reads_committed_records(peer: Peer) -> object:
    """read_committed sees every record that no transaction wrote."""
    create(peer, "console-committed")
    fill(peer, "console-committed", 10)
    return read(peer, "console-committed", 10, "--isolation-level", "read_committed")


@row("console-group")
def consumes_in_a_group(peer: Peer) -> object:
    """The second run of a group continues where the first one stopped."""
    create(peer, "console-group")
    fill(peer, "console-group", 30)
    in_group = ("--topic", "console-group", "--group", "console", "--from-beginning")
    first = consume(peer, *in_group, "--max-messages", 10).lines
    return first, consume(peer, *in_group, "--max-messages", 20).lines


@row("console-include")
def consumes_topics_by_pattern(peer: Peer) -> object:
    """A pattern of topics is consumed by a group."""
    for number in range(3):
        create(peer, f"pattern-{number}")
        produce(peer, f"pattern-{number}", f"of-{number}\n")
    words = ("--include", "pattern-.*", "--group", "pattern", "--from-beginning")
    return sorted(consume(peer, *words, "--max-messages", 3).lines)
