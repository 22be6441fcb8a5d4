"""What a mirrored topic is called on the target, where a name comes from, and what is internal.

What: MirrorMaker 2's DefaultReplicationPolicy (`source.topic`) and IdentityReplicationPolicy
(names stay, but for heartbeats). Rule kept: a topic that came from the target, over any number of
hops, is not mirrored back (`is_cycle`). The identity policy cannot know that, as in MirrorMaker 2.
Source: KIP-382, KIP-690 (separators of internal topics).
"""

from __future__ import annotations

from collections.abc import Iterator

import msgspec

HEARTBEATS = "heartbeats"
INTERNAL = "internal"
DEFAULT_POLICY = "org.apache.kafka.connect.mirror.DefaultReplicationPolicy"
IDENTITY_POLICY = "org.apache.kafka.connect.mirror.IdentityReplicationPolicy"
MOST_HOPS = 64
"""A topic's name has at most 249 characters: more hops cannot be in it in any real set-up."""


class Policy(msgspec.Struct, frozen=True, kw_only=True):
    """How topics are renamed. `source` is the alias that the identity policy takes for all."""

    source: str
    is_identity: bool = False
    separator: str = "."
    internal_separator: str = "."

    def remote_topic(self, topic: str, source: str | None = None) -> str:
        """What a topic of the source is called on the target."""
        if self.is_identity and self.original_topic(topic) != HEARTBEATS:
            return topic
        return f"{self.source if source is None else source}{self.separator}{topic}"

    def topic_source(self, topic: str) -> str | None:
        """The alias of the cluster that a topic was mirrored from; None for one that was not."""
        if self.is_identity and not self._is_renamed_heartbeat(topic):
            return self.source
        alias, separator, _ = topic.partition(self.separator)
        return alias if separator else None

    def upstream_topic(self, topic: str) -> str | None:
        """What a mirrored topic is called on the cluster that it came from."""
        if self.is_identity and not self._is_renamed_heartbeat(topic):
            return topic
        _, separator, rest = topic.partition(self.separator)
        return rest if separator else None

    def _is_renamed_heartbeat(self, topic: str) -> bool:
        return topic.endswith(f"{self.separator}{HEARTBEATS}")

    def original_topic(self, topic: str) -> str:
        """What the first producer of a topic calls it."""
        if self.is_identity:
            renamed = self._is_renamed_heartbeat(topic)
            return HEARTBEATS if renamed else topic
        *_, last = [topic, *self._upstream(topic)]
        return last

    def _upstream(self, topic: str) -> Iterator[str]:
        for _ in range(MOST_HOPS):
            upstream = self.upstream_topic(topic)
            if upstream is None or upstream == topic or not upstream:
                return
            yield upstream
            topic = upstream

    def hops(self, topic: str) -> list[str]:
        """The aliases that a topic came through, the nearest first."""
        names = [topic, *self._upstream(topic)]
        found = [self.topic_source(each) for each in names[: len(names) - 1]]
        return [each for each in found if each is not None]

    def is_cycle(self, topic: str, target: str) -> bool:
        """Whether a topic came from `target`, so that mirroring it there would go in a circle."""
        return target in self.hops(topic)

    def is_heartbeats(self, topic: str) -> bool:
        """Whether a topic is `heartbeats` of some cluster, over any number of hops."""
        return self.original_topic(topic) == HEARTBEATS

    def is_internal(self, topic: str) -> bool:
        """Whether a topic is one of Kafka's or of a mirror's own, which are never mirrored."""
        ending = f"{self.internal_separator}{INTERNAL}"
        return (
            topic.startswith(("__", "."))
            or (topic.startswith("mm2") and topic.endswith((ending, f".{INTERNAL}")))
            or topic.endswith(f"{self.internal_separator}checkpoints{ending}")
        )

    def offset_syncs_topic(self, alias: str) -> str:
        """MirrorMaker 2's own offset syncs: on the source by the target's alias, or the reverse."""
        separator = self.internal_separator
        return f"mm2-offset-syncs{separator}{alias}{separator}{INTERNAL}"

    def checkpoints_topic(self) -> str:
        """Groups' translated offsets, on the target."""
        separator = self.internal_separator
        return f"{self.source}{separator}checkpoints{separator}{INTERNAL}"

    def positions_topic(self) -> str:
        """Connect's offsets of this flow, on the target; the separator is always a dot."""
        return f"mm2-offsets.{self.source}.{INTERNAL}"

    def index_topic(self) -> str:
        """The exact index of this flow, on the target."""
        return f"mm2-index.{self.source}.{INTERNAL}"
