"""The topics of a run, and what the judge may expect of them.

What: each topic is created with settings that let something happen within a minute: logs that are
cut into small segments, compacted, shortened by age or by size, moved, deleted and made again. Rule
kept: what a setting allows to be missing is named here once, for the cluster and for the judge.
Not here: who writes and reads them (`crowd`).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.client import admin
from anabranch.client.cluster import Cluster
from chaos import secure
from chaos.nodes import IDS
from chaos.transfers import ACCOUNTS, ORDERS, PARTITIONS


class Topic(NamedTuple):
    """What a topic of a run is created with."""

    partitions: int
    configs: dict[str, str]
    factor: int = len(IDS)


SMALL_BYTES = 256 << 10
"""No batch may be larger: that would be refused, and a producer raises its epoch then."""
SMALL = {"internal.segment.bytes": str(SMALL_BYTES)}
TIMED = {"segment.ms": "3000"}
"""So that an idle log is cut too."""
TOMBSTONE_MS = 10_000
"""How long a reader has from its begin to the end of a log, to see every tombstone."""
AGE_MS = 15_000
KEPT_BYTES = 512 << 10

DISKLESS = "diskless"
"""Its records lie in objects; the controller places one replica in each rack."""

REMOTE = {
    **SMALL, "segment.ms": "5000", "remote.storage.enable": "true", "local.retention.ms": "1",
}  # fmt: skip
"""Closed segments are copied to the store, and leave the disk as soon as they are there."""
TIERED = ("tiered", ACCOUNTS, ORDERS)
"""Most of what is read of them lies in the store: of transactions too."""

TOPICS = {
    "plain": Topic(1, {}),
    "wide": Topic(12, {}),
    "rolling": Topic(3, {"segment.bytes": str(1 << 20)}),
    "compacted": Topic(
        3,
        {
            **SMALL, **TIMED, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.0",
            "delete.retention.ms": str(TOMBSTONE_MS),
        },
    ),
    "aging": Topic(2, {**SMALL, **TIMED, "retention.ms": str(AGE_MS)}),
    "bounded": Topic(2, {**SMALL, "retention.bytes": str(KEPT_BYTES)}),
    "reborn": Topic(2, {**SMALL}),
    "moving": Topic(4, {**SMALL, "min.insync.replicas": "1"}, factor=2),
    DISKLESS: Topic(3, {"diskless.enable": "true"}, factor=-1),
    "tiered": Topic(2, REMOTE),
    **{name: Topic(n, REMOTE if name in TIERED else {}) for name, n in PARTITIONS.items()},
}  # fmt: skip
"""`moving` has two replicas, so that there is a broker to move to; one that is in sync will do, as
all of its writers ask for all that are."""
PLACES = [(name, index) for name, topic in TOPICS.items() for index in range(topic.partitions)]
REBORN = ("reborn",)
"""Deleted and made again while they are written to."""
AGED = {"aging": AGE_MS}
"""Topic -> its retention.ms."""
BOUNDED = {"bounded": KEPT_BYTES}
"""Topic -> its retention.bytes."""
MOVABLE = [place for place in PLACES if place[0] in ("moving", "compacted", "aging", "bounded")]


async def create(cluster: Cluster, name: str) -> None:
    """One of them. Raises ApiError."""
    topic = TOPICS[name]
    await admin.create_topic(
        cluster, name, partitions=topic.partitions, replication_factor=topic.factor,
        configs=topic.configs,
    )  # fmt: skip


async def create_topics(bootstrap: str) -> None:
    """All of them."""
    async with Cluster(bootstrap, security=secure.own()) as cluster:
        for name in TOPICS:
            await create(cluster, name)
