"""What must hold of committed offsets that expire, as the client saw it that committed them.

    offset-early    an acknowledged offset is told until its retention is over
    offset-strange  an offset that is told was committed under that name
    offset-again    what expired stays away until something is committed again

All commits under a name have the same retention. So whatever a network made of earlier ones, the
last that counts was taken no earlier than the last that was acknowledged, and lives as long. Losses
of the offsets topic that a recorded rule allows void this, as they do in Kafka. That what expired
goes is liveness (`offset_run.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.sim.checks.marks import Marks
    from anabranch.sim.plan_parts import NamePlan

NONE_TOLD = -1
NOT_ACKNOWLEDGED = -1


@dataclass(slots=True, eq=False)
class SentCommit:
    """One commit of one partition's offset."""

    place: TopicPartition
    number: int
    sent_us: int
    keeps_until_us: int
    """At the least, if it counts."""
    acknowledged_us: int = NOT_ACKNOWLEDGED


class OffsetExpiryChecks:
    """See the module. `doubles`: the network may carry a commit twice; `is_void`: by then offsets
    were lost by a rule; `now_us` is the world's clock."""

    def __init__(
        self,
        marks: Marks,
        *,
        doubles: bool,
        is_void: Callable[[], bool],
        now_us: Callable[[], int],
    ) -> None:
        self.expired = 0
        """Looks that found nothing where an acknowledged offset had been."""
        self._marks = marks
        self._doubles = doubles
        self._is_void = is_void
        self._now_us = now_us
        self._sent: dict[tuple[str, TopicPartition], list[SentCommit]] = {}
        self._gone_us: dict[tuple[str, TopicPartition], int] = {}
        """When the look began that last found nothing."""
        self._told: dict[tuple[str, TopicPartition], int] = {}

    def sent(self, plan: NamePlan, place: TopicPartition, number: int, now_us: int) -> SentCommit:
        """A commit is sent."""
        keeps_until_us = (now_us // 1000 + plan.retention_ms) * 1000  # brokers count milliseconds
        commit = SentCommit(place, number, now_us, keeps_until_us)
        self._sent.setdefault((plan.name, place), []).append(commit)
        return commit

    def told(self, plan: NamePlan, place: TopicPartition, asked_us: int, offset: int) -> None:
        """A coordinator answered what is committed; `asked_us` is when it was asked."""
        key = (plan.name, place)
        self._told[key] = offset
        if self._is_void():
            return
        if offset == NONE_TOLD:
            self._check_time(key, asked_us)
        else:
            self._check_origin(key, asked_us, offset)

    def heal(self) -> None:
        """What is left counts from now on."""
        self._told.clear()

    @property
    def left(self) -> list[tuple[str, TopicPartition, int]]:
        """What the newest answers told as committed."""
        return [(*key, offset) for key, offset in self._told.items() if offset != NONE_TOLD]

    def end(self, *, crashed: bool) -> None:
        """The run is over; `crashed`: processes did."""
        if crashed and self.expired:
            self._marks.hit("offsets-expired")

    def _check_time(self, key: tuple[str, TopicPartition], asked_us: int) -> None:
        now_us = self._now_us()
        known = [
            each
            for each in self._sent.get(key, ())
            if NOT_ACKNOWLEDGED != each.acknowledged_us <= asked_us
        ]
        for each in known:
            if each.keeps_until_us > now_us:
                raise Violation(
                    "offset-early", "An offset is not told, and its retention is not over.",
                    {"name": key[0], "partition": key[1], "offset": each.number,
                     "keeps_until": each.keeps_until_us, "now": now_us},
                )  # fmt: skip
        self.expired += bool(known)
        self._gone_us[key] = max(asked_us, self._gone_us.get(key, 0))

    def _check_origin(self, key: tuple[str, TopicPartition], asked_us: int, offset: int) -> None:
        commit = next((each for each in self._sent.get(key, ()) if each.number == offset), None)
        if commit is None:
            raise Violation(
                "offset-strange", "An offset is told that was never committed.",
                {"name": key[0], "partition": key[1], "offset": offset},
            )  # fmt: skip
        gone_us = self._gone_us.get(key, NOT_ACKNOWLEDGED)
        was_there = NOT_ACKNOWLEDGED != commit.acknowledged_us <= gone_us
        if was_there and gone_us < asked_us and not self._doubles:
            raise Violation(
                "offset-again", "An offset had expired, and is told again.",
                {"name": key[0], "partition": key[1], "offset": offset, "gone": gone_us},
            )  # fmt: skip
