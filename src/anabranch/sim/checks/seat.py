"""A node as the checks of logs see it: its copies, and what it knew until the event that ended.

Why: one event may bring several batches of metadata, and what a broker did between them was right
by what it knew then. Not here: judgements (`logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.types import TopicId, TopicPartition
from anabranch.sim.checks.copies import Copy
from anabranch.sim.checks.model import (
    BROKER,
    BY_BROKERS,
    COMPACTS,
    ENDS_REMOTE,
    MIN_ISR,
    POLICY,
    REMOTE_STORAGE,
    RETENTION_BYTES,
    RETENTION_MS,
    TOPIC,
    Key,
    Model,
    deletes,
    entries,
    means_true,
)

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.node import SimNode


class Seat:
    """A node and its copies. `live` are those that are hosted now."""

    __slots__ = (
        "broker",
        "copies",
        "earlier_image",
        "hosted",
        "image",
        "live",
        "node",
        "offline",
        "passes",
        "watched",
    )

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.copies: dict[Key, Copy] = {}
        self.hosted: list[Replica] = []
        self.live: list[Copy] = []
        self.watched: list[tuple[Copy, Replica, Log]] = []
        """The same, each with its replica and log: what is compared after each event."""
        self.broker: object = None
        self.image: MetadataImage | None = None
        self.earlier_image: MetadataImage | None = None
        """What it knew until this event: one event may bring several batches of metadata."""
        self.offline = 0
        self.passes: dict[TopicPartition, MetadataImage] = {}
        """What it knew when the pass over a log began that runs now, or was the last."""

    def is_given(self, key: Key) -> bool:
        """Whether the metadata that the node follows give it a partition."""
        topic = self.node.broker.image.topic_by_id(TopicId(key[0]))
        state = None if topic is None else topic.partitions.get(key[1])
        return state is not None and self.node.node_id in (*state.replicas, *state.observers)

    def required(self, topic: str, replicas: int, model: Model) -> int:
        """min.insync.replicas as the node knows it, or knew it at any time since the last event."""
        found = self.known(topic, MIN_ISR, model)
        return min(max(1, replicas), *(int(each or 1) for each in found))

    def expires(self, topic: str, model: Model) -> bool:
        """Whether the node drops records with time or for want of room, by what it knows or knew
        since the last event."""
        return any(
            deletes(policy, age_ms, size)
            for policy in self.known(topic, POLICY, model)
            for age_ms in self.known(topic, RETENTION_MS, model)
            for size in self.known(topic, RETENTION_BYTES, model)
        )

    def ends_remote(self, topic: str, model: Model) -> bool:
        """Whether the node gives up what is remote of a topic, by what it knows or knew since the
        last event."""
        may, has = (
            [means_true(each or "") for each in self.known(topic, name, model)]
            for name in (ENDS_REMOTE, REMOTE_STORAGE)
        )
        return any(may) and not all(has)

    def compacts(self, place: TopicPartition, model: Model) -> bool:
        """Whether the node compacts a topic, by what it knew since the pass over the log began."""
        known = self.known(place.topic, POLICY, model, self.passes.get(place))
        return any(COMPACTS in entries(each or "") for each in known)

    def known(
        self, topic: str, name: str, model: Model, since: MetadataImage | None = None
    ) -> set[str | None]:
        """All that a topic's setting was, as far as the node knew, since it had an image: without
        one, since the last event."""
        image = self.node.broker.image
        earlier = since or self.earlier_image or image
        passed = [each for each in model.changed if earlier.offset < each.offset <= image.offset]

        def said(resource: tuple[int, str], name: str) -> set[str | None]:
            told = {each.config(*resource).get(name) for each in (image, earlier)}
            between = (each for each in passed if each.resource == resource and each.name == name)
            return told | {each.value for each in between}

        own = said((TOPIC, topic), name)
        if None in own:
            by_brokers = BY_BROKERS.get(name, name)
            default = said((BROKER, ""), by_brokers)
            if None in default:
                default = default - {None} | {model.static.get(by_brokers)}
            own = own - {None} | default
        return own
