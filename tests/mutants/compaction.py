"""Broken rules of what compaction keeps and removes."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

COMPACTED_TESTS = "tests/core/replication/test_compacted_logs.py"
COMPACTION = "anabranch.core.log.compaction"
UNDECIDED_TESTS = "tests/core/log/test_compaction_of_undecided.py"

MUTANTS = (
    Mutant(
        name="marker-behind-the-recovery-point",
        rule="the recovery point covers the markers that a pass of compaction goes by",
        module="anabranch.core.log.cleaner",
        old="log.flushed_offset if outcome.is_decided_later else outcome.upto",
        new="outcome.upto",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_cleaner.py"
        "::test_rot_in_a_marker_that_a_pass_went_by_is_found_and_costs_no_record",
    ),
    Mutant(
        name="compaction-forgets-the-last-value",
        rule="the newest record of a key stays",
        module="anabranch.core.log.record_walk",
        old="if newest_of(key, -1) <= first + delta and",
        new="if newest_of(key, -1) < first + delta and",
        seed=257,
        caught_by="C1",
    ),
    Mutant(
        name="tombstone-removed-at-once",
        rule="a tombstone stays for delete.retention.ms after it was first compacted",
        module=COMPACTION,
        old="not header.has_delete_horizon or self._job.now_ms < header.base_timestamp",
        new="False",
        seed=257,
        caught_by="C2",
    ),
    Mutant(
        name="old-tombstone-removed-by-its-first-pass",
        rule="delete.retention.ms of a tombstone begins with its first pass, however old it is",
        module=COMPACTION,
        old="not header.has_delete_horizon or self._job.now_ms < header.base_timestamp",
        new="self._job.now_ms < header.base_timestamp"
        " + (0 if header.has_delete_horizon else self._job.delete_retention_ms)",
        seed=257,
        caught_by="C2",
    ),
    Mutant(
        name="compacted-above-the-high-watermark",
        rule="only a committed record replaces older records of its key",
        module="anabranch.core.log.cleanable",
        old="limit = min(log.last_stable_offset(high_watermark), log.decided_offset)",
        new="limit = log.decided_offset",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_compaction.py::test_the_active_segment_and_what_is_undecided_stay",
    ),
    Mutant(
        name="marker-goes-behind-the-end-of-a-pass",
        rule="a pass changes nothing at or above its end, which the recovery point covers",
        module=COMPACTION,
        old="if not is_over or header.base_offset >= self._outcome.upto:",
        new="if not is_over:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_compaction.py"
        "::test_a_marker_beyond_the_end_of_a_pass_is_left_as_it_is",
    ),
    Mutant(
        name="compaction-goes-by-lost-markers",
        rule="compaction stops before a transaction whose marker is not synced",
        module="anabranch.core.log.cleanable",
        old="limit = min(log.last_stable_offset(high_watermark), log.decided_offset)",
        new="limit = min(log.last_stable_offset(high_watermark), log.flushed_offset)",
        seed=107,
        caught_by="C6",
    ),
    Mutant(
        name="marker-counts-before-its-round",
        rule="a marker that is written during a round of syncs decides nothing when the round ends",
        module="anabranch.core.log.sync_round",
        old="log.decided_ceiling = log.decided_before(log.end_offset)",
        new="log.decided_ceiling = log.end_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{UNDECIDED_TESTS}"
        "::test_a_round_covers_the_markers_that_were_there_when_it_began",
    ),
    Mutant(
        name="marker-counts-because-it-was-read",
        rule="a marker that recovery finds behind the recovery point may not be synced",
        module="anabranch.core.log.recovery",
        old="if header.next_offset > opening.recovery_point and opening.decided_offset",
        new="if False and opening.decided_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{UNDECIDED_TESTS}::test_a_process_that_ended_leaves_what_it_has_synced[False]",
    ),
    Mutant(
        name="marker-counts-though-it-was-cut",
        rule="a transaction whose marker was truncated is undecided again",
        module="anabranch.core.log.truncation",
        old="decided = log.decided_before(end_offset)",
        new="decided = end_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{UNDECIDED_TESTS}::test_a_cut_takes_back_what_it_decided",
    ),
    Mutant(
        name="pass-over-a-log-that-was-cut",
        rule="a pass reads no log that was truncated since it was chosen",
        module="anabranch.core.broker.hosting.log_cleaner",
        old="        self.check()\n        log = self.replica.log\n",
        new="        log = self.replica.log\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_log_cleaner.py"
        "::test_a_log_that_was_cut_since_it_was_chosen_gets_no_pass",
    ),
    Mutant(
        name="sequence-forgotten-for-an-unsynced-one",
        rule="the last batch of a producer that compaction keeps is one that is synced",
        module=COMPACTION,
        old="(one.last_offset_before(log.flushed_offset), one.epoch)",
        new="(one.last_offset, one.epoch)",
        seed=NO_SCHEDULE,
        caught_by=f"{UNDECIDED_TESTS}::test_what_a_power_cut_leaves_undecided_is_there[62]",
    ),
    Mutant(
        name="empty-batch-stays-in-a-transaction",
        rule="a batch that compaction left without a producer belongs to no transaction",
        module="anabranch.core.log.compaction",
        old="attributes = header.attributes & ~(TRANSACTIONAL_BIT | CONTROL_BIT)",
        new="attributes = header.attributes",
        seed=1000020475,
        caught_by="beyond-stable",
    ),
    Mutant(
        name="compaction-takes-where-an-epoch-began",
        rule="compaction keeps the first batch of each leader epoch",
        module=COMPACTION,
        old="self._stays = begins_epoch or left == 0 or self._is_last_word(header)",
        new="self._stays = left == 0 or self._is_last_word(header)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_an_old_leader_is_told_of_it_by_one_who_copied_a_compacted_log",
    ),
    Mutant(
        name="compacted-log-ends-in-nothing",
        rule="compaction keeps the last batch that it reads",
        module=COMPACTION,
        old="self._stays = begins_epoch or left == 0 or self._is_last_word(header)",
        new="self._stays = begins_epoch or self._is_last_word(header)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_a_replica_of_a_log_that_ends_in_a_tombstone_gets_in_sync",
    ),
)
