"""Broken rules of the tiering of diskless topics, each caught by a named test."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

CLAIMS = "tests/stores/coordinator/test_tiering.py"
ANY = f"{CLAIMS}::test_any_row_of_calls_keeps_each_record_in_one_place"
PLAN = "tests/core/tiering/test_plan.py"
TABLES = "anabranch.stores.coordinator.tiering_tables"
ROOM = "anabranch.core.tiering"
BUILT = "tests/core/tiering/test_built_segment.py"
REQUESTS = "tests/core/api/test_tiering_requests.py"
TRIES = "tests/core/tiering/test_tries.py"
TIERS = "tests/pipelines/test_tiers.py"
SAME = f"{BUILT}::test_segments_are_those_of_a_log_with_the_same_batches"
COMPACTION = "tests/stores/coordinator/test_compaction.py"
SWAPS = "anabranch.stores.coordinator.compaction_tables"
RECORDS = "tests/core/tiering/test_compacted_segment.py"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: str) -> Mutant:
    """One that a test catches."""
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, caught_by)


MUTANTS = (
    mutant(
        "tiering-claim-without-end",
        "a job that takes the claim over ends all tries of the one before",
        TABLES,
        "            self._give_up_others(claim_id, now_ms)\n",
        "",
        f"{CLAIMS}::test_one_job_holds_the_claim_until_it_is_silent[sqlite]",
    ),
    mutant(
        "tiering-claims-shared",
        "one job at a time holds the claim",
        TABLES,
        "if held and is_held(held[0][3], now_ms):",
        "if False:",
        f"{CLAIMS}::test_one_job_holds_the_claim_until_it_is_silent[sqlite]",
    ),
    mutant(
        "tiering-made-before-given-up",
        "a segment that a job made in a task that ran before is its own",
        TABLES,
        "claim_id, FINISHED),",
        "-9, FINISHED),",
        f"{CLAIMS}::test_a_segment_that_was_tiered_already_is_refused[sqlite]",
    ),
    mutant(
        "tiering-newer-commits-taken",
        "a claim covers what was committed up to its commit number",
        TABLES,
        "each[1] <= newest",
        "True",
        f"{CLAIMS}::test_what_was_committed_after_the_claim_waits_for_the_next_one[sqlite]",
    ),
    mutant(
        "tiering-segment-counted-twice",
        "a segment begins where the tiered part ends",
        f"{ROOM}.plan",
        "state.tiered_end <= start_offset <= state.first_run_offset",
        "start_offset <= state.first_run_offset",
        f"{CLAIMS}::test_a_segment_that_was_tiered_already_is_refused[sqlite]",
    ),
    mutant(
        "tiering-run-cut-in-two",
        "a segment takes the place of whole runs",
        TABLES,
        "if not is_whole or max((end for _, end in held), default=-1) != segment.end_offset:",
        "if not is_whole:",
        f"{CLAIMS}::test_a_segment_that_cuts_a_run_in_two_deletes_nothing[sqlite]",
    ),
    mutant(
        "tiering-objects-kept",
        "the objects of tiered runs are released",
        TABLES,
        "            on.release((row[0] for row in runs), on.now_ms())\n",
        "",
        f"{CLAIMS}::test_a_segment_takes_the_place_of_its_runs_and_frees_their_objects[sqlite]",
    ),
    mutant(
        "tiering-size-forgets-segments",
        "a partition's size is that of both of its parts",
        TABLES,
        "size = state.byte_size + segment.byte_size - sum(row[1] for row in runs)",
        "size = state.byte_size - sum(row[1] for row in runs)",
        f"{ANY}[sqlite-0]",
    ),
    mutant(
        "tiering-retention-of-runs-alone",
        "retention takes the oldest records first, whichever part has them",
        "anabranch.stores.coordinator.sql_tables",
        "*(self.tiering.oldest(key) if state.tiered_end else ()), ",
        "",
        f"{CLAIMS}::test_retention_counts_both_sides_and_takes_the_oldest_first[sqlite]",
    ),
    mutant(
        "tiering-unaware-broker",
        "nothing is tiered while a broker would pass over it",
        TABLES,
        "            if broker_id not in known:\n",
        "            if False:\n",
        f"{CLAIMS}::test_a_broker_that_does_not_know_of_tiering_refuses_the_claim[sqlite]",
    ),
    mutant(
        "tiering-passes-a-young-run",
        "a segment takes runs in order, without passing one over",
        f"{ROOM}.plan",
        "        if committed_ms + wanted.age_ms > now_ms:\n            break\n",
        "        if committed_ms + wanted.age_ms > now_ms:\n            continue\n",
        f"{PLAN}::test_a_young_run_ends_a_segment_and_what_comes_after_it_waits",
    ),
    mutant(
        "tiering-producers-begin-anew",
        "the snapshot of producers goes on with that of the segment before",
        f"{ROOM}.built_segment",
        "    producers = _producers(snapshot_before)\n",
        "    producers = ProducerStates()\n",
        f"{SAME}[3]",
    ),
    mutant(
        "tiering-positions-of-runs",
        "the offset index has positions in the segment",
        f"{ROOM}.built_segment",
        "            position += header.size_bytes\n            if",
        "            position = header.size_bytes\n            if",
        f"{SAME}[3]",
    ),
    mutant(
        "tiering-silent-producers-stay",
        "producers that wrote nothing for a day are left out",
        f"{ROOM}.built_segment",
        "    producers.expire(index.max_timestamp, PRODUCERS_KEPT_MS)\n",
        "",
        f"{BUILT}::test_a_producer_that_was_silent_for_a_day_is_left_out",
    ),
    mutant(
        "tiering-lag-of-the-oldest-row",
        "a segment waits from the moment in which it could have been made",
        f"{ROOM}.lag",
        "            waited_ms = since_ms\n",
        "            waited_ms = now_ms - committed_ms\n",
        "tests/core/tiering/test_lag.py::"
        "test_a_segment_waits_from_the_moment_in_which_it_could_have_been_made",
    ),
    mutant(
        "tiering-claim-of-a-clock-ahead",
        "a claim keeps other jobs away for a lease at most",
        f"{ROOM}.claims",
        "now_ms < expires_ms <= now_ms + LEASE_MS",
        "now_ms < expires_ms",
        f"{CLAIMS}::test_a_claim_from_a_clock_that_was_ahead_keeps_no_job_away[sqlite]",
    ),
    mutant(
        "tiering-anyone-takes-a-step",
        "only a partition's leader takes a step of its segments",
        "anabranch.core.api.p10001_tier_segment",
        "    if partition.leader != broker.broker_id:\n",
        "    if partition.leader < 0:\n",
        f"{REQUESTS}::test_only_the_leader_takes_a_step_and_fences_it_with_its_epoch",
    ),
    mutant(
        "tiering-of-classic-topics",
        "only diskless topics are tiered by a job",
        "anabranch.core.api.p10001_tier_segment",
        "if topic is None or partition is None or not is_diskless(broker.image, topic.name):",
        "if topic is None or partition is None:",
        f"{REQUESTS}::test_a_partition_that_is_not_there_or_not_diskless_is_unknown[0-place1]",
    ),
    mutant(
        "tiering-gaps-unseen",
        "each tiered offset is in a segment of the store",
        "anabranch.pipelines.tiers",
        "    if start < end:\n",
        "    if False:\n",
        f"{TIERS}::test_planted_damage_is_found_and_named"
        "[-rmtree-missing-no segment in the store has the tiered offsets 0 to 199]",
    ),
    mutant(
        "segment-epochs-unchecked",
        "a batch with an impossible leader epoch is damaged",
        "anabranch.core.remote.segment_check",
        "        if not NO_EPOCH <= header.leader_epoch <= newest:\n",
        "        if False:\n",
        "tests/core/remote/test_segment_check.py::test_a_batch_of_another_epoch_is_named",
    ),
    Mutant(
        name="tiering-finished-before-described",
        rule="a segment becomes FINISHED once its sidecar says that all of it is stored",
        module=f"{ROOM}.tries",
        old="    yield PutFiles({folder + SIDECAR: [encode_sidecar(topic, segment)]}, lease)\n"
        "    yield Call(FINISH)\n",
        new="    yield Call(FINISH)\n"
        "    yield PutFiles({folder + SIDECAR: [encode_sidecar(topic, segment)]}, lease)\n",
        seed=2012,
        caught_by="TR2",
    ),
    Mutant(
        name="tiering-rows-stay",
        rule="the rows of a finished segment are deleted with it",
        module=TABLES,
        old='f"DELETE FROM runs WHERE {OF_LOG} AND base_offset < ?", (*key, segment.end_offset)',
        new='f"DELETE FROM runs WHERE {OF_LOG} AND base_offset < ?", (*key, segment.start_offset)',
        seed=2012,
        caught_by="TR3",
    ),
    Mutant(
        name="tiering-segment-of-other-records",
        rule="a segment has the batches of its own runs",
        module=f"{ROOM}.plan",
        old="        taken.append(run)\n        size += run.byte_size\n    if not taken or not",
        new="        taken[:] = [*taken[-3:], run]\n        size += run.byte_size\n    if not taken or not",
        seed=2012,
        caught_by="TR2",
    ),
    mutant(
        "tiering-lease-unchecked",
        "no put begins a minute after the last word that the try stands",
        f"{ROOM}.tries",
        "        if not may_go_on(self._asked_ms, now_ms):\n",
        "        if False:\n",
        f"{TRIES}::test_no_put_begins_a_lease_after_the_last_word_that_the_try_stands",
    ),
    mutant(
        "compaction-swaps-other-offsets",
        "a segment takes the place of finished ones with exactly its offsets",
        SWAPS,
        "if made is None or len(old) != len(swap.replaced) or not tiles(made, old):",
        "if made is None:",
        f"{COMPACTION}::test_a_swap_that_leaves_offsets_out_is_refused[sqlite]",
    ),
    mutant(
        "compaction-replaces-twice",
        "no two segments take the place of the same one",
        SWAPS,
        "(by_id.pop(each) for each in swap.replaced",
        "(by_id[each] for each in swap.replaced",
        f"{COMPACTION}::test_a_swap_that_names_a_segment_twice_changes_nothing[sqlite]",
    ),
    mutant(
        "compaction-replaces-itself",
        "a segment takes the place of others, not of itself",
        SWAPS,
        "made = by_id.pop(swap.segment_id, None)",
        "made = by_id.get(swap.segment_id)",
        f"{COMPACTION}::test_a_swap_that_names_a_segment_twice_changes_nothing[sqlite]",
    ),
    mutant(
        "compaction-claim-without-end",
        "a job that takes the claim over ends all tries of the one before",
        SWAPS,
        '            self._give_up(f"claim_id < -1 AND claim_id <> {_of_try(claim_id)}", now_ms)\n',
        "",
        f"{COMPACTION}::test_one_job_holds_the_claim_until_it_is_silent[sqlite]",
    ),
    mutant(
        "compaction-size-as-before",
        "a partition's size is that of its new segments",
        SWAPS,
        "state._replace(byte_size=state.byte_size + grown)",
        "state._replace(byte_size=state.byte_size)",
        f"{COMPACTION}::test_segments_take_the_place_of_others_all_at_once[sqlite]",
    ),
    mutant(
        "compaction-forgets-too-early",
        "a tombstone stays while something of its partition waits for its removal",
        f"{ROOM}.compaction_plan",
        "all(each.is_finished and each.end_offset > start for each in held.segments)",
        "True",
        "tests/core/tiering/test_compaction_plan.py::"
        "test_tombstones_stay_while_something_waits_for_its_removal",
    ),
    mutant(
        "compaction-ends-undecided",
        "no pass of a diskless partition ends before a segment that may abort what it has read",
        f"{ROOM}.compaction_plan",
        "if taken and _ends_undecided(held, taken[-1].end_offset):",
        "if False:",
        "tests/core/tiering/test_compaction_plan.py::"
        "test_no_pass_ends_before_a_segment_that_may_abort_what_it_read",
    ),
    mutant(
        "compaction-tombstone-before-its-record",
        "a tombstone stays while another group of segments has its key",
        f"{ROOM}.compacted_segment",
        "tied = {key: FAR if each in live.alone else newest[key] for",
        "tied = {key: FAR for",
        f"{RECORDS}::"
        "test_a_tombstone_does_not_go_in_the_pass_that_removes_what_it_deletes_elsewhere",
    ),
    mutant(
        "compaction-newest-of-a-group",
        "the newest record of a key is that of the whole pass",
        f"{ROOM}.compacted_segment",
        "newest = {key: each if each in live.newest else FAR for",
        "newest = {key: each for",
        f"{RECORDS}::test_the_newest_of_each_key_stays_where_it_is",
    ),
    mutant(
        "compaction-restored-classic",
        "a restore removes only segments whose offsets compacted ones have",
        "anabranch.core.remote.superseded",
        "least = max(1, mark_of(each).generation)",
        "least = mark_of(each).generation",
        "tests/core/remote/test_superseded.py::test_segments_of_classic_topics_are_left_alone",
    ),
    mutant(
        "compaction-readers-of-what-is-gone",
        "a reader of a segment that is gone asks for the newest ones",
        "anabranch.core.diskless.partition",
        "if error.code is ErrorCode.KAFKA_STORAGE_ERROR and not self._doubted:",
        "if False:",
        "tests/core/diskless/test_compacted_tail.py::"
        "test_a_reader_goes_on_with_the_newest_segments",
    ),
    mutant(
        "compaction-lag-of-what-is-not-due",
        "a partition is behind only while a job would compact it",
        f"{ROOM}.compaction_lag",
        "    if is_worth_it(found, wanted):",
        "    if found.dirty_bytes:",
        "tests/core/tiering/test_compaction_lag.py"
        "::test_what_is_due_waits_since_its_oldest_dirty_segment_was_made",
    ),
    Mutant(
        name="compaction-old-segments-stay",
        rule="segments that others took the place of are removed in the same transaction",
        module=SWAPS,
        old='WHERE segment_id = ? AND state = ?",\n            [(REMOVED',
        new='WHERE segment_id = ? AND state <> ?",\n            [(REMOVED',
        seed=3156,
        caught_by="TR3",
    ),
    Mutant(
        name="compaction-drops-the-latest",
        rule="the latest record of each key stays in the segment that has it",
        module=f"{ROOM}.compacted_segment",
        old="newest = {key: each if each in live.newest else FAR for",
        new="newest = {key: FAR for",
        seed=3156,
        caught_by="CP2",
    ),
)
