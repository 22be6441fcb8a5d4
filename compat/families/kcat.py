"""kcat: librdkafka on a command line."""

from __future__ import annotations

import json
from typing import Any

from compat.clients import fetch_kcat, kcat_command
from compat.peer import Output, Peer
from compat.row import row

BEGINNING = ("-o", "beginning", "-e", "-q")
SHOWN = ("-f", "%p %o %k=%s [%h]\\n")


def kcat(peer: Peer, *words: object, **options: Any) -> Output:
    """kcat with these words."""
    command, environment = kcat_command()
    return peer.command(*command, "-b", peer.bootstrap, *words, env=environment, **options)


def produce(peer: Peer, topic: str, *words: object, numbers: range = range(5)) -> None:
    """Records `key-N:value-N` into partition 0 unless the words say another."""
    text = "".join(f"key-{number}:value-{number}\n" for number in numbers)
    kcat(peer, "-P", "-t", topic, "-p", 0, "-K", ":", *words, text=text)


def shown(peer: Peer, topic: str, *words: object) -> list[str]:
    """The records that kcat reads to the end: partition, offset, key, value and headers."""
    return kcat(peer, "-C", "-t", topic, *words, *SHOWN).lines


@row("kcat-list", prepare=fetch_kcat)
def lists(peer: Peer) -> object:
    """kcat -L: brokers, topics, leaders, replicas; an unknown topic."""
    produce(peer, "kcat-list")
    listed = json.loads(kcat(peer, "-L", "-J", "-t", "kcat-list").out)
    quiet = ("-X", "allow.auto.create.topics=false")
    return listed, kcat(peer, "-L", "-t", "kcat-nobody", *quiet).lines


@row("kcat-records", prepare=fetch_kcat)
def records(peer: Peer) -> object:
    """kcat -P and -C: keys, headers, null and empty values come back in order."""
    produce(peer, "kcat-records", "-H", "colour=red", "-H", "colour=blue", "-H", "empty=")
    kcat(peer, "-P", "-t", "kcat-records", "-K", ":", "-Z", text="gone:\n:nobody\n")
    read = kcat(peer, "-C", "-t", "kcat-records", *BEGINNING, "-J", raw=True).lines
    return [{**json.loads(line), "ts": "<ms>"} for line in read]


@row("kcat-compression", prepare=fetch_kcat)
def compresses(peer: Peer) -> object:
    """kcat -z: gzip, snappy, lz4 and zstd are written and read back."""
    for codec in ("gzip", "snappy", "lz4", "zstd"):
        produce(peer, "kcat-codecs", "-z", codec, numbers=range(200))
    return shown(peer, "kcat-codecs", *BEGINNING)


@row("kcat-offsets", prepare=fetch_kcat)
def reads_from_offsets(peer: Peer) -> object:
    """kcat -o: an absolute offset, one from the end, one beyond the end, a count."""
    produce(peer, "kcat-offsets", numbers=range(10))
    topic = ("kcat-offsets", "-e", "-q", "-p", 0)
    return {
        "absolute": shown(peer, *topic, "-o", 7),
        "from the end": shown(peer, *topic, "-o", -2),
        "end": shown(peer, *topic, "-o", "end"),
        "beyond": shown(peer, *topic, "-o", 99, "-X", "topic.auto.offset.reset=earliest"),
        "count": shown(peer, *topic, "-o", 1, "-c", 3),
    }


@row("kcat-times", prepare=fetch_kcat)
def queries_times(peer: Peer) -> object:
    """kcat -Q and -o s@…e@…: offsets by time, the first, the last, before all, after all."""
    topic = "kcat-times"
    for number in range(4):
        produce(peer, topic, numbers=range(number, number + 1))
    printed = kcat(peer, "-C", "-t", topic, *BEGINNING, "-f", "%T\\n", raw=True)
    times = [int(line) for line in printed.lines]
    asked = [*times, times[-1] + 1, 0, -1, -2]
    found = [kcat(peer, "-Q", "-t", f"{topic}:0:{time}").lines for time in asked]
    between = ("-o", f"s@{times[1]}", "-o", f"e@{times[3]}")
    return found, shown(peer, topic, "-p", 0, "-e", "-q", *between)


@row("kcat-idempotent", prepare=fetch_kcat)
def is_idempotent(peer: Peer) -> object:
    """kcat -X enable.idempotence: a producer id is drawn, each record is there once."""
    produce(peer, "kcat-once", "-X", "enable.idempotence=true", numbers=range(300))
    return shown(peer, "kcat-once", *BEGINNING)


@row("kcat-group", prepare=fetch_kcat)
def joins_a_group(peer: Peer) -> object:
    """kcat -G: a group reads to the end, and its next member starts at the committed offsets."""
    produce(peer, "kcat-group")
    member = ("-G", "kcat-group", "-e", "-q", "-X", "auto.offset.reset=earliest")
    first = kcat(peer, *member, *SHOWN, "kcat-group").lines
    produce(peer, "kcat-group", numbers=range(5, 8))
    second = kcat(peer, *member, *SHOWN, "kcat-group").lines
    return first, second, kcat(peer, *member, *SHOWN, "kcat-group").lines


@row("kcat-group-cooperative", prepare=fetch_kcat)
def joins_cooperatively(peer: Peer) -> object:
    """kcat -G as a static member with the cooperative-sticky assignor, over two topics."""
    for topic in ("kcat-sticky-a", "kcat-sticky-b"):
        produce(peer, topic)
    assignor = ("-X", "partition.assignment.strategy=cooperative-sticky")
    static = ("-X", "group.instance.id=one", "-X", "auto.offset.reset=earliest")
    member = ("-G", "kcat-sticky", "-e", "-q", *assignor, *static, "-f", "%t %o %k\\n")
    topics = ("kcat-sticky-a", "kcat-sticky-b")
    return sorted(kcat(peer, *member, *topics).lines), kcat(peer, *member, *topics).lines


@row("kcat-refused", prepare=fetch_kcat)
def is_refused(peer: Peer) -> object:
    """kcat is refused: an illegal topic name, a partition that is not there, a record too big."""
    produce(peer, "kcat-refused")
    refusals = [
        kcat(peer, "-P", "-t", "no/slash", text="a\n", fails=True),
        kcat(peer, "-C", "-t", "kcat-refused", "-p", 9, *BEGINNING, fails=True),
        kcat(peer, "-P", "-t", "kcat-refused", *BIG, text="a" * 2_000_000, fails=True),
    ]
    return [refusal.err.strip().splitlines()[-1] for refusal in refusals]


BIG = ("-X", "message.max.bytes=4000000")
"""kcat's own limit, above the broker's."""
