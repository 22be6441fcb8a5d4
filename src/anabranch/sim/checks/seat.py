"""A node as the checks of logs see it: its copies, and what it knew until the event that ended.

Why: one event may bring several batches of metadata, and what a broker did between them was right
by what it knew then. Not here: judgements (`logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.types import TopicId
from anabranch.sim.checks.copies import Copy
from anabranch.sim.checks.model import MIN_ISR, Key, Model

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.replication.replica import Replica
    from anabranch.sim.node import SimNode

TOPIC, BROKER = 2, 4


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

    def is_given(self, key: Key) -> bool:
        """Whether the metadata that the node follows give it a partition."""
        topic = self.node.broker.image.topic_by_id(TopicId(key[0]))
        state = None if topic is None else topic.partitions.get(key[1])
        return state is not None and self.node.node_id in (*state.replicas, *state.observers)

    def required(self, topic: str, replicas: int, model: Model) -> int:
        """min.insync.replicas as the node knows it, or knew it at any time since the last event."""
        image, earlier = self.node.broker.image, self.earlier_image
        since = image.offset if earlier is None else earlier.offset
        passed = [each for each in model.minimums if since < each.offset <= image.offset]

        def known(resource: tuple[int, str]) -> set[str | None]:
            images = {each.config(*resource).get(MIN_ISR) for each in (image, earlier or image)}
            return images | {each.value for each in passed if each.resource == resource}

        own, default = known((TOPIC, topic)), known((BROKER, ""))
        least = {int(each) for each in own if each is not None}
        if None in own:
            least |= {int(each or 1) for each in default}
        return min(max(1, replicas), *least)
