"""How far compaction of diskless topics is behind: what is dirty, and how long a pass is due.

What: a broker looks at the partitions that it leads, in rounds of bounded steps; figures are by
topic. Rules kept: a partition is behind only while a job would compact it; what is due waits from
the moment in which its oldest dirty segment could be read; where nothing was ever compacted, no job
is expected, and nothing is said to wait. Not here: I/O (`server/diskless/tiering_lags.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Sequence
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.compacted_mark import NO_MARK, mark_of
from anabranch.core.tiering.compactable import compactable_after
from anabranch.core.tiering.compaction_plan import Compactable, Tiered, is_worth_it, next_pass
from anabranch.core.tiering.lag import AT_ONCE, FIRST, LOOKED_AT, MOST_TOPICS, PAUSE_MS

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig


class DirtyPartition(NamedTuple):
    """What a pass would read for the first time."""

    byte_size: int
    waited_ms: int
    """How long the pass is due; -1: it is not."""
    was_compacted: bool
    """Whether one of its segments was made by a pass."""


class DirtyTopic(NamedTuple):
    """The same of the partitions of a topic that a broker leads."""

    topic: str
    byte_size: int
    waited_ms: int


class AskTiered(NamedTuple):
    """Ask the coordinator; of each partition what is Tiered, or None without a row."""

    keys: Sequence[LogKey]


Step: TypeAlias = AskTiered | Pause


def dirty(held: Tiered, wanted: Compactable) -> DirtyPartition:
    """How far a partition is behind."""
    found = next_pass(held, wanted)
    marks = [mark_of(each) for each in held.segments if each.is_finished]
    waited_ms = -1
    if is_worth_it(found, wanted):
        since_ms = min(each.event_ms for each in found.segments if each.end_offset > found.clean_to)
        waited_ms = max(0, held.now_ms - since_ms)
    return DirtyPartition(found.dirty_bytes, waited_ms, any(each != NO_MARK for each in marks))


def measure(
    image: MetadataImage, config: BrokerConfig, broker_id: int
) -> Generator[Step, Any, list[DirtyTopic]]:
    """One round: the topics of which this broker leads partitions, by name."""
    found: dict[str, list[DirtyPartition]] = {}
    compacted = compactable_after(image, config, FIRST)
    while looked_at := list(islice(compacted, LOOKED_AT)):
        led = [each for each in looked_at if _leader(image, each.key) == broker_id]
        for first in range(0, len(led), AT_ONCE):
            wanted = led[first : first + AT_ONCE]
            tiered: list[Tiered | None] = yield AskTiered([each.key for each in wanted])
            for each, held in zip(wanted, tiered, strict=True):
                if held is not None:
                    name = image.topics_by_id[each.key.topic_id].name
                    found.setdefault(name, []).append(dirty(held, each))
            yield Pause(PAUSE_MS)
        if not led:
            yield Pause(0)
    is_used = any(each.was_compacted for parts in found.values() for each in parts)
    topics = [_sum(name, parts, is_used) for name, parts in found.items()]
    topics.sort(key=lambda each: (-each.waited_ms, -each.byte_size))
    return sorted(topics[:MOST_TOPICS])


def _sum(topic: str, parts: Sequence[DirtyPartition], is_used: bool) -> DirtyTopic:
    waited_ms = max(0, *(each.waited_ms for each in parts)) if is_used else -1
    return DirtyTopic(topic, sum(each.byte_size for each in parts), waited_ms)


def _leader(image: MetadataImage, key: LogKey) -> int:
    return image.topics_by_id[key.topic_id].partitions[key.partition].leader
