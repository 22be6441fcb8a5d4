"""MirrorMaker 2 and `anabranch mirror`: each goes on where the other stopped, and Kafka's own
classes read what ours keeps."""

from __future__ import annotations

import re

from bench.mirrors import EXACTLY_ONCE, properties

from compat.families.console import CONSUMER
from compat.families.records import latest
from compat.families.topics import create
from compat.mirrors import (
    PARTITIONS,
    await_records,
    commit,
    fetch,
    java_program,
    maker,
    ours,
    reader,
    same,
    send,
    there,
    west_of,
)
from compat.peer import Peer
from compat.row import Failed, row

COMMITTED = "read_committed"
COUNT = 300
FORMATTERS = "org.apache.kafka.connect.mirror.formatters"
READ_MS = 20_000
"""So long the console consumer waits for another record."""


@row("mirror-turns", prepare=fetch)
def takes_turns(peer: Peer) -> object:
    """MirrorMaker 2, ours, and MirrorMaker 2 again, exactly once: each goes on where the other one
    stopped, and keeps its position in the same bytes."""
    topic = "mirror-turns"
    create(peer, topic, PARTITIONS)
    positions = []
    with west_of(peer) as west:
        text = properties(peer.bootstrap, west.bootstrap, topic, once=EXACTLY_ONCE)
        file = peer.file("turns.properties", text)
        for turn, program in enumerate((maker, ours, maker, ours)):
            send(peer, topic, turn * COUNT, (turn + 1) * COUNT)
            with program(peer, file):
                await_records(west, f"east.{topic}", (turn + 1) * COUNT)
            positions.append(positions_of(west, topic))
        return same(peer, topic, west, f"east.{topic}"), positions


def positions_of(west: Peer, topic: str) -> list[tuple[str, str]]:
    """Key and value of the position of each partition, as they are on the target."""
    found = latest(west, "mm2-offsets.east.internal").items()
    return sorted((key, (value or b"").decode()) for key, value in found if topic in key)


@row("mirror-turns-at-least-once", prepare=fetch)
def takes_turns_at_least_once(peer: Peer) -> object:
    """The same at least once: what stops in peace repeats nothing either."""
    topic = "mirror-turns-alo"
    create(peer, topic, PARTITIONS)
    with west_of(peer) as west:
        more = {"offset.flush.interval.ms": 1_000, "east.consumer.isolation.level": COMMITTED}
        text = properties(peer.bootstrap, west.bootstrap, topic, more=more)
        file = peer.file("turns-alo.properties", text)
        for turn, program in enumerate((maker, ours, maker)):
            send(peer, topic, turn * COUNT, (turn + 1) * COUNT)
            with program(peer, file):
                await_records(west, f"east.{topic}", (turn + 1) * COUNT)
        return same(peer, topic, west, f"east.{topic}"), positions_of(west, topic)


@row("mirror-readers", prepare=fetch)
def is_read_by_kafka(peer: Peer) -> object:
    """RemoteClusterUtils, MirrorClient and Kafka's three formatters read what ours keeps."""
    topic, group = "mirror-readers", "mirrored"
    create(peer, topic, PARTITIONS)
    send(peer, topic, 0, COUNT)
    commit(peer, group, topic, {0: 120, 1: 151, 2: 17})
    with west_of(peer) as west:
        more = {"east.consumer.isolation.level": COMMITTED, "groups": group}
        text = properties(peer.bootstrap, west.bootstrap, topic, more=more)
        file = peer.file("readers.properties", text)
        with ours(peer, file):
            await_records(west, f"east.{topic}", COUNT)
            west.wait(lambda: has_checkpoints(west), "a checkpoint of each partition", 60.0)
            west.wait(lambda: there(west, "east.heartbeats"), "heartbeats", 60.0)
        return {
            "records": same(peer, topic, west, f"east.{topic}"),
            "found": reader(west, group),
            "checkpoints": formatted(west, "east.checkpoints.internal", "Checkpoint", topic),
            "heartbeats": formatted(west, "heartbeats", "Heartbeat", "Alias=east"),
            "syncs": synced(formatted(peer, "mm2-offset-syncs.west.internal", "OffsetSync", topic)),
        }


def has_checkpoints(west: Peer) -> bool:
    """Whether each partition has its checkpoint."""
    return len({key for _, key, _ in there(west, "east.checkpoints.internal")}) == PARTITIONS


def synced(lines: list[str]) -> list[str]:
    """The partitions that have syncs: at which offsets depends on how fast records came."""
    return sorted({line.partition(",")[0] for line in lines})


def formatted(peer: Peer, topic: str, kind: str, wanted: str) -> list[str]:
    """What the console consumer prints with a formatter of MirrorMaker 2, of the lines that have a
    word in them, each once, times left out."""
    words = ("--topic", topic, "--from-beginning", "--timeout-ms", READ_MS)
    formatter = ("--formatter", f"{FORMATTERS}.{kind}Formatter")
    lines = java_program(peer, CONSUMER, *peer.at, *words, *formatter)
    found = {re.sub(r"imestamp=<?\w+>?", "imestamp=<ms>", line) for line in lines}
    if not (found := {line for line in found if wanted in line}):
        raise Failed(f"{kind}Formatter printed nothing of {topic}")
    return sorted(found)


@row("mirror-both-kinds", prepare=fetch)
def mirrors_between_both_kinds(peer: Peer) -> object:
    """Ours between Apache Kafka and Anabranch, both ways at once, exactly once."""
    there_and_back = "mirror-there", "mirror-back"
    other = {"kafka": "anabranch", "anabranch": "kafka"}[peer.name]
    with west_of(peer, other) as west:
        create(peer, there_and_back[0], PARTITIONS)
        create(west, there_and_back[1], PARTITIONS)
        back = {"west->east.enabled": "true", "west->east.topics": there_and_back[1],
                "west.consumer.isolation.level": COMMITTED,
                "east.exactly.once.source.support": "enabled"}  # fmt: skip
        text = properties(peer.bootstrap, west.bootstrap, there_and_back[0],
                          once=EXACTLY_ONCE, back=back)  # fmt: skip
        flows = ((peer, west, "east"), (west, peer, "west"))
        for (source, _, _), topic in zip(flows, there_and_back, strict=True):
            send(source, topic, 0, COUNT)
        with ours(peer, peer.file("kinds.properties", text)):
            for (_, target, alias), topic in zip(flows, there_and_back, strict=True):
                await_records(target, f"{alias}.{topic}", COUNT)
        return [
            same(source, topic, target, f"{alias}.{topic}")
            for (source, target, alias), topic in zip(flows, there_and_back, strict=True)
        ]
