"""What an operator should take from a rehearsal, said in sentences made from what was seen.

The rule it keeps: a sentence follows from the answers and the plan alone, names its numbers, and
ends in what could be done where something can. Nothing that did not happen is warned of.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.sentences import number_of
from anabranch.sim.rehearsal.answers import Answers, Condition, Place, acks_text
from anabranch.sim.rehearsal.losses import DISKS, ONLY_THE_LEADER, POWER, UNCLEAN_ELECTION
from anabranch.sim.rehearsal.model import Rehearsal, TopicPlan
from anabranch.sim.rehearsal.units import SECOND_US, say_bytes, say_duration

MIN_IN_SYNC = "min.insync.replicas"
FELT_US = SECOND_US
"""What is shorter, a client's retries bridge without anybody noticing."""

REMEDIES = {
    ONLY_THE_LEADER: " Use acks=all for records that must not be lost.",
    UNCLEAN_ELECTION: " Leave unclean election disabled for records that must not be lost.",
    DISKS: " Empty the disks of one broker at a time, and wait until it is in sync again.",
    POWER: " Set flush.messages=1 for records that must not be lost, or use separate power "
    "supplies.",
}
"""What to do about a rule."""

BALANCE = "leader.imbalance.check.interval.seconds"
UNCLEAN = "unclean.leader.election.enable"


def lessons(plan: Rehearsal, answers: Answers) -> list[str]:
    """The sentences, the gravest first."""
    parts = (_broken, _lost, _offline, _read_only, _claims, _creations, _healing, _drifted, _kept)
    return [sentence for part in parts for sentence in part(plan, answers)]


def _broken(_plan: Rehearsal, answers: Answers) -> Iterator[str]:
    if answers.violation:
        yield (
            f"An invariant was violated: {answers.violation}. This is a defect in Anabranch: "
            f"please report it with this file and seed {answers.seed}."
        )


def _lost(_plan: Rehearsal, answers: Answers) -> Iterator[str]:
    by_rule: dict[tuple[str, int], int] = {}
    for loss in answers.losses:
        key = (loss.rule, loss.acks)
        by_rule[key] = by_rule.get(key, 0) + len(loss.offsets)
    for (rule, acks), count in sorted(by_rule.items()):
        what = f"{_records(count)} acknowledged with acks={acks_text(acks)}"
        if not rule:
            yield f"{what} were lost, and no rule allows it. Report this with seed {answers.seed}."
        else:
            yield f"{what} were lost.{REMEDIES.get(rule, '')}"


def _offline(plan: Rehearsal, answers: Answers) -> Iterator[str]:
    at_end = answers.at_end(Condition.OFFLINE)
    if at_end:
        yield (
            f"{_partitions(at_end)} no leader at the end. Start a broker that was in sync. If "
            f"availability is more important than the newest records, set {UNCLEAN}=true for the "
            "topic, or run `anabranch partitions elect-leaders --type unclean`."
        )
    elif answers.longest_us(Condition.OFFLINE) >= FELT_US:
        longest = say_duration(answers.longest_us(Condition.OFFLINE) / SECOND_US)
        yield (
            f"The longest time that a partition was offline was {longest}. Set "
            "delivery.timeout.ms of producers well above that, so that they do not drop records."
        )
    elif answers.moves and answers.longest_us(Condition.READ_ONLY) < FELT_US:
        yield "Leadership moved so fast that producers with retries do not notice it."


def _read_only(plan: Rehearsal, answers: Answers) -> Iterator[str]:
    for topic in plan.topics:
        longest = answers.longest_us(Condition.READ_ONLY, topic.name)
        if longest < FELT_US:
            continue
        if topic.is_diskless:
            yield (
                f"{topic.name} acknowledged nothing for up to {say_duration(longest / SECOND_US)}: "
                "the object store or the coordinator was unavailable. Records in brokers' memory "
                "could be read. Set delivery.timeout.ms of producers well above such an outage."
            )
            continue
        count = len(answers.places(Condition.READ_ONLY, topic.name))
        required, replication = _min_in_sync(plan, topic), len(topic.replicas[0])
        spare = replication - required
        limit = (
            f"more than {spare} of them are out of sync" if spare else "any of them is out of sync"
        )
        yield (
            f"{topic.name} refused acks=all for up to {say_duration(longest / SECOND_US)} in "
            f"{count} of {number_of(answers.topics[topic.name], 'partition')}: with "
            f"{number_of(replication, 'replica')} and {MIN_IN_SYNC}={required}, writes stop when "
            f"{limit}. Reads continued." + _by_racks(plan, topic, required)
        )


def _by_racks(plan: Rehearsal, topic: TopicPlan, required: int) -> str:
    """What the loss of a rack leaves, where that is too little."""
    most = max(
        (
            sum(plan.racks.get(each) == rack for each in row)
            for row in topic.replicas
            for rack in plan.racks.values()
        ),
        default=0,
    )
    left = len(topic.replicas[0]) - most
    if most == 0 or not 0 < left < required:
        return ""
    return (
        f" The loss of a rack removes {number_of(most, 'replica')} and leaves {left}: to stay "
        f"writable, set {MIN_IN_SYNC}={left}, or distribute the replicas over more racks."
    )


def _claims(_plan: Rehearsal, answers: Answers) -> Iterator[str]:
    for verdict in answers.verdicts:
        if not verdict.holds:
            measure = verdict.claim.measure.replace("_", " ")
            yield (
                f"“{verdict.claim.says}” does not hold: {measure} should be "
                f"{verdict.claim.expected:,}, but was {verdict.seen:,}."
            )


def _creations(_plan: Rehearsal, answers: Answers) -> Iterator[str]:
    failed = [each for each in answers.creations if each[2] != "NONE"]
    if failed:
        errors = ", ".join(sorted({error for _, _, error in failed}))
        yield (
            f"{len(failed)} of {number_of(len(answers.creations), 'topic')} could not be "
            f"created: {errors}."
        )
    elif answers.creations:
        yield f"All {number_of(len(answers.creations), 'topic')} could be created."


def _healing(_plan: Rehearsal, answers: Answers) -> Iterator[str]:
    if answers.copy_us >= FELT_US:
        yield (
            f"Healing copies {say_bytes(answers.copied_total)}; at "
            f"{say_bytes(answers.bandwidth_bytes)}/s a broker the slowest needs "
            f"{say_duration(answers.copy_us / SECOND_US)}. Until then those replicas are missing."
        )
    at_end = answers.at_end(Condition.UNDER_REPLICATED)
    if at_end:
        yield f"{_partitions(at_end)} fewer in-sync replicas than they should at the end."


def _drifted(plan: Rehearsal, answers: Answers) -> Iterator[str]:
    idle = [broker for broker, count in answers.leaders.items() if count == 0]
    is_whole = not answers.at_end(Condition.UNDER_REPLICATED)
    if idle and is_whole and answers.moves and answers.partitions >= len(answers.leaders):
        seconds = plan.settings.get(BALANCE, "300")
        yield (
            f"All brokers are back, and broker{'s' if len(idle) > 1 else ''} "
            f"{', '.join(map(str, idle))} lead{'s' if len(idle) == 1 else ''} nothing: leadership "
            f"returns with the balance every {seconds} s ({BALANCE}), or at once with "
            "`anabranch partitions elect-leaders --all-topic-partitions`."
        )


def _kept(plan: Rehearsal, answers: Answers) -> Iterator[str]:
    if answers.losses or answers.violation:
        return
    sure = sum(each.acknowledged for each in answers.writes if each.acks < 0)
    if sure:
        yield f"All {number_of(sure, 'record')} that were acknowledged with acks=all are there."


def _min_in_sync(plan: Rehearsal, topic: TopicPlan) -> int:
    wanted = int(topic.settings.get(MIN_IN_SYNC, plan.settings.get(MIN_IN_SYNC, "1")))
    return min(wanted, len(topic.replicas[0]))


def _records(count: int) -> str:
    return f"{count:,} record{'s' if count != 1 else ''}"


def _partitions(places: list[Place]) -> str:
    if len(places) == 1:
        return f"{places[0][0]}-{places[0][1]} has"
    return f"{number_of(len(places), 'partition')} have"
