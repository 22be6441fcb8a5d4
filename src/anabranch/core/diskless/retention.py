"""Which diskless partitions this broker looks over for retention, and with which limits.

Rules kept: each partition is looked over by the broker that the metadata says leads it, so that
brokers share the work without speaking to each other; two that both do it harm nothing. One without
a limit is looked over too: DeleteRecords leaves most of what it deleted to this.
Not here: what is deleted (`expired_runs.py`), when a round begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.diskless.rows import LogKey
from anabranch.core.diskless.topics import is_diskless
from anabranch.core.settings.topic import effective_topic_config

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig

UNLIMITED = -1
MOST_RUNS = 1_000
"""That one call of retention deletes: a transaction of tens of milliseconds."""


class Limits(NamedTuple):
    """What a partition may keep; -1: no limit."""

    key: LogKey
    older_than_ms: int
    most_bytes: int


def to_look_over(
    image: MetadataImage, broker_id: int, config: BrokerConfig, now_ms: int
) -> Iterator[Limits]:
    """The partitions of this broker's share, and their limits."""
    for topic in image.topics_by_id.values():
        if not is_diskless(image, topic.name):
            continue
        settings = effective_topic_config(image, topic.name, config)
        kept_ms, most_bytes = settings.retention_ms, settings.retention_bytes
        if "delete" not in settings.cleanup_policy:  # the broker's default, set later
            kept_ms, most_bytes = UNLIMITED, UNLIMITED
        older_than_ms = UNLIMITED if kept_ms < 0 else max(0, now_ms - kept_ms)
        for index, state in topic.partitions.items():
            if state.leader == broker_id:
                yield Limits(LogKey(topic.topic_id, index), older_than_ms, most_bytes)
