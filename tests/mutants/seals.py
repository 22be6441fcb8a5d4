"""Broken rules of a topic's way from classic to diskless, each caught by a named test."""

from __future__ import annotations

from tests.mutants.mutant import Mutant
from tests.mutants.tiering import mutant

ROOM = "anabranch.core.tiering"
SEALS = "tests/stores/coordinator/test_seals.py"
SEAL_TABLES = "anabranch.stores.coordinator.seal_tables"
SEAL_ROUNDS = "tests/core/tiering/test_seal_rounds.py"
FACTS = "tests/stores/coordinator/test_remote_facts.py"
VERIFICATION = "tests/stores/objects/test_verification.py"
SCHEDULES = "tests/sim/migration/test_run.py"
MIGRATIONS = "tests/core/controller/test_migrations.py"

MUTANTS: tuple[Mutant, ...] = (
    mutant(
        "seal-of-a-cancelled-migration-counts",
        "a seal replaces none of a later migration",
        SEAL_TABLES,
        "        if known > migration:\n",
        "        if False:\n",
        f"{SEALS}::test_an_older_leader_and_a_cancelled_migration_seal_nothing[sqlite]",
    ),
    mutant(
        "seal-without-all-segments",
        "what is sealed is held by finished segments from the log start to the end",
        SEAL_TABLES,
        "            check_kept(seal, self._remote.finished(key))\n",
        "",
        f"{SEALS}::test_a_seal_without_all_of_its_segments_is_refused[sqlite-20-0-do not hold all "
        "offsets from 0 to 20]",
    ),
    mutant(
        "seal-loses-producers",
        "producers of a classic topic go on when it is diskless",
        SEAL_TABLES,
        "            self._carry(seal)\n",
        "",
        f"{SEALS}::test_producers_go_on_with_what_follows_and_hear_of_what_came_before[sqlite]",
    ),
    mutant(
        "classic-leader-goes-on",
        "once a topic is diskless, no classic leader changes its remote segments",
        SEAL_TABLES,
        "is_over = 1",
        "is_over = 0",
        f"{SEALS}::test_no_classic_leader_changes_what_is_diskless[sqlite]",
    ),
    mutant(
        "seal-before-all-is-committed",
        "a log is sealed once all of it is committed and no transaction is open",
        f"{ROOM}.seal_rounds",
        "or end.active_bytes or not end.is_settled:",
        "or end.active_bytes:",
        f"{SEAL_ROUNDS}::test_a_log_that_grew_during_the_round_is_not_sealed",
    ),
    mutant(
        "records-taken-while-sealing",
        "a log that is being sealed takes no records of clients",
        "anabranch.core.diskless.migration",
        "    if phase.step is Step.SEALING or header.is_transactional:\n",
        "    if header.is_transactional:\n",
        f"{SCHEDULES}::test_a_schedule_is_clean[0]",
    ),
    mutant(
        "ready-without-segments-to-keep",
        "a log that could not be sealed as a whole is not ready",
        f"{ROOM}.seal_rounds",
        "    if missing is not None:\n",
        "    if False:\n",
        f"{SEAL_ROUNDS}::test_a_log_that_agrees_with_a_segment_only_in_part_is_not_ready_and_says_"
        "why[local0-0 to 12]",
    ),
    mutant(
        "restored-partition-begins-at-zero",
        "a diskless partition begins where its classic log ended, whatever the coordinator has lost",
        f"{ROOM}.seals",
        "    end = max([begin, ",
        "    end = max([",
        f"{SEALS}::test_a_restored_partition_without_segments_begins_where_the_metadata_says[sqlite]",
    ),
    mutant(
        "rows-without-begins",
        "the controller tells the coordinator where the metadata has partitions become diskless",
        "anabranch.core.controller.diskless.rows",
        "first, upto, self._begins(name))",
        "first, upto)",
        "tests/core/controller/test_diskless_rows.py::"
        "test_rows_of_what_was_classic_begin_where_the_metadata_says",
    ),
    mutant(
        "restored-coordinator-takes-classic-leaders",
        "once a topic is diskless, no classic leader changes its segments, nor after a restore",
        "anabranch.stores.coordinator.remote_tables",
        "int(log.key in diskless))",
        "0)",
        f"{FACTS}::test_a_restored_coordinator_refuses_classic_leaders_of_what_is_diskless[sqlite]",
    ),
    mutant(
        "restore-forgets-producers-of-segments",
        "a restored coordinator knows the producers that the last segment of a partition knows",
        "anabranch.core.diskless.restoration",
        "    known += _known_at_ends(tiered)\n",
        "",
        f"{VERIFICATION}::test_producers_of_segments_are_known_to_a_restored_coordinator",
    ),
    mutant(
        "unsettled-logs-ask-the-coordinator",
        "while a log has no settled end, its rounds leave the coordinator to others",
        f"{ROOM}.seal_rounds",
        "    if is_sealing and not end.is_settled:",
        "    if False:",
        f"{SEAL_ROUNDS}::test_a_log_without_a_settled_end_leaves_the_coordinator_to_others[unfit0]",
    ),
    mutant(
        "migration-hears-of-another",
        "seals of another migration do not make a topic diskless",
        "anabranch.core.controller.diskless.migrations",
        "        if migration != phase.migration:\n",
        "        if False:\n",
        f"{MIGRATIONS}::test_what_was_heard_of_another_migration_does_not_count",
    ),
    mutant(
        "migration-without-new-epochs",
        "each partition of a topic that becomes diskless has a new leader epoch",
        "anabranch.core.controller.diskless.migrations",
        "            record.leader = partition.leader  # a new epoch, by the same leader\n",
        "            pass\n",
        f"{MIGRATIONS}::test_a_topic_goes_from_phase_to_phase_and_is_diskless_with_new_epochs",
    ),
)
