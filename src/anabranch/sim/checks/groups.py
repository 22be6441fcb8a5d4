"""What must hold of consumer groups, as their members saw it.

    group-owners      no partition has two owners in one generation (a static member's next
                      process goes on in its generation, KIP-345: it counts as the same owner)
    group-generation  the generations that a member is in never go back
    group-offset      a committed offset never lies beyond all that was ever committed there
    group-commit      an acknowledged commit stands in the committed log of the offsets topic, once
                      for each time that it was acknowledged
    group-rewound     a member begins where its group had committed, not before, unless the log has
                      lost what was there by a rule that allows it

Losses of the offsets topic that a recorded rule allows void all of this, as they do in Kafka. Not
here: how long a rebalance takes (liveness).
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.types import TopicPartition
from anabranch.sim.checks.commits import Committed
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.sim.checks.logs import LogChecks
    from anabranch.sim.checks.marks import Marks
    from anabranch.sim.history import Assigned, Commit, Poll

MAY_COME_LATE_US = 40_000_000
"""A commit that a network held back, or sent twice, may take effect so long after it was made."""


class GroupChecks:
    """See the module."""

    def __init__(self, logs: LogChecks, marks: Marks) -> None:
        self.logs = logs
        self.marks = marks
        self._owners: dict[tuple[str, int, TopicPartition], str] = {}
        self._generations: dict[tuple[str, str], int] = {}
        self._newest: dict[str, int] = {}
        self._commits: dict[tuple[str, TopicPartition], list[Commit]] = {}
        self._acknowledged: Counter[Committed] = Counter()
        self._begins: dict[tuple[str, TopicPartition], int] = {}
        """(member, partition) -> the least offset at which it may begin, until it has begun."""

    @property
    def is_void(self) -> bool:
        """Whether groups have lost what they had written, by a rule that allows it."""
        return any(
            truth.losses
            for place, truth in self.logs.places.items()
            if place.topic == OFFSETS_TOPIC
        )

    def assigned(self, event: Assigned) -> None:
        """A member was given partitions."""
        member = (event.group, event.client)
        before = self._generations.get(member, -1)
        if event.generation < before and not self.is_void:
            raise Violation(
                "group-generation", "A member's generation went back.",
                {"group": event.group, "member": event.client,
                 "generation": event.generation, "before": before},
            )  # fmt: skip
        self._generations[member] = event.generation
        if event.generation > self._newest.get(event.group, -1):
            if event.group in self._newest:
                self.marks.hit("rebalanced")
            self._newest[event.group] = event.generation
        for place in event.places:
            self._begins[event.client, place] = self._floor(event, place)
            owner = self._owners.setdefault((event.group, event.generation, place), event.client)
            if _service(owner) != _service(event.client) and not self.is_void:
                raise Violation(
                    "group-owners", "A partition has two owners in one generation.",
                    {"group": event.group, "generation": event.generation, "partition": place,
                     "owners": (owner, event.client)},
                )  # fmt: skip

    def committed(self, event: Commit) -> None:
        """A member committed an offset, or tried to."""
        truth = self.logs.places.get(event.place)
        if event.ok and (truth is None or event.offset > truth.peak):
            raise Violation(
                "group-offset", "A group committed an offset beyond all that was ever committed.",
                {"group": event.group, "partition": event.place, "offset": event.offset,
                 "committed": None if truth is None else truth.peak},
            )  # fmt: skip
        self._commits.setdefault((event.group, event.place), []).append(event)
        if event.ok:
            self._check_written(Committed(event.group, event.place, event.offset))

    def _check_written(self, commit: Committed) -> None:
        self._acknowledged[commit] += 1
        written = sum(
            truth.times_committed(commit)
            for place, truth in self.logs.places.items()
            if place.topic == OFFSETS_TOPIC
        )
        if written < self._acknowledged[commit] and not self.is_void:
            raise Violation(
                "group-commit", "A commit was acknowledged and is not in the committed log.",
                {"group": commit.group, "partition": commit.place, "offset": commit.offset,
                 "acknowledged": self._acknowledged[commit], "written": written},
            )  # fmt: skip

    def polled(self, event: Poll) -> None:
        """A member read on; its first answer shows where it began."""
        floor = self._begins.pop((event.client, event.place), -1)
        truth = self.logs.places.get(event.place)
        is_cut = truth is not None and bool(truth.losses or truth.forks)
        if event.position < floor and not is_cut and not self.is_void:
            raise Violation(
                "group-rewound", "A member begins before what its group had committed.",
                {"member": event.client, "partition": event.place,
                 "position": event.position, "committed": floor},
            )  # fmt: skip

    def _floor(self, event: Assigned, place: TopicPartition) -> int:
        """The least offset that may be the committed one now; -1 when perhaps there is none. Of a
        commit that got no answer nobody knows whether it took effect."""
        commits = self._commits.get((event.group, place), [])
        last = max((n for n, commit in enumerate(commits) if commit.ok), default=-1)
        if last < 0:
            return -1
        late_us = event.at_us - MAY_COME_LATE_US
        return min(
            commit.offset for n, commit in enumerate(commits) if n >= last or commit.at_us > late_us
        )


def _service(client: str) -> str:
    """What all processes of one service are called before the number of their life."""
    return client.partition(".")[0]
