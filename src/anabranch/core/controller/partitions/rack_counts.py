"""How many partitions are in fewer racks than they could be: counted as they change.

What: `RackCounts` keeps a number for each `Spread` that occurs; the placement constraints of topics
that have some: what these ask for is no violation, and anything else is one; and which topics say
themselves whether they ignore racks: where one does, nothing is a violation, but constraints count
more. Rules kept: it follows from the image; a change costs the partitions that it touches, and
nothing when a rack comes or goes, or when the default of ignoring racks changes. Two things cost
more, and are rare: such settings of a topic change (its partitions), and a broker that has replicas
shows another rack than before, or is forgotten (all partitions).

Source: decisions 0026, 0029. Not here: what a violation is (`core/placement/racks.py`); the same
for descriptions of topics (`client/partitions.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from anabranch.core.controller.moves.reassignment import Move
from anabranch.core.metadata.image import (
    RESOURCE_TOPIC,
    ConfigKey,
    MetadataImage,
    PartitionImage,
    TopicImage,
)
from anabranch.core.placement.constraints import (
    SETTING,
    Constraints,
    ConstraintsFault,
    read_constraints,
)
from anabranch.core.placement.racks import AS_CONSTRAINED, Spread, spread_of
from anabranch.core.settings.catalogue import TOPIC_SETTINGS
from anabranch.core.settings.setting import ConfigFault, parse

IGNORES_RACKS = TOPIC_SETTINGS["ignore.rack.assignment"]


class _Judging(NamedTuple):
    """By what the partitions of a topic are judged; None where the topic says nothing."""

    constraints: Constraints | None
    ignores_racks: bool | None


UNSAID = _Judging(None, None)


class RackCounts:
    """Partitions by spread, and topics with constraints."""

    def __init__(self) -> None:
        self.spreads: Counter[tuple[int, int, bool]] = Counter()
        """By a spread, and whether the default of ignoring racks holds for it."""
        self.constrained: dict[str, Constraints] = {}
        """Placement constraints by topic name."""
        self._ignoring: dict[str, bool] = {}
        """Topics that set themselves whether they ignore racks."""
        self._racks: dict[int, str | None] = {}

    @classmethod
    def of(cls, image: MetadataImage) -> RackCounts:
        """The counts of an image, before its partitions have appeared."""
        made = cls()
        made._racks = {each.broker_id: each.rack or None for each in image.brokers.values()}
        for kind, name in image.configs:
            made._take(image, kind, name)
        return made

    def violations(self, *, ignored_by_default: bool) -> int:
        """Partitions in fewer racks than they could be in, or not as constrained. Those of topics
        that ignore racks do not count; other topics do so `ignored_by_default`."""
        there = len(set(self._racks.values()) - {None})
        return sum(
            n
            for (replicas, racks, by_default), n in self.spreads.items()
            if Spread(replicas, racks).violates(there) and not (by_default and ignored_by_default)
        )

    def appears(self, name: str, partition: PartitionImage) -> None:
        """A partition of that topic is counted."""
        self.spreads[self._spread(name, partition)] += 1

    def disappears(self, name: str, partition: PartitionImage) -> None:
        """A partition of that topic is counted no more."""
        spread = self._spread(name, partition)
        self.spreads[spread] -= 1
        if not self.spreads[spread]:
            del self.spreads[spread]

    def forget(self, name: str) -> None:
        """The topic is gone, its partitions before it."""
        self._judge(name, UNSAID)

    def follow_configs(
        self, before: MetadataImage, image: MetadataImage, changed: Iterable[ConfigKey]
    ) -> None:
        """What topics are judged by came, changed or went; partitions are those of `before`
        still."""
        for kind, name in changed:
            old = self._judging(name)
            topic = before.topic(name)
            stays = topic is not None and topic.topic_id in image.topics_by_id
            if kind == RESOURCE_TOPIC and self._take(image, kind, name) and topic and stays:
                self._recount(topic, old)

    def _take(self, image: MetadataImage, kind: int, name: str) -> bool:
        """Take over what a topic is judged by; whether it is other than before."""
        if kind != RESOURCE_TOPIC or name not in image.topic_ids_by_name:
            return False
        old, new = self._judging(name), _judging_of(image.config(kind, name))
        self._judge(name, new)
        return new != old

    def _judging(self, name: str) -> _Judging:
        return _Judging(self.constrained.get(name), self._ignoring.get(name))

    def _judge(self, name: str, judging: _Judging) -> None:
        self.constrained.pop(name, None)
        self._ignoring.pop(name, None)
        if judging.constraints is not None:
            self.constrained[name] = judging.constraints
        if judging.ignores_racks is not None:
            self._ignoring[name] = judging.ignores_racks

    def _recount(self, topic: TopicImage, old: _Judging) -> None:
        new = self._judging(topic.name)
        for judging, count in ((old, self.disappears), (new, self.appears)):
            self._judge(topic.name, judging)
            for partition in topic.partitions.values():
                count(topic.name, partition)

    def follow_brokers(
        self, image: MetadataImage, changed: Iterable[int], carried: Mapping[int, int]
    ) -> bool:
        """Take racks over; whether partitions must be counted anew, since `carried` says that a
        broker in another rack than before has replicas."""
        moved = False
        for broker_id in changed:
            broker = image.brokers.get(broker_id)
            rack = None if broker is None else broker.rack or None
            if self._racks.get(broker_id) != rack:
                moved = moved or carried.get(broker_id, 0) > 0
            self._racks.pop(broker_id, None)
            if broker is not None:
                self._racks[broker_id] = rack
        return moved

    def count_anew(self, image: MetadataImage) -> None:
        """Count every partition."""
        self.spreads.clear()
        for topic in image.topics_by_id.values():
            for partition in topic.partitions.values():
                self.appears(topic.name, partition)

    def _spread(self, name: str, partition: PartitionImage) -> tuple[int, int, bool]:
        """A key of `spreads`, as a bare tuple: whoever takes over makes one for each partition."""
        target = Move.of(partition).target if partition.removing else partition.replicas
        if self.constrained and name in self.constrained:
            wanted = self.constrained[name].replicas
            return *spread_of(map(self._racks.get, target), wanted), False
        ignores = self._ignoring.get(name)
        if ignores:
            return *AS_CONSTRAINED, False
        racks = set(map(self._racks.get, target))
        if None in racks:
            return *spread_of(map(self._racks.get, target)), ignores is None
        return len(target), len(racks), ignores is None


def _judging_of(settings: Mapping[str, str]) -> _Judging:
    """A text that another version wrote and that cannot be read counts as not set."""
    try:
        constraints = read_constraints(settings.get(SETTING, ""))
    except ConstraintsFault:
        constraints = None
    text = settings.get(IGNORES_RACKS.name)
    try:
        return _Judging(constraints, None if text is None else parse(IGNORES_RACKS, text) is True)
    except ConfigFault:
        return _Judging(constraints, None)
