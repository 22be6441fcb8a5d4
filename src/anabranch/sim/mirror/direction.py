"""One direction between two clusters: what processes that mirror, and checks, know of it."""

from __future__ import annotations

from random import Random

from anabranch.core.mirror.filters import NameFilter, takes_topic
from anabranch.core.mirror.policy import Policy
from anabranch.core.mirror.topics import TopicShape
from anabranch.sim.mirror.cluster import Cluster


class SimFlow:
    """One direction between two clusters, whatever process works on it."""

    def __init__(
        self, source: Cluster, target: Cluster, random: Random, *, is_exactly_once: bool
    ) -> None:
        self.name = f"{source.alias}->{target.alias}"
        self.source, self.target = source, target
        self.policy = Policy(source=source.alias)
        self.is_exactly_once = is_exactly_once
        self.random = random
        self.slots = random.randrange(1, 4)
        self._names = NameFilter()
        for topic in (self.policy.positions_topic(), self.policy.index_topic()):
            target.create(topic, 1, compacted=True)
        target.create(self.policy.checkpoints_topic(), 1, compacted=True)

    def wanted(self) -> dict[str, TopicShape]:
        """The topics to be mirrored, by their names on the target."""
        return {
            self.policy.remote_topic(name): shape
            for name, shape in sorted(self.source.shapes().items())
            if takes_topic(name, self._names, self.policy, self.target.alias)
        }
