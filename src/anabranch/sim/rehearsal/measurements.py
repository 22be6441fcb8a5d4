"""Bytes that healing copies, the time it takes, and the numbers that claims are about.

Rule: a record that stands for retained bytes weighs its share of them, any other what the file says
that a record weighs. A broker receives, and a leader sends, at most at the stated bandwidth; all do
so at once; the slowest decides. Traffic that goes on meanwhile is not subtracted.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from anabranch.sim.rehearsal.answers import Answers, Condition, Place
from anabranch.sim.rehearsal.model import Claim, Rehearsal
from anabranch.sim.rehearsal.probe import Probe
from anabranch.sim.rehearsal.units import SECOND_US

Range = tuple[int, int, Place, int, int]
"""Receiver, sender, partition, first offset, end offset."""


def outstanding(probe: Probe) -> list[Range]:
    """What replicas that are not in sync lack at the end."""
    found: list[Range] = []
    for (broker, place), first in sorted(probe.copies.behind.items()):
        leader = probe.states[place].leader
        source = probe.replica(leader, place) if leader >= 0 else None
        if source is not None and source.log.end_offset > first:
            found.append((broker, leader, place, first, source.log.end_offset))
    return found


def copied(
    plan: Rehearsal, ranges: Iterable[Range], history_ends: Mapping[Place, int]
) -> dict[int, int]:
    """Bytes a receiving broker."""
    total: dict[int, int] = {}
    for receiver, _, place, first, end in ranges:
        size = _bytes(plan, place, first, end, history_ends.get(place, 0))
        total[receiver] = total.get(receiver, 0) + size
    return dict(sorted(total.items()))


def copy_time(plan: Rehearsal, ranges: Iterable[Range], history_ends: Mapping[Place, int]) -> int:
    """Microseconds until the slowest broker has received, or sent, its part."""
    through: dict[tuple[str, int], int] = {}
    for receiver, sender, place, first, end in ranges:
        size = _bytes(plan, place, first, end, history_ends.get(place, 0))
        for key in (("in", receiver), ("out", sender)):
            through[key] = through.get(key, 0) + size
    return max(through.values(), default=0) * SECOND_US // plan.bandwidth_bytes


def _bytes(plan: Rehearsal, place: Place, first: int, end: int, history_end: int) -> int:
    topic = plan.topic(place[0])
    if topic is None:
        return 0
    old = max(0, min(end, history_end) - first)
    share = topic.retained_bytes * old // history_end if history_end else 0
    return (
        share + (end - max(first, history_end)) * topic.record_bytes if end > history_end else share
    )


def seen_at_end(claim: Claim, answers: Answers) -> int:
    """The number that a claim is about: of one partition if it names one, else of all."""

    def those(places: Iterable[Place]) -> list[Place]:
        wanted = (claim.topic, claim.partition)
        return [place for place in places if not claim.topic or place == wanted]

    def ever(condition: Condition) -> int:
        return len(those(answers.places(condition)))

    def seconds(condition: Condition) -> int:
        return answers.longest_us(condition, claim.topic) // SECOND_US

    return {
        "leaders_moved": lambda: len(those(m.place for m in answers.moves if m.now >= 0)),
        "offline_partitions": lambda: ever(Condition.OFFLINE),
        "read_only_partitions": lambda: ever(Condition.READ_ONLY),
        "offline_seconds": lambda: seconds(Condition.OFFLINE),
        "read_only_seconds": lambda: seconds(Condition.READ_ONLY),
        "records_lost": lambda: sum(
            len(loss.offsets) for loss in answers.losses if those([loss.place])
        ),
        "topics_refused": lambda: sum(error != "NONE" for _, _, error in answers.creations),
        "under_replicated_partitions": lambda: ever(Condition.UNDER_REPLICATED),
        "under_replicated_at_end": lambda: len(those(answers.at_end(Condition.UNDER_REPLICATED))),
    }[claim.measure]()
