"""Broken rules of mirrors: schedules of `sim.mirror`, which have seeds of their own, or tests."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

SCHEDULES = "tests/sim/mirror/test_run.py::test_a_schedule_is_clean"
WAVE_PLAN, LANDING = "anabranch.core.mirror.wave_plan", "anabranch.core.mirror.landed"
INDEX, CHECKPOINTS = "anabranch.core.mirror.index", "anabranch.core.mirror.checkpoints"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: int | str) -> Mutant:
    """One that the schedule of a seed catches, or a test."""
    test = caught_by if isinstance(caught_by, str) else f"{SCHEDULES}[{caught_by}]"
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, test)


MUTANTS = (
    mutant(
        "mirror-slots-not-fenced",
        "before the first wave of a driver, and where slots change, all their ids are fenced",
        WAVE_PLAN,
        "    if not moved:\n",
        "    if True:\n",
        10,
    ),
    mutant(
        "mirror-old-plans-go-on",
        "a late task that takes its id after the fence ends when it finds another plan's name",
        WAVE_PLAN,
        "    return newest != plan\n",
        "    return False\n",
        0,
    ),
    mutant(
        "mirror-copies-with-a-gap",
        "new copies count only without a gap where there were records",
        INDEX,
        "        if self._again is None or self._knows(self._again.upstream_end, run.upstream):\n",
        "        if self._again is None:\n",
        "tests/core/mirror/test_index.py"
        "::test_attempts_that_write_at_the_same_time_make_no_group_skip_a_record",
    ),
    mutant(
        "mirror-position-before-index",
        "without transactions, what the index has not is mirrored again",
        WAVE_PLAN,
        "    return min(position, indexed_to - 1)\n",
        "    return position\n",
        "tests/core/mirror/test_wave_plan.py"
        "::test_what_the_index_has_not_is_mirrored_again_without_transactions",
    ),
    mutant(
        "mirror-truncation-not-seen",
        "mirroring goes on where the source's log parted from what was mirrored",
        WAVE_PLAN,
        "    if diverged_at is not None and diverged_at < following:\n",
        "    if False:\n",
        3,
    ),
    mutant(
        "mirror-other-source-not-seen",
        "a topic that was created again at the source is mirrored from its start",
        WAVE_PLAN,
        "    if other_source:\n",
        "    if False:\n",
        8,
    ),
    mutant(
        "mirror-position-without-index",
        "a position is written once there is an index that tells of which topic it is",
        LANDING,
        "    return newest is not None or not begins or from_latest\n",
        "    return True\n",
        69,
    ),
    mutant(
        "mirror-index-drops-old-copies",
        "what was mirrored before counts until the new copies have come as far",
        INDEX,
        "        if self._again.upstream_end >= self.upstream_end:\n",
        "        if True:\n",
        "tests/core/mirror/test_index.py"
        "::test_old_copies_count_until_the_new_ones_have_come_as_far",
    ),
    mutant(
        "mirror-translates-behind-gaps",
        "an offset in a gap is behind the run before it on the target",
        INDEX,
        "self.downstream_end if is_last else run.downstream_end",
        "self.downstream_end if is_last else self._runs[at + 1].downstream_end",
        0,
    ),
    mutant(
        "mirror-chunk-of-another-topic",
        "the newest chunk is one of the topics that are there now",
        "anabranch.core.mirror.ledger",
        "(each.source_id, each.target_id) == ids, each",
        "each",
        57,
    ),
    mutant(
        "mirror-checkpoints-go-back",
        "a checkpoint goes back only when its group does",
        CHECKPOINTS,
        "    return downstream > last.downstream\n",
        "    return downstream != last.downstream\n",
        2,
    ),
    mutant(
        "mirror-groups-go-back",
        "a group is moved back on the target only when it went back at the source",
        CHECKPOINTS,
        "if current < 0 or synced.downstream > current or is_rewind:",
        "if current != synced.downstream:",
        6,
    ),
    mutant(
        "mirror-topics-in-circles",
        "a topic that came from the target is not mirrored back, over any number of hops",
        "anabranch.core.mirror.policy",
        "        return target in self.hops(topic)\n",
        "        return target == self.topic_source(topic)\n",
        0,
    ),
)
