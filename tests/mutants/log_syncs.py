"""Broken rules of what a log counts as synced, and what follows from a sync that failed."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

LOG = "anabranch.core.log.state"
RECOVERY = "anabranch.core.log.recovery"
SYNCING_TESTS = "tests/core/log/test_sync_round.py"
UNSURE_TESTS = "tests/core/log/test_failed_sync.py"

MUTANTS = (
    Mutant(
        name="rolled-segment-left-unsynced",
        rule="a round of syncs covers segments that were rolled since the last round",
        module="anabranch.core.log.sync_round",
        old="        targets.append(SegmentSync(segment))\n",
        new="",
        seed=262,
        caught_by="L7",
    ),
    Mutant(
        name="recovery-point-passes-unsaved-epochs",
        rule="the recovery point leaves a segment once the epochs that began there are saved",
        module="anabranch.core.log.sync_round",
        old="        save_epochs_before(log, log.active.base_offset)\n",
        new="        pass\n",
        seed=148,
        caught_by="L6",
    ),
    Mutant(
        name="recovery-point-passes-epochs-without-room",
        rule="the recovery point stays where a full disk has no room for the file of leader epochs",
        module="anabranch.core.log.side_files",
        old="    except DiskFull:\n        raise\n    except StorageFault as fault:\n",
        new="    except DiskFull:\n        return\n    except StorageFault as fault:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_epochs.py"
        "::test_a_round_that_has_no_room_for_the_table_is_not_begun",
    ),
    Mutant(
        name="empty-table-taken-for-one",
        rule="a copy that begins in a gap finds the gap's epoch again if its table is empty",
        module=RECOVERY,
        old="    has_table = bool(log.epochs.entries)\n",
        new="    has_table = epochs_known\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_epochs.py"
        "::test_a_killed_copy_that_begins_in_a_gap_knows_whose_the_gap_is",
    ),
    Mutant(
        name="bytes-of-a-failed-sync-are-believed",
        rule="records that a sync failed to store are written and synced again by the next process",
        module=RECOVERY,
        old="            if opening.is_unsure and header.next_offset > opening.recovery_point:\n",
        new="            if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{UNSURE_TESTS}::test_what_the_next_process_syncs_is_there_after_a_power_cut",
    ),
    Mutant(
        name="files-of-a-failed-sync-are-believed",
        rule="small files that a sync failed to store are also written and synced again",
        module=RECOVERY,
        old="        _write_again_beside(log, names)\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{UNSURE_TESTS}::test_what_the_next_process_syncs_is_there_after_a_power_cut",
    ),
    Mutant(
        name="cut-that-was-not-synced-is-believed",
        rule="a failed sync outside of a round leaves a mark, too",
        module="anabranch.core.log.failed_sync",
        old="        leave_mark(log)\n        raise\n\n\nclass WriteBackFile",
        new="        raise\n\n\nclass WriteBackFile",
        seed=NO_SCHEDULE,
        caught_by=f"{UNSURE_TESTS}::test_a_cut_that_could_not_be_synced_leaves_the_mark",
    ),
    Mutant(
        name="synced-claims-what-came-later",
        rule="a round of syncs covers only what existed when it began",
        module=LOG,
        old="reached = min(end_offset, self.sync_ceiling)",
        new="reached = self.end_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{SYNCING_TESTS}::test_what_a_round_said_is_there_after_a_power_cut",
    ),
    Mutant(
        name="synced-claims-what-was-cut",
        rule="a round of syncs does not cover what replaced records that were truncated during it",
        module=LOG,
        old="reached = min(end_offset, self.sync_ceiling)",
        new="reached = end_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{SYNCING_TESTS}::test_what_a_round_said_is_there_after_a_power_cut",
    ),
    Mutant(
        name="names-safe-when-a-round-begins",
        rule="a file's name counts as synced when the round that covers it has ended",
        module="anabranch.core.log.sync_round",
        old="if log.names_unsynced or log.names_syncing:",
        new="if log.names_unsynced:",
        seed=NO_SCHEDULE,
        caught_by=f"{SYNCING_TESTS}::test_what_a_round_said_is_there_after_a_power_cut",
    ),
    Mutant(
        name="segment-rolled-during-a-round-counts-as-synced",
        rule="a segment rolled during a round belongs to the next one",
        module="anabranch.core.log.state",
        old="if one[0] > reached or one not in covered\n",
        new="if one[0] > reached\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_sync_round.py"
        "::test_what_a_round_said_is_there_after_a_power_cut[1]",
    ),
)
