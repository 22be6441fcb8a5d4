"""Why the cluster is as it is, in the words of its controllers.

What: the newest reasons, asked for with DescribeQuorum, and which of them explains that a replica
is not in sync, that a partition has no leader, or that a broker is away. Rules kept: a sentence is
passed on as it was said; where none is known, for it is too long ago or the peer keeps none, there
is none. Not here: how reasons are made (`core/controller/reasons.py`) and how long they are kept
(`history.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from anabranch.core.controller.history import MOST_A_DECISION
from anabranch.core.controller.reasons import Code, folded
from anabranch.core.wire.own_fields import SaidReason

ABOUT_A_BROKER = frozenset(
    {
        Code.BROKER_REGISTERED,
        Code.BROKER_STATE_CHANGED,
        Code.BROKER_SESSION_EXPIRED,
        Code.BROKER_PROCESS_GONE,
        Code.BROKER_UNREGISTERED,
    }
)
ABOUT_NOBODY = frozenset({Code.LEADER_LOST, Code.UNCLEAN_ELECTION_WAITS})


class TimedReason(NamedTuple):
    """One sentence, and when it was said (milliseconds of the wall clock)."""

    at_ms: int
    code: str
    sentence: str


class Reasons:
    """What was said lately, oldest first."""

    def __init__(self, said: Sequence[SaidReason] = ()) -> None:
        self._said = said

    def newest(self, count: int) -> list[TimedReason]:
        """The last `count` of them, oldest first; those in a row that differ only in their
        partition are one. Of a decision with more reasons than are kept, the number of partitions
        is a least one."""
        kept = Counter(each.offset for each in self._said)
        said = folded(
            self._said,
            lambda each: (each.code, each.partition, each.sentence),
            lambda each: kept[each.offset] == MOST_A_DECISION,
        )
        told = [TimedReason(each.at_ms, each.code, sentence) for each, sentence in said]
        return told[-count:]

    def about(self, place: str, count: int) -> list[TimedReason]:
        """The last `count` that name a partition ("flights-3"), oldest first."""
        return [_told(each) for each in self._said if each.partition == place][-count:]

    def of_broker(self, broker_id: int) -> TimedReason | None:
        """What happened to a broker last."""
        return _last(
            each
            for each in reversed(self._said)
            if each.code in ABOUT_A_BROKER and broker_id in each.brokers
        )

    def of_partition(self, place: str, leader: int, missing: Iterable[int]) -> list[TimedReason]:
        """Why "flights-3" has no leader (`leader` is below 0), and why each of `missing` is not in
        sync; where a broker left many at once, what happened to the broker."""
        said = [each for each in reversed(self._said) if each.partition == place]
        found = []
        if leader < 0:
            found.append(_last(each for each in said if each.code in ABOUT_NOBODY))
        for broker_id in missing:
            left = _last(
                each for each in said if each.code == Code.ISR_CHANGED and broker_id in each.brokers
            )
            found.append(left or self.of_broker(broker_id))
        return list(dict.fromkeys(each for each in found if each is not None))


def _last(newest_first: Iterable[SaidReason]) -> TimedReason | None:
    return next((_told(each) for each in newest_first), None)


def _told(said: SaidReason) -> TimedReason:
    return TimedReason(said.at_ms, said.code, said.sentence)
