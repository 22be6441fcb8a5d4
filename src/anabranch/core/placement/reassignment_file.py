"""Files of moves, as Kafka's kafka-reassign-partitions reads and writes them.

What: `{"version": 1, "partitions": [{"topic": …, "partition": …, "replicas": […]}]}`, read with an
error that names line and field, and written. Also the file that names topics to be moved. Rules
kept: a partition is named once, its brokers are named once, and none of them is negative; a field
of another name is refused, as it would have no effect. What `log_dirs` says must be "any": brokers
choose their folders.

Source: Kafka's ReassignPartitionsCommand, KIP-455. Not here: whether brokers and topics exist.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import TypeAlias

from anabranch.core.placement.json_places import (
    InputFault,
    Item,
    check_end,
    decode,
    fields,
    items,
    needed,
    no_other_fields,
    no_others,
    replicas,
    shown,
    whole,
    written,
)
from anabranch.core.types import TopicPartition

Moves: TypeAlias = dict[TopicPartition, tuple[int, ...]]
VERSION = 1
FILE = '{"version": 1, "partitions": […]}'
ENTRY = '{"topic": …, "partition": …, "replicas": […]}'
TOPICS = '{"version": 1, "topics": [{"topic": …}]}'
ANY_FOLDER = "any"


def read_moves(text: str) -> Moves:
    """Partition -> the brokers that it shall have. Raises InputFault."""
    moves: Moves = {}
    for item in _entries(text, "partitions", FILE):
        place = TopicPartition(
            _topic(item, ENTRY, ("partition", "replicas")), whole(item, "partition")
        )
        no_others(item, ("topic", "partition", "replicas", "log_dirs"))
        if place in moves:
            raise InputFault(f"line {item.line}, partition: {place} is named a second time")
        moves[place] = replicas(item, "replicas", place)
        _check_folders(item, len(moves[place]))
    return moves


def read_topics(text: str) -> list[str]:
    """The topics that a topics-to-move file names, in its order, each once. Raises InputFault."""
    topics: dict[str, None] = {}
    for item in _entries(text, "topics", TOPICS):
        topics[_topic(item, TOPICS)] = None
        no_others(item, ("topic",))
    return list(topics)


def write_moves(moves: Mapping[TopicPartition, tuple[int, ...]]) -> str:
    """The file, one partition a line, in the order of topics and partitions."""
    lines = [
        json.dumps({"topic": place.topic, "partition": place.partition, "replicas": [*row]})
        for place, row in sorted(moves.items())
    ]
    return '{"version": 1, "partitions": [\n  ' + ",\n  ".join(lines) + "\n]}\n"


def _entries(text: str, name: str, expected: str) -> Iterator[Item]:
    where = fields(text, 0, expected)
    check_end(text, 0, "object")
    if "version" in where:
        version, _ = decode(text, where["version"])
        if version != VERSION:
            raise InputFault(f"version: {shown(version)} is not known here; {VERSION} is")
    if name not in where:
        raise InputFault(f"{name}: it is missing; {expected} is expected")
    no_other_fields(text, where, ("version", name))
    found = list(items(text, where[name], "an array"))
    if not found:
        raise InputFault(f"{name}: it is empty, so there is nothing to do")
    return iter(found)


def _topic(item: Item, expected: str, also: tuple[str, ...] = ()) -> str:
    topic = needed(item, ("topic", *also), expected)["topic"]
    return written(topic, f"line {item.line}, topic", "a name")


def _check_folders(item: Item, count: int) -> None:
    folders = item.value.get("log_dirs")
    if folders is None:
        return
    if not isinstance(folders, list) or len(folders) != count:
        raise InputFault(f"line {item.line}, log_dirs: one folder a replica is expected")
    if any(folder != ANY_FOLDER for folder in folders):
        raise InputFault(
            f'line {item.line}, log_dirs: only "any" is served: brokers choose their folders'
        )
