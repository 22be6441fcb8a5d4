"""`kafka-get-offsets.sh` and `kafka-delete-records.sh`: where partitions begin, end, and were."""

from __future__ import annotations

import json
from typing import Any

from confluent_kafka import Producer

from compat.families.console import fill, read
from compat.families.topics import OFFSETS, create
from compat.peer import Output, Peer
from compat.row import row

DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
TIMES_MS = (1_000_000_000_000, 1_300_000_000_000, 1_200_000_000_000, 1_600_000_000_000)
"""Years 2001, 2011, 2008 and 2020: the third record is older than the second."""
FOREVER = -1


def offsets(peer: Peer, *words: object) -> list[str]:
    """kafka-get-offsets.sh with these words."""
    return peer.tool(OFFSETS, *peer.at, *words).lines


def fill_at_times(peer: Peer, topic: str, partitions: int = 1) -> None:
    """A topic with a record of each of TIMES_MS in each partition, in that order."""
    create(peer, topic, partitions, retention_ms=FOREVER)
    producer = Producer({"bootstrap.servers": peer.bootstrap, "linger.ms": 0})
    for time_ms in TIMES_MS:
        for partition in range(partitions):
            producer.produce(topic, b"record", partition=partition, timestamp=time_ms)
        producer.flush()


@row("get-offsets-times")
def gets_offsets_by_time(peer: Peer) -> object:
    """Latest, earliest, max-timestamp, local and tiered ends, and offsets by timestamp."""
    fill_at_times(peer, "timed")
    create(peer, "timed-empty")
    names = ("latest", "earliest", "max-timestamp", "earliest-local", "latest-tiered")
    numbers = (-1, -2, -3, -4, -5)
    moments = (0, *TIMES_MS, TIMES_MS[0] + 1, TIMES_MS[-1] + 1)
    asked: list[Any] = [*names, *numbers, *moments]
    return {
        str(time): [offsets(peer, "--topic", topic, "--time", time) for topic in TIMED]
        for time in asked
    }


TIMED = ("timed", "timed-empty")


@row("get-offsets-filters")
def gets_offsets_of_chosen_partitions(peer: Peer) -> object:
    """Patterns of topics, lists and ranges of partitions."""
    create(peer, "filter-a", 4)
    create(peer, "filter-b", 2)
    fill(peer, "filter-a", 20)
    return {
        "pattern": offsets(peer, "--topic", "filter-.*"),
        "list": offsets(peer, "--topic", "filter-a", "--partitions", "1,3"),
        "ranges": offsets(peer, "--topic-partitions", "filter-a:1-3,filter-b:-1,filter-b:1"),
        "open": offsets(peer, "--topic-partitions", "filter-a:2-", "--exclude-internal-topics"),
    }


@row("get-offsets-unknown")
def gets_no_offsets_of_unknown_topics(peer: Peer) -> object:
    """A topic that does not exist is refused."""
    output = peer.tool(OFFSETS, *peer.at, "--topic", "nobody", fails=True)
    peer.say(output.complaint)
    return output.code


def wish(peer: Peer, *cuts: tuple[str, int, int]) -> Output:
    """kafka-delete-records.sh up to these offsets of these partitions."""
    partitions = [{"topic": t, "partition": p, "offset": o} for t, p, o in cuts]
    text = json.dumps({"partitions": partitions, "version": 1})
    return peer.tool(DELETE, *peer.at, "--offset-json-file", peer.file("cut.json", text))


@row("delete-records")
def deletes_records(peer: Peer) -> object:
    """Records are deleted up to an offset, and up to the end with -1."""
    create(peer, "cut", 2)
    fill(peer, "cut", 40)
    said = wish(peer, ("cut", 0, 4)).lines + wish(peer, ("cut", 1, -1)).lines
    rest = read(peer, "cut", 3)
    return said, offsets(peer, "--topic", "cut", "--time", "earliest"), rest


@row("delete-records-refused")
def refuses_to_delete_beyond_the_end(peer: Peer) -> object:
    """An offset beyond the end of a partition is refused, and nothing is deleted."""
    create(peer, "cut-short")
    fill(peer, "cut-short", 3)
    lines = wish(peer, ("cut-short", 0, 99)).lines
    return lines, offsets(peer, "--topic", "cut-short", "--time", "earliest")
