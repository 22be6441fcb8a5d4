"""What must hold of mirrors: nothing lost, nothing doubled, nothing skipped by a group.

What: `Checks` is told of each translation, checkpoint and move of a group, and at the end compares
source and target of each flow, partition by partition. Rule kept: it knows records by their values
and where they truly are, and nothing of indexes and positions.
"""

from __future__ import annotations

from collections import Counter, defaultdict

from anabranch.core.mirror.formats import Checkpoint
from anabranch.sim.checks.violation import Violation
from anabranch.sim.mirror.cluster import Place
from anabranch.sim.mirror.direction import SimFlow
from anabranch.sim.mirror.log import Log

GroupPlace = tuple[str, str, Place]
"""Flow, group, and a place on the target."""


class Checks:
    """See the module."""

    def __init__(self) -> None:
        self.aborted: set[bytes] = set()
        """Values that were written and never committed."""
        self.rewound: set[tuple[str, str, Place]] = set()
        """(cluster, group, place) where a group went back since its offset was given on."""
        self.counts: Counter[str] = Counter()
        self._checkpoints: dict[GroupPlace, Checkpoint] = {}

    # Groups.

    def translated(
        self, flow: SimFlow, place: Place, upstream: int, downstream: int, *, known_to: int
    ) -> None:
        """A group that reads `upstream` next would read `downstream` next on the target; what was
        mirrored is known up to `known_to`."""
        self.counts["translated"] += 1
        source = flow.source.log(place)
        target = flow.target.log((flow.policy.remote_topic(place[0]), place[1]))
        copies = copies_of(target)
        told = {"flow": flow.name, "place": place, "upstream": upstream, "downstream": downstream}
        once = Counter(source.ever.values())
        present = {record.offset for record in source.records()}
        for offset, value in source.ever.items():
            where = copies.get(value)
            if where is None or once[value] > 1:
                continue
            if not flow.is_exactly_once and (offset >= known_to or offset not in present):
                continue  # a copy that was not noted: another comes, or there is nothing to copy
            if offset >= upstream and target.start <= where[-1] < downstream:
                sentence = "A translated offset skips a record that the group has not read."
                raise Violation("skipped", sentence, {**told, "record": offset, "copies": where})
            exact = flow.is_exactly_once and not source.was_cut and upstream <= known_to
            if exact and offset < upstream and where[0] >= max(downstream, target.start):
                sentence = "A translated offset makes the group read a record again."
                raise Violation("read-again", sentence, {**told, "record": offset})

    def checkpoint(self, flow: SimFlow, new: Checkpoint) -> None:
        """A checkpoint is written."""
        self.counts["checkpoints"] += 1
        key = flow.name, new.group, (new.topic, new.partition)
        old = self._checkpoints.get(key)
        if old is not None and new.downstream < old.downstream and new.upstream >= old.upstream:
            sentence = "A checkpoint goes back, and its group did not."
            raise Violation("checkpoint-back", sentence, {"old": old, "new": new})
        self._checkpoints[key] = new

    def forget(self, flow: SimFlow, topic: str) -> None:
        """A topic of the target begins again, so offsets there mean something else."""
        self._checkpoints = {
            key: each
            for key, each in self._checkpoints.items()
            if key[0] != flow.name or key[2][0] != topic
        }

    def moved(self, flow: SimFlow, group: str, place: Place, old: int, new: int) -> None:
        """A group is given an offset on the target."""
        self.counts["groups moved"] += 1
        if group in flow.target.active:
            raise Violation("moved-members", "A group is moved while it has members.", {})
        upstream = flow.policy.upstream_topic(place[0]), place[1]
        key = flow.source.alias, group, (str(upstream[0]), upstream[1])
        if new < old and key not in self.rewound:
            told = {"flow": flow.name, "group": group, "place": place, "old": old, "new": new}
            raise Violation("moved-back", "A group is moved back that never went back.", told)
        if new < old:
            self.rewound.add((flow.target.alias, group, place))

    # The end.

    def compare(self, flow: SimFlow) -> None:
        """All that the source has is on the target: once, or at least once."""
        for remote, shape in sorted(flow.wanted().items()):
            for partition in range(shape.partitions):
                source = flow.source.log((shape.name, partition))
                if not source.records():
                    continue
                target = flow.target.log((remote, partition))
                self._compare(flow, f"{remote}-{partition}", source, target)

    def _compare(self, flow: SimFlow, name: str, source: Log, target: Log) -> None:
        there = [*target.gone, *(record.value or b"" for record in target.records())]
        counts = Counter(there)
        told = {"flow": flow.name, "partition": name}
        for record in source.records():
            value = record.value or b""
            self.counts["records"] += 1
            if not counts[value]:
                raise Violation("lost", "A record never arrived.", {**told, "record": value})
        doubled = [value for value, count in counts.items() if count > 1]
        if doubled and flow.is_exactly_once:
            raise Violation("doubled", "A record arrived twice.", {**told, "records": doubled[:3]})
        if aborted := self.aborted & set(there):
            raise Violation("aborted", "An aborted record arrived.", {**told, "records": aborted})
        if flow.is_exactly_once and there != sorted(there):
            raise Violation("order", "Records arrived in another order.", told)


def copies_of(log: Log) -> dict[bytes, list[int]]:
    """Value -> the offsets at which a reader of committed records finds it."""
    found: dict[bytes, list[int]] = defaultdict(list)
    for record in log.records():
        found[record.value or b""].append(record.offset)
    return found
