"""Broken rules of remote logs."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

TESTS = "tests/core/remote"
SCHEDULES = f"{TESTS}/test_rounds.py::test_no_record_is_lost_and_no_garbage_stays"
PERFORMED = "tests/server/remote/test_round_performer.py"
CHECKED = "tests/sim/checks/test_remote.py"
FACTS = "tests/stores/coordinator/test_remote_facts.py"
ROOM = "anabranch.core.remote"
ROWS = "anabranch.core.controller.diskless.rows"
ROWS_TESTS = "tests/core/controller/test_diskless_rows.py"
TABLES = "anabranch.stores.coordinator.remote_tables"


def mutant(name: str, rule: str, module: str, old: str, new: str, caught_by: int | str) -> Mutant:
    """One that a test catches, or those of a seed in the random world of rounds."""
    test = caught_by if isinstance(caught_by, str) else f"{SCHEDULES}[{caught_by}]"
    return Mutant(name, rule, module, old, new, NO_SCHEDULE, test)


MUTANTS = (
    mutant(
        "remote-epochs-not-compared",
        "an offset counts where segment and log have it from the same epoch",
        f"{ROOM}.lineage",
        "Span(max(entry.start_offset, theirs.first), min(end, theirs.end))",
        "Span(entry.start_offset, end)",
        f"{TESTS}/test_lineage.py::test_what_an_unclean_election_cut_off_does_not_count",
    ),
    mutant(
        "remote-cut-by-an-older-leader",
        "only a leader that is as new as whoever copied a segment says that it was cut",
        f"{ROOM}.lineage",
        "    if max(newest, segment.leader_epoch) > lineage.leader_epoch:\n",
        "    if False:\n",
        f"{TESTS}/test_lineage.py::test_what_a_leader_cannot_judge_is_not_cut",
    ),
    mutant(
        "remote-unknown-epochs-cut",
        "what the table of epochs does not reach is kept",
        f"{ROOM}.lineage",
        " or first < lineage.known_from:",
        ":",
        f"{TESTS}/test_lineage.py::test_what_a_leader_cannot_judge_is_not_cut",
    ),
    mutant(
        "remote-cut-segments-stay",
        "a segment of which an unclean election cut all is removed",
        f"{ROOM}.log_retention",
        " or is_cut(each, lineage, log_start))",
        ")",
        f"{TESTS}/test_log_retention.py"
        "::test_segments_that_were_cut_are_removed_and_others_are_not",
    ),
    Mutant(
        name="remote-tries-count",
        rule="a local segment goes only where finished segments have its offsets",
        module=f"{ROOM}.local_log",
        old="if each.end_offset > first and each.is_finished)",
        new="if each.end_offset > first)",
        seed=105,
        caught_by="RL3",
    ),
    Mutant(
        name="remote-switched-off-and-kept",
        rule="what is remote of a log that was switched off is removed, whatever goes wrong",
        module=f"{ROOM}.rounds",
        old="    finished = tuple(each.segment_id for each in facts.segments if each.is_finished)\n",
        new="    finished = ()\n",
        seed=30121,
        caught_by="remote-garbage",
    ),
    Mutant(
        name="remote-switched-off-and-told",
        rule="a log whose remote part is given up begins where its local part does",
        module="anabranch.core.replication.replica",
        old="                self.log.forget_remote()\n",
        new="                pass\n",
        seed=30089,
        caught_by="RL5",
    ),
    mutant(
        "remote-unstable-copied",
        "a segment is copied once it ends at or below the last stable offset",
        f"{ROOM}.local_log",
        "and log_start < each.end_offset <= last_stable_offset",
        "and log_start < each.end_offset",
        f"{TESTS}/test_local_log.py"
        "::test_closed_segments_below_the_last_stable_offset_are_copied_in_order",
    ),
    mutant(
        "remote-highest-offset-counts",
        "a hole in the remote log keeps the local segment that fills it",
        f"{ROOM}.local_log",
        "        return at >= 0 and end <= self.spans[at].end\n",
        "        return at >= 0 and end <= self.spans[-1].end\n",
        f"{TESTS}/test_local_log.py::test_a_hole_is_filled_and_a_part_is_copied_as_a_whole",
    ),
    mutant(
        "remote-size-of-tries",
        "the size of a log is that of finished segments and of what is local alone",
        f"{ROOM}.log_retention",
        "        if segment.is_finished:\n            for span",
        "        if True:\n            for span",
        f"{TESTS}/test_log_retention.py::test_size_counts_finished_segments_alone",
    ),
    mutant(
        "remote-overlaps-count-twice",
        "offsets that several segments hold count once",
        f"{ROOM}.log_retention",
        "        share = each.byte_size * (each.end - first) // (each.end - each.first)\n",
        "        share = each.byte_size\n",
        f"{TESTS}/test_log_retention.py::test_what_stays_is_as_much_as_the_limit_says",
    ),
    mutant(
        "remote-clock-ahead-expires",
        "one clock that runs ahead expires nothing early",
        f"{ROOM}.log_retention",
        "    return min(own_ms, coordinators_ms)\n",
        "    return max(own_ms, coordinators_ms)\n",
        3,
    ),
    mutant(
        "remote-uncommitted-expires",
        "retention takes nothing above the high watermark",
        f"{ROOM}.log_retention",
        "each.end > high_watermark or ",
        "",
        f"{TESTS}/test_log_retention.py::test_nothing_above_the_high_watermark_goes",
    ),
    Mutant(
        name="remote-removal-over-at-once",
        rule="a removal is over once any put of the try has ended",
        module=f"{ROOM}.unfinished",
        old="        return now_ms - self._since_ms.get(segment_id, now_ms) >= PUTS_END_MS\n",
        new="        return True\n",
        seed=121,
        caught_by="RL1",
    ),
    mutant(
        "remote-try-without-lease",
        "a try begins no request once the last yes is a lease old",
        f"{ROOM}.unfinished",
        "    return now_ms - asked_ms < LEASE_MS\n",
        "    return True\n",
        f"{TESTS}/test_unfinished.py::test_a_try_goes_on_for_a_lease_after_the_last_yes",
    ),
    mutant(
        "remote-own-tries-stay",
        "a leader gives up a try that an earlier life of its process began",
        f"{ROOM}.unfinished",
        "        and each.leader_epoch <= leader_epoch\n",
        "        and each.leader_epoch < leader_epoch\n",
        f"{TESTS}/test_unfinished.py::test_a_leader_gives_up_what_it_does_not_copy_itself",
    ),
    mutant(
        "remote-running-given-up",
        "a leader does not give up what it copies",
        f"{ROOM}.unfinished",
        "        and each.segment_id not in running\n",
        "",
        f"{TESTS}/test_unfinished.py::test_a_leader_gives_up_what_it_does_not_copy_itself",
    ),
    mutant(
        "remote-sidecar-first",
        "the sidecar is put once all other objects are there",
        f"{ROOM}.keys",
        "    return [*file_names(segment, has_aborted=segment.has_aborted), SIDECAR]\n",
        "    return [SIDECAR, *file_names(segment, has_aborted=segment.has_aborted)]\n",
        f"{TESTS}/test_sidecar.py::test_the_sidecar_is_put_last_and_deleted_first",
    ),
    Mutant(
        name="remote-upload-before-fact",
        rule="the coordinator knows of a try before the store does",
        module=f"{ROOM}.segment_copy",
        old="        asked_ms: int = yield StartSegment(segment)\n"
        "        yield UploadFiles(segment, asked_ms)\n",
        new="        yield UploadFiles(segment, 1 << 60)\n        yield StartSegment(segment)\n",
        seed=105,
        caught_by="RL1",
    ),
    Mutant(
        name="remote-deletes-before-fact",
        rule="a log start is recorded, with what it removes, before an object is deleted",
        module=f"{ROOM}.rounds",
        old="        yield BeginRemoval(of.key, of.leader_epoch, log_start, gone, left)\n",
        new="        doomed = [each for each in facts.segments if each.segment_id in gone]\n"
        "        for each in doomed:\n"
        '            yield DeleteObjects(tuple(object_keys(of.cluster_id, each)), "none")\n'
        "        yield BeginRemoval(of.key, of.leader_epoch, log_start, gone, left)\n",
        seed=153,
        caught_by="RL1",
    ),
    mutant(
        "remote-older-leader-finishes",
        "an older leader is refused once a newer one has asked",
        TABLES,
        "        if leader_epoch < newest:\n",
        "        if False:\n",
        f"{FACTS}::test_an_older_leader_is_refused_once_a_newer_one_has_asked[sqlite]",
    ),
    mutant(
        "remote-given-up-finishes",
        "a try that was given up is never finished",
        TABLES,
        "        if found is None or found.state not in (STARTED, FINISHED):\n",
        "        if found is None:\n",
        f"{FACTS}::test_a_try_that_was_given_up_is_never_finished[sqlite]",
    ),
    mutant(
        "remote-finished-given-up",
        "a try that has finished meanwhile is not given up",
        TABLES,
        "((FINISHED, finished), (STARTED, given_up))",
        "((FINISHED, finished), (STARTED, given_up), (FINISHED, given_up))",
        f"{FACTS}::test_a_try_that_has_finished_meanwhile_is_not_given_up[sqlite]",
    ),
    mutant(
        "remote-log-start-goes-back",
        "a log start only rises",
        TABLES,
        "            if log_start > recorded:\n",
        "            if log_start != recorded:\n",
        f"{FACTS}::test_a_log_start_only_rises_and_each_partition_has_its_own[sqlite]",
    ),
    mutant(
        "remote-deleted-topic-comes-back",
        "a deleted topic has no leader any more",
        TABLES,
        '        self._on.do("DELETE FROM remote_logs WHERE topic_id = ?", (topic_id,))\n',
        "",
        f"{FACTS}::test_a_deleted_topic_ends_tries_and_leaves_its_segments_to_be_removed[sqlite]",
    ),
    mutant(
        "remote-snapshot-of-the-start",
        "a segment's snapshot is that of the producers at its end",
        f"{ROOM}.segment_files",
        "_snapshot(log, local.end_offset),",
        "_snapshot(log, local.start_offset),",
        f"{TESTS}/test_segment_files.py::test_each_segment_is_described_by_what_is_in_it[0]",
    ),
    mutant(
        "remote-changed-segment-described",
        "a segment that is no longer as it was is not copied",
        f"{ROOM}.segment_files",
        "    return found if is_same else None\n",
        "    return found\n",
        f"{TESTS}/test_segment_files.py"
        "::test_a_segment_that_is_no_longer_as_it_was_is_not_described",
    ),
    mutant(
        "remote-copies-faster",
        "over any time copies read at most the rate times that time, and a second's bytes",
        f"{ROOM}.copy_pace",
        "        begin = max(self._used_until_ms, now_ms - BURST_MS)\n",
        "        begin = self._used_until_ms\n",
        f"{TESTS}/test_copy_pace.py::test_a_second_is_ahead_and_then_bytes_are_earned",
    ),
    mutant(
        "remote-lease-from-the-answer",
        "a lease is as old as the question that was answered with yes",
        f"{ROOM}.segment_upload",
        "                self._asked_ms = now_ms\n",
        "                self._asked_ms = self._clock()\n",
        "tests/server/remote/test_segment_upload.py"
        "::test_a_lease_is_as_old_as_the_question_not_the_answer",
    ),
    mutant(
        "remote-damaged-segment-restored",
        "a restore takes no segment of which an object is gone",
        f"{ROOM}.restored_facts",
        "    missing = [name for name in names if name not in held]\n",
        "    missing: list[str] = []\n",
        f"{TESTS}/test_restored_facts.py"
        "::test_a_segment_of_which_something_is_gone_is_named_and_kept",
    ),
    mutant(
        "remote-changes-not-told",
        "a reader that asks for what has changed knows as much as one that asks for all",
        TABLES,
        "        is_whole = known < forgotten or not 0 <= known <= newest\n",
        "        is_whole = not 0 <= known <= newest\n",
        "tests/stores/coordinator/test_remote_facts.py"
        "::test_who_asks_for_what_has_changed_knows_as_much_as_who_asks_for_all",
    ),
    mutant(
        "remote-retention-looks-at-all",
        "retention by age alone looks at no more of a log than what goes",
        f"{ROOM}.log_retention",
        "    if has_size:\n",
        "    if True:\n",
        f"{TESTS}/test_log_retention.py"
        "::test_of_a_long_log_little_is_looked_at_where_age_alone_is_limited",
    ),
    mutant(
        "remote-all-facts-read",
        "of a partition with many segments what has changed is read",
        TABLES,
        "        segments = self._segments(key) if is_whole else self._new(key, known)\n",
        "        is_whole = True\n        segments = self._segments(key)\n",
        "tests/stores/coordinator/test_remote_facts.py"
        "::test_little_is_read_of_a_partition_with_many_segments",
    ),
    mutant(
        "remote-many-segments-on-the-loop",
        "what is due of many segments is worked out beside the loop",
        "anabranch.server.remote.round_performer",
        "        return self._count > MOST_ON_LOOP\n",
        "        return False\n",
        f"{PERFORMED}::test_a_round_of_many_segments_holds_no_loop_up",
    ),
    mutant(
        "remote-damaged-sidecar-removed",
        "a restore has nothing deleted whose description is damaged",
        f"{ROOM}.restored_facts",
        "        if problem:\n",
        "        if problem and isinstance(told, Described):\n",
        f"{TESTS}/test_restored_facts.py"
        "::test_a_damaged_sidecar_is_named_and_nothing_deletes_its_folder",
    ),
    mutant(
        "remote-sidecar-of-a-cut-log",
        "the log is looked at for cuts before the sidecar says that a folder is whole",
        f"{ROOM}.segment_upload",
        "            _refuse_cut(files, cuts())\n",
        "            pass\n",
        "tests/server/remote/test_segment_upload.py::"
        "test_a_log_that_is_cut_at_any_time_leaves_no_sidecar_of_what_was_read_later[0]",
    ),
    mutant(
        "remote-leftovers-not-restored",
        "a restore has the next leader delete what a try has left",
        f"{ROOM}.restored_facts",
        "            segment = _leftover(*whose, held)\n",
        "            continue\n",
        f"{TESTS}/test_restored_facts.py::test_what_a_try_or_a_removal_has_left_is_removed",
    ),
    mutant(
        "remote-late-leader-of-a-deleted-topic",
        "the coordinator hears of each deleted topic, so that no late leader begins a remote log",
        ROWS,
        "                    self._deleted[topic.topic_id] = None\n",
        "                    pass\n",
        f"{ROWS_TESTS}::test_remote_logs_end_with_their_topics_and_no_other_does[1]",
    ),
    mutant(
        "remote-log-of-a-living-topic-ends",
        "only the remote logs of topics that the metadata does not have end",
        ROWS,
        "        return has_remote and self._image.topic_by_id(topic_id) is None\n",
        "        return has_remote\n",
        f"{ROWS_TESTS}::test_remote_logs_end_with_their_topics_and_no_other_does[0]",
    ),
    mutant(
        "remote-follower-of-another-history-drops",
        "a follower drops what segments of its own epochs hold",
        f"{ROOM}.rounds",
        "    coverage = covered(facts, view)\n"
        "    yield from _shorten(key, facts, view, coverage, view.log_start)\n",
        "    held = Coverage((), view.lineage)\n"
        "    held.holds = lambda first, end: True  # type: ignore[method-assign]\n"
        "    yield from _shorten(key, facts, view, held, view.log_start)\n",
        "tests/server/remote/test_round_performer.py"
        "::test_a_follower_drops_what_segments_of_its_own_epochs_hold",
    ),
    mutant(
        "remote-start-of-a-lost-history",
        "a log start that was recorded before an unclean election deletes nothing that is new",
        TABLES,
        "            log_start = kept_start(log_start, epochs, newest)\n",
        "            kept_start(log_start, epochs, newest)\n",
        "tests/stores/coordinator/test_remote_facts.py"
        "::test_what_was_written_after_the_leader_that_asked_before_is_not_deleted",
    ),
    Mutant(
        name="remote-start-above-the-high-watermark",
        rule="a local log begins no later than what its leader knows to be committed",
        module=f"{ROOM}.rounds",
        old="    committed_start = min(facts.log_start, view.high_watermark)\n",
        new="    committed_start = facts.log_start\n",
        seed=1401,
        caught_by="L1",
    ),
    mutant(
        "remote-first-read-too-short",
        "the first record of a cold segment takes two reads of the store",
        f"{ROOM}.tail",
        "self._headers(stretch, start, most + before)",
        "self._headers(stretch, start, most)",
        f"{TESTS}/test_tail.py::test_a_record_of_a_cold_segment_takes_two_reads_and_then_one",
    ),
    mutant(
        "remote-cut-objects-pass",
        "verify names a segment whose batches are not as many bytes as were copied",
        f"{ROOM}.segment_check",
        "        if held != segment.byte_size:\n",
        "        if held > segment.byte_size:\n",
        f"{TESTS}/test_segment_check.py::test_any_store_is_compared_object_by_object",
    ),
    mutant(
        "remote-exported-ends-exclusive",
        "exported records have Kafka's inclusive ends",
        f"{ROOM}.metadata_records",
        "end_offset=segment.end_offset - 1",
        "end_offset=segment.end_offset",
        f"{TESTS}/test_metadata_records.py::test_a_segment_is_told_as_kafka_does",
    ),
    mutant(
        "remote-restored-before-diskless",
        "a coordinator is not restored where diskless records would be forgotten",
        "anabranch.stores.objects.remote_verification",
        "if has_objects and not await",
        "if False and not await",
        "tests/cli/test_remote.py::test_a_store_with_diskless_records_is_restored_in_order",
    ),
    mutant(
        "remote-damage-not-counted",
        "an object that is not what was written counts as an error of a read",
        "anabranch.core.remote.cache",
        "        self.on_damaged(object_key, why)\n",
        "",
        "tests/bad_input/test_bad_remote.py::test_a_remote_segment_that_is_cut_changed_or_gone",
    ),
    mutant(
        "remote-log-disabled-without-leave",
        "what is remote is deleted only if the topic's owner says so",
        f"{ROOM}.topics",
        " and not is_true(values.get(DELETES)):",
        " and False:",
        f"{TESTS}/test_topics.py::test_a_remote_log_is_given_up_only_with_leave_to_delete_it",
    ),
    mutant(
        "remote-controller-without-the-switch",
        "a controller that lacks what remote topics need says so when it starts",
        "anabranch.server.unserved",
        "        if self._said is not None and (delta",
        "        if (delta",
        "tests/server/test_unserved.py::test_the_first_look_says_it_and_a_second_one_does_not",
    ),
    mutant(
        "remote-topics-without-a-store-served",
        "a node without a remote store serves no topic that needs one",
        f"{ROOM}.topics",
        "    if broker.remote_log_storage_system_enable:\n",
        "    if True:\n",
        f"{TESTS}/test_topics.py"
        "::test_a_node_without_a_remote_store_names_the_topics_that_need_one",
    ),
    mutant(
        "remote-log-that-is-over-stays",
        "the leader removes a remote log that was switched off",
        f"{ROOM}.rounds",
        "    finished = tuple(each.segment_id for each in facts.segments if each.is_finished)\n",
        "    finished = ()\n",
        f"{PERFORMED}::test_a_remote_log_that_is_over_is_removed_and_its_log_start_recorded",
    ),
    mutant(
        "remote-log-start-guessed",
        "a log start that no checkpoint has is told by the facts",
        "anabranch.core.log.recovery",
        "        log.start_is_assumed = log_start_offset == NOT_NOTED and ",
        "        log.start_is_assumed = False and ",
        f"{PERFORMED}::test_a_lost_checkpoint_of_log_starts_removes_no_remote_segment",
    ),
    mutant(
        "remote-whole-segments-cleared-up",
        "a whole segment that no fact names is kept",
        f"{ROOM}.leftovers",
        "            if each.is_whole:\n",
        "            if False:\n",
        f"{TESTS}/test_leftovers.py::test_any_listings",
    ),
    mutant(
        "remote-leftovers-by-one-look",
        "a folder that no fact names is listed by itself before it goes",
        f"{ROOM}.leftovers",
        "        may_go = not is_whole(listed)\n",
        "        may_go = True\n",
        f"{TESTS}/test_leftovers.py"
        "::test_a_folder_in_two_windows_is_listed_by_itself_before_it_goes",
    ),
    mutant(
        "remote-reads-at-any-rate",
        "remote reads keep to their quota",
        "anabranch.server.remote.remote_reads",
        "        if wait_ms > 0:\n",
        "        if False:\n",
        "tests/server/remote/test_remote_reads.py"
        "::test_reads_keep_to_the_brokers_rate_which_may_change",
    ),
    mutant(
        "remote-log-not-begun-anew",
        "a log with a remote part that begins anew is seen to, wherever it begins for its readers",
        "anabranch.sim.checks.replicas",
        "    return NOT_SEEN < copy.cut_to < max(copy.start, 1)\n",
        "    return copy.cut_to == 0\n",
        "tests/sim/checks/test_logs.py::test_a_log_start_may_go_back_under_a_leader_who_has_less",
    ),
    mutant(
        "remote-lost-batches-asked-for",
        "what an unclean election had lost when it was removed is asked for of no later log",
        "anabranch.sim.checks.remote",
        "        needed = [each for each in needed if (key, each) not in self._cut]\n",
        "",
        f"{CHECKED}::test_what_an_unclean_election_had_lost_is_asked_for_of_no_later_log",
    ),
    mutant(
        "remote-committed-batches-forgiven",
        "what is committed when its segment is removed is asked for, whatever elections there were",
        "anabranch.sim.checks.remote",
        " for each in some if not truth.holds(each)}",
        " for each in some}",
        f"{CHECKED}::test_what_is_committed_is_asked_for_also_after_an_unclean_election",
    ),
    mutant(
        "remote-late-puts-leapt-over",
        "no clock of a simulated cluster leaps over the end of puts while one is on its way",
        "anabranch.sim.remote_run",
        "            self.world.run(self.world.now_us + MOST_LATE_US)",
        "            self.world.run(self.world.now_us)",
        f"{CHECKED}::test_no_clock_leaps_over_the_end_of_puts_while_one_is_on_its_way",
    ),
)
