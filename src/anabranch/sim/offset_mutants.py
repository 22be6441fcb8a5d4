"""Broken rules of committed offsets that expire, each caught by a recorded schedule.

Rule kept: as in `mutant_table.py`.
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

OFFSETS = "anabranch.core.groups.offsets"

EXPIRING = (
    Mutant(
        name="offset-expires-before-its-time",
        rule="an offset whose client set a retention lives that long",
        module=OFFSETS,
        old="        return committed.expire_timestamp_ms <= now_ms\n",
        new="        return committed.commit_timestamp_ms <= now_ms\n",
        seed=104,
        caught_by="offset-early",
    ),
    Mutant(
        name="offset-outlives-its-retention",
        rule="an offset goes when the retention that its client set is over",
        module=OFFSETS,
        old="        return committed.expire_timestamp_ms <= now_ms\n",
        new="        return False\n",
        seed=104,
        caught_by="liveness",
    ),
    Mutant(
        name="expired-offset-stays-in-the-log",
        rule="what expires is deleted in the log, and counts as gone once that is committed",
        module=OFFSETS,
        old="    group.shard.write(records, now_ms, effect)\n    group.shard.undecided",
        new="    effect(now_ms)\n    group.shard.undecided",
        seed=296,
        caught_by="offset-again",
    ),
    Mutant(
        name="retention-forgotten-with-the-coordinator",
        rule="the record of an offset says until when it is kept",
        module="anabranch.core.groups.records",
        old="        value.kept_until, value.topic_id = committed.expire_timestamp_ms, committed",
        new="        value.topic_id = committed",
        seed=208,
        caught_by="liveness",
    ),
)
