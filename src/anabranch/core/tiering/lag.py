"""How far tiering is behind: what is old enough to be tiered, and how long a segment waits.

What: a broker looks at the partitions that it leads, in rounds of bounded steps; figures are by
topic. Rules kept: a segment waits from the moment in which `next_segment` would have made it, so
that a partition with little data is not behind; where nothing was ever tiered, no job is expected,
and no segment is said to wait; a round counts few rows of each partition, and a bounded number in
all. Not here: I/O (`server/diskless/tiering_lags.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.rows import LogKey, LogState
from anabranch.core.tiering.eligible import eligible_after
from anabranch.core.tiering.plan import MANY_RUNS, AgedRun, Eligible
from anabranch.core.types import ZERO_TOPIC_ID

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig

PAUSE_MS = 20
AT_ONCE = 20
"""Partitions of one call: with MANY_RUNS rows each, some tens of milliseconds."""
LOOKED_AT = 200
"""Partitions between two pauses, of which this broker leads some."""
MOST_ROWS = 1_000_000
"""Of a round; after these, only the oldest row of a partition counts."""
MOST_TOPICS = 10_000
"""That metrics have, those that wait the longest first."""
FIRST = LogKey(ZERO_TOPIC_ID, -1)


class PartitionLag(NamedTuple):
    """What is old enough to be tiered, of a partition."""

    rows: int
    byte_size: int
    waited_ms: int
    """How long ago the next segment could have been made; -1: it cannot be made yet."""
    was_tiered: bool
    """Whether something of the partition was tiered before."""


class TopicLag(NamedTuple):
    """The same of the partitions of a topic that a broker leads."""

    topic: str
    rows: int
    byte_size: int
    waited_ms: int


class AskLags(NamedTuple):
    """Ask the coordinator; of each partition a PartitionLag, or None without a row."""

    wanted: Sequence[Eligible]
    most_rows: int
    """Of each partition."""


Step: TypeAlias = AskLags | Pause


def lag(state: LogState, aged: Iterable[AgedRun], wanted: Eligible, now_ms: int) -> PartitionLag:
    """Of the oldest runs of a partition, in order."""
    rows = size = 0
    waited_ms, since_ms = -1, now_ms
    for run, committed_ms in aged:
        if run.end_offset <= state.first_run_offset:
            continue
        since_ms = min(since_ms, now_ms - committed_ms - wanted.age_ms)
        if since_ms < 0:
            break
        is_full = rows > 0 and size + run.byte_size > wanted.most_bytes
        rows += 1
        size += run.byte_size
        if waited_ms < 0 and (is_full or size >= wanted.least_bytes or rows >= MANY_RUNS):
            waited_ms = since_ms
    return PartitionLag(rows, size, waited_ms, state.tiered_end > 0)


def measure(
    image: MetadataImage, config: BrokerConfig, broker_id: int
) -> Generator[Step, Any, list[TopicLag]]:
    """One round: the topics of which this broker leads partitions, by name."""
    found: dict[str, list[PartitionLag]] = {}
    left = MOST_ROWS
    eligible = eligible_after(image, config, FIRST)
    while looked_at := list(islice(eligible, LOOKED_AT)):
        led = [each for each in looked_at if _leader(image, each.key) == broker_id]
        for first in range(0, len(led), AT_ONCE):
            wanted = led[first : first + AT_ONCE]
            most_rows = min(MANY_RUNS, max(1, left // len(wanted)))
            lags: list[PartitionLag | None] = yield AskLags(wanted, most_rows)
            for each, its in zip(wanted, lags, strict=True):
                if its is not None:
                    left -= its.rows
                    found.setdefault(_name(image, each.key), []).append(its)
            yield Pause(PAUSE_MS)
        if not led:
            yield Pause(0)
    is_used = any(each.was_tiered for lags in found.values() for each in lags)
    topics = [_sum(name, lags, is_used) for name, lags in found.items()]
    topics.sort(key=lambda each: (-each.waited_ms, -each.rows))
    return sorted(topics[:MOST_TOPICS])


def _sum(topic: str, lags: Sequence[PartitionLag], is_used: bool) -> TopicLag:
    return TopicLag(
        topic,
        sum(each.rows for each in lags),
        sum(each.byte_size for each in lags),
        max(0, *(each.waited_ms for each in lags)) if is_used else -1,
    )


def _leader(image: MetadataImage, key: LogKey) -> int:
    topic = image.topics_by_id[key.topic_id]
    return topic.partitions[key.partition].leader


def _name(image: MetadataImage, key: LogKey) -> str:
    return image.topics_by_id[key.topic_id].name
