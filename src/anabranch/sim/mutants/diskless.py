"""Broken rules of the data path of diskless topics."""

from __future__ import annotations

from anabranch.sim.mutants.mutant import NO_SCHEDULE, Mutant

ADMISSION_TESTS = "tests/core/diskless/test_admission.py"
COLLECTING_TESTS = "tests/server/objects/test_garbage_collector.py"
DATA_PATH_TESTS = "tests/core/diskless/test_data_path.py"
DEPOSED_TESTS = "tests/core/diskless/test_deposed.py"
DISKLESS = "anabranch.core.diskless"
GARBAGE_ROUND = "anabranch.core.diskless.garbage_round"
GARBAGE_ROUNDS_TESTS = "tests/core/diskless/test_garbage_rounds.py"
GUESSING = "tests/core/diskless/test_guessing.py"
ROUNDS_TESTS = "tests/core/diskless/test_retention_rounds.py"
TOPICS_TESTS = "tests/core/controller/test_diskless_topics.py"

MUTANTS = (
    Mutant(
        name="spelling-makes-a-topic-classic",
        rule="diskless.enable is read as every boolean is",
        module=f"{DISKLESS}.topics",
        old="    return is_true(own.get(DISKLESS))\n",
        new='    return own.get(DISKLESS) == "true"\n',
        seed=NO_SCHEDULE,
        caught_by=f"{TOPICS_TESTS}::test_a_log_that_has_another_spelling_of_true_keeps_the_rows",
    ),
    Mutant(
        name="spelling-of-true-is-kept",
        rule="a change keeps diskless.enable spelled as at creation",
        module="anabranch.core.controller.configs",
        old="        values = unchanged(name, before, values, broker)\n",
        new="        unchanged(name, before, values, broker)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TOPICS_TESTS}"
        "::test_another_spelling_of_true_leaves_the_kind_and_the_rows_alone",
    ),
    Mutant(
        name="lost-offsets-hold-a-reader",
        rule="a reader passes over offsets that a restore has left out",
        module=f"{DISKLESS}.coordinates",
        old="        if runs[0].base_offset > offset:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_coordinates.py"
        "::test_a_reader_passes_over_offsets_that_are_lost",
    ),
    Mutant(
        name="ids-of-another-epoch-used",
        rule="object ids are used only in the epoch in which they were requested",
        module=f"{DISKLESS}.writer",
        old="        if self.prepares_for != self.identity.broker_epoch:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}"
        "::test_ids_that_were_asked_for_before_a_new_registration_are_not_used",
    ),
    Mutant(
        name="silent-watch-hides-records",
        rule="a silent watch hides records until the next measurement at most",
        module=f"{DISKLESS}.broker",
        old="            if partition is not None and state is not None:\n"
        "                self._take(partition, state)\n\n"
        "    def watch_broken",
        new="            pass\n\n    def watch_broken",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}"
        "::test_a_watch_that_tells_nothing_is_made_good_by_the_next_measurement",
    ),
    Mutant(
        name="fetch-waits-until-all-is-there",
        rule="a fetch answers with what it has before the cache drops it again",
        module="anabranch.core.api.fetch_pass",
        old="            if not self.may_leave_out(found, now_ms):\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_a_fetch_ends_however_little_stays_in_memory",
    ),
    Mutant(
        name="slow-store-read-without-a-bound",
        rule="reads under way bring no more bytes than one write buffer",
        module=f"{DISKLESS}.read_lanes",
        old="            if self.under_way and self._bytes_under_way + size_bytes"
        " > MOST_LANE_BYTES:\n",
        new="            if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_reader.py"
        "::test_reads_that_would_bring_too_much_wait_for_earlier_ones",
    ),
    Mutant(
        name="whole-object-in-one-read",
        rule="a read is small enough to end in time on a slow link",
        module=f"{DISKLESS}.read_lanes",
        old="        if part and size_bytes > MOST_READ_BYTES:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_reader.py"
        "::test_what_lies_side_by_side_is_read_in_parts",
    ),
    Mutant(
        name="slow-store-read-twice",
        rule="only some of the reads that are late are made twice",
        module="anabranch.server.diskless.shell",
        old="        if not done and hedges.left > 0:\n",
        new="        if not done:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/server/diskless/test_shell.py"
        "::test_only_some_of_the_calls_that_are_late_are_made_twice",
    ),
    Mutant(
        name="answers-copied-from-the-cache",
        rule="a large batch is sent from the cache and not copied for each reader",
        module=f"{DISKLESS}.answer_buffers",
        old="is_large = len(self._joined), len(view) >= JOINED_BYTES",
        new="is_large = len(self._joined), False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_answer_buffers.py"
        "::test_large_batches_are_not_copied_and_the_cache_is_not_written_to",
    ),
    Mutant(
        name="unlimited-not-looked-over",
        rule="rows before a DeleteRecords offset are dropped even if retention has no limit",
        module=f"{DISKLESS}.retention",
        old="        older_than_ms = UNLIMITED if",
        new="        if kept_ms < 0 and most_bytes < 0:\n            continue\n"
        "        older_than_ms = UNLIMITED if",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_retention.py"
        "::test_what_was_deleted_by_hand_leaves_no_rows_and_no_objects[-1]",
    ),
    Mutant(
        name="compacted-by-default-deleted",
        rule="retention deletes nothing if the cleanup policy lacks delete",
        module=f"{DISKLESS}.retention",
        old='        if "delete" not in settings.cleanup_policy:',
        new="        if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_retention.py"
        "::test_nothing_is_deleted_where_the_brokers_default_says_not_to_delete",
    ),
    Mutant(
        name="diskless-told-before-the-verdict",
        rule="a broker answers a diskless batch when it knows the result of the commit",
        module=f"{DISKLESS}.partition",
        old="        return ticket.code\n",
        new="        return ErrorCode.NONE\n",
        seed=100,
        caught_by="lost-write",
    ),
    Mutant(
        name="diskless-refused-object-told-as-taken",
        rule="batches of a refused object are not acknowledged",
        module=f"{DISKLESS}.writer",
        old="            self.counts.refused += 1\n"
        "            self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)\n",
        new="            self._give_up(upload, ErrorCode.NONE)\n",
        seed=116,
        caught_by="lost-write",
    ),
    Mutant(
        name="diskless-committed-while-it-is-put",
        rule="no object is committed before the store has all of it",
        module=f"{DISKLESS}.writer",
        old="if self.uploads and self.uploads[0].stage is Stage.STORED:",
        new="if self.uploads and self.uploads[0].stage in (Stage.STORED, Stage.PUTTING):",
        seed=108,
        caught_by="D2",
    ),
    Mutant(
        name="diskless-failed-put-committed",
        rule="an object whose put finally failed is not committed",
        module=f"{DISKLESS}.writer",
        old="        elif upload.attempts < PUT_ATTEMPTS - 1:\n",
        new="        elif upload.attempts:\n            self._put(upload, None, now_ms)\n"
        "        elif upload.attempts < PUT_ATTEMPTS - 1:\n",
        seed=180,
        caught_by="D2",
    ),
    Mutant(
        name="diskless-objects-overtake-each-other",
        rule="an object waits for those that its broker cut before it",
        module=f"{DISKLESS}.writer",
        old="        if self.uploads and self.uploads[0].stage is Stage.STORED:\n"
        "            upload = self.uploads[0]\n",
        new="        upload = next((u for u in self.uploads if u.stage is Stage.STORED), None)\n"
        "        if upload is not None:\n",
        seed=204,
        caught_by="D5",
    ),
    Mutant(
        name="diskless-acknowledged-before-its-commit",
        rule="a diskless batch is acknowledged when its commit is known",
        module=f"{DISKLESS}.partition",
        old="        return ticket.code\n",
        new="        return ErrorCode.NONE\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_nothing_is_acknowledged_before_its_commit_is_known",
    ),
    Mutant(
        name="diskless-commit-before-the-put-ended",
        rule="an object is committed after its put has ended",
        module=f"{DISKLESS}.writer",
        old="if self.uploads and self.uploads[0].stage is Stage.STORED:",
        new="if self.uploads and self.uploads[0].stage in (Stage.STORED, Stage.PUTTING):",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_nothing_is_acknowledged_before_its_commit_is_known",
    ),
    Mutant(
        name="diskless-objects-overtake",
        rule="objects of one broker are committed in the order in which they were cut",
        module=f"{DISKLESS}.writer",
        old="        if self.uploads and self.uploads[0].stage is Stage.STORED:\n"
        "            upload = self.uploads[0]\n",
        new="        upload = next((u for u in self.uploads if u.stage is Stage.STORED), None)\n"
        "        if upload is not None:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_objects_are_committed_in_the_order_in_which_they_were_cut",
    ),
    Mutant(
        name="diskless-unknown-commit-repeated",
        rule="the outcome of an unanswered commit is looked up, and the commit not repeated "
        "blindly",
        module=f"{DISKLESS}.writer",
        old="        upload.stage = Stage.ASKING\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_a_commit_without_an_answer_is_looked_up_and_counts_once[True]",
    ),
    Mutant(
        name="diskless-unknown-commit-given-up",
        rule="an unanswered commit is not a refusal",
        module=f"{DISKLESS}.writer",
        old="        upload.stage = Stage.ASKING\n        upload.retry(now_ms)\n",
        new="        self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_a_commit_without_an_answer_is_looked_up_and_counts_once[True]",
    ),
    Mutant(
        name="diskless-watch-missed-for-good",
        rule="changes that a broken watch may have missed are requested when it works again",
        module=f"{DISKLESS}.broker",
        old="        self.reading.want_states(self.by_key)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_what_a_broken_watch_missed_is_asked_for_when_it_goes_again",
    ),
    Mutant(
        name="diskless-guess-by-plain-numbers",
        rule="a restore appends batches in their producer's order, even if sequence numbers wrap",
        module=f"{DISKLESS}.guessed_offsets",
        old="(sequence - origin + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2",
        new="sequence - origin",
        seed=NO_SCHEDULE,
        caught_by=f"{GUESSING}::test_a_producers_batches_keep_their_order[0-2147483646]",
    ),
    Mutant(
        name="diskless-guess-mixes-epochs",
        rule="a restore appends batches in the order of their producer's epochs",
        module=f"{DISKLESS}.guessed_offsets",
        old="        return batch.producer_epoch, _distance",
        new="        return 0, _distance",
        seed=NO_SCHEDULE,
        caught_by=f"{GUESSING}::test_a_producers_batches_keep_their_order[0-5]",
    ),
    Mutant(
        name="diskless-missed-changes-asked-for-once",
        rule="changes that a broken watch may have missed are requested until there is an answer",
        module=f"{DISKLESS}.broker",
        old="                self._ask_missed_ms = now_ms + MISSED_MS\n",
        new="                pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_what_a_broken_watch_missed_is_asked_for_until_it_is_answered[1]",
    ),
    Mutant(
        name="diskless-failed-put-kept",
        rule="an object whose put failed is handed to garbage collection at once",
        module=f"{DISKLESS}.writer",
        old="            self._effects.append(RefuseObjects((upload.prepared.object_id,)))\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_a_put_that_fails_for_good_frees_its_id_and_later_ones_go_on",
    ),
    Mutant(
        name="diskless-gap-told-at-once",
        rule="a gap of sequence numbers is reported only after a wait",
        module=f"{DISKLESS}.gaps",
        old="        return verdict.code if is_over else GAP\n",
        new="        return verdict.code\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_a_gap_of_sequences_is_waited_for_before_it_is_told",
    ),
    Mutant(
        name="diskless-buffer-without-a-bound",
        rule="producers are not read while too much data waits for the store",
        module=f"{DISKLESS}.writer",
        old="        if self.waiting_bytes + arriving_bytes < CROWDED_BUFFERS * most_bytes:\n",
        new="        if True:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_what_waits_is_bounded_and_producers_are_held_up",
    ),
    Mutant(
        name="diskless-retention-in-one-list",
        rule="retention looks at partitions page by page",
        module=f"{DISKLESS}.retention_rounds",
        old="limits = to_look_over(broker.image, broker.broker_id, broker.config, wall_ms)",
        new="limits = iter([*to_look_over(broker.image, broker.broker_id, broker.config, 0)])",
        seed=NO_SCHEDULE,
        caught_by=f"{ROUNDS_TESTS}::test_partitions_are_looked_at_a_page_at_a_time",
    ),
    Mutant(
        name="diskless-retention-once-a-partition",
        rule="retention asks again while a partition may have more to delete",
        module=f"{DISKLESS}.retention_rounds",
        old="    while deleted >= MOST_RUNS:\n",
        new="    if deleted:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{ROUNDS_TESTS}::test_a_round_deletes_all_that_may_go_unless_a_call_fails",
    ),
    Mutant(
        name="diskless-retention-ends-with-a-fault",
        rule="rounds of retention go on after one that failed",
        module=f"{DISKLESS}.retention_rounds",
        old="            yield RoundEnded(fault)\n",
        new="            yield RoundEnded(fault)\n            return\n",
        seed=NO_SCHEDULE,
        caught_by=f"{ROUNDS_TESTS}::test_a_round_that_failed_is_followed_by_the_next_one",
    ),
    Mutant(
        name="diskless-retention-in-hash-order",
        rule="the order of simulated calls of retention does not depend on hashes",
        module=f"{DISKLESS}.retention_rounds",
        old="        for each in sorted(limits):",
        new="        for each in limits:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROUNDS_TESTS}::test_where_no_sizes_are_asked_for_partitions_go_by_key",
    ),
    Mutant(
        name="garbage-rounds-out-of-turn",
        rule="a broker collects garbage when it is its turn",
        module=f"{DISKLESS}.garbage_rounds",
        old="        if kept.due_ms(*turn) <= turn.now_ms:\n",
        new="        if True:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{GARBAGE_ROUNDS_TESTS}::test_rounds_begin_at_the_brokers_turn",
    ),
    Mutant(
        name="failed-garbage-round-comes-again-late",
        rule="a round of garbage collection that failed comes again soon",
        module=f"{DISKLESS}.garbage_rounds",
        old="        kept.failed(now.now_ms)\n",
        new="        kept.ended(now.now_ms, turn.brokers, 0)\n",
        seed=NO_SCHEDULE,
        caught_by=GARBAGE_ROUNDS_TESTS
        + "::test_a_round_whose_call_failed_ends_and_comes_again_soon[0]",
    ),
    Mutant(
        name="deposed-broker-asks-on",
        rule="a broker that the coordinator has deposed stops asking for its epoch",
        module=f"{DISKLESS}.admission",
        old="            yield Refused(epoch, DEPOSED.format(fault))\n            return\n",
        new="            yield Refused(epoch, DEPOSED.format(fault))\n",
        seed=NO_SCHEDULE,
        caught_by=f"{ADMISSION_TESTS}::test_it_asks_until_the_epoch_is_known_or_never_will_be",
    ),
    Mutant(
        name="deposed-broker-keeps-batches",
        rule="batches fail at once when the coordinator refuses their broker's epoch",
        module=f"{DISKLESS}.writer",
        old="        self.drop(self.buffer.take_older(NEVER_MS), code)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DEPOSED_TESTS}::test_a_broker_that_was_never_admitted_keeps_nothing",
    ),
    Mutant(
        name="deposed-by-an-older-epoch",
        rule="a refusal of an epoch that is over fails no batch",
        module=f"{DISKLESS}.broker",
        old="        if broker_epoch != self._broker.broker_epoch:\n            return\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DEPOSED_TESTS}::test_the_refusal_of_an_epoch_that_is_over_fails_nothing",
    ),
    Mutant(
        name="admitted-by-an-older-epoch",
        rule="a broker writes diskless records only by its newest epoch",
        module=f"{DISKLESS}.admission",
        old="            if epoch == broker.broker_epoch:\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{ADMISSION_TESTS}::test_it_asks_until_the_epoch_is_known_or_never_will_be",
    ),
    Mutant(
        name="diskless-arriving-requests-take-no-room",
        rule="bytes of incomplete requests count towards what may wait for the store",
        module=f"{DISKLESS}.writer",
        old="min(arriving_bytes, (CROWDED_BUFFERS - ROOMY_BUFFERS) * most_bytes)",
        new="0",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_what_has_partly_arrived_takes_room_but_never_all_of_it",
    ),
    Mutant(
        name="diskless-found-runs-trimmed",
        rule="positions found for a reader far behind are kept until they are read",
        module=f"{DISKLESS}.coordinates",
        old=" and len(near.runs) <= MOST_JOINED:\n",
        new=":\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_coordinates.py"
        "::test_readers_that_begin_ever_further_back_get_on",
    ),
    Mutant(
        name="diskless-patience-ends-late",
        rule="work is done at its due time, so that no timer fires forever",
        module=f"{DISKLESS}.buffer",
        old="since_ms <= than_ms",
        new="since_ms < than_ms",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::"
        "test_what_is_due_at_a_time_is_not_due_any_more_after_a_step_at_that_time",
    ),
    Mutant(
        name="index-checksum-not-checked",
        rule="an index whose checksum is wrong is not read",
        module="anabranch.core.diskless.layout",
        old="    if crc != crc32c(held[len(index) + _CRC.size :], crc32c(index)):\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_layout.py"
        "::test_any_changed_byte_of_header_index_or_footer_is_noticed",
    ),
    Mutant(
        name="garbage-without-grace",
        rule="an object without rows stays for the grace period",
        module=GARBAGE_ROUND,
        old="FindDeletable(rounds.pace.grace_ms, ",
        new="FindDeletable(0, ",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}::test_an_object_without_rows_goes_after_the_grace",
    ),
    Mutant(
        name="listing-deletes-what-is-prepared",
        rule="garbage collection by listing deletes no object that the coordinator knows",
        module=GARBAGE_ROUND,
        old="(yield FindUnknown(old)) if old else []",
        new="old",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}::test_what_a_living_broker_has_prepared_is_never_deleted",
    ),
    Mutant(
        name="listing-deletes-of-a-lost-database",
        rule="garbage collection by listing deletes only objects that this database named",
        module=GARBAGE_ROUND,
        old="orphans = [key for key in unknown if is_ours(key, mark)]",
        new="orphans = unknown",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}"
        "::test_an_old_object_that_nobody_knows_goes_when_this_database_named_it",
    ),
    Mutant(
        name="object-forgotten-before-it-is-deleted",
        rule="the coordinator forgets an object after the store has deleted it",
        module=GARBAGE_ROUND,
        old="            gone = set((yield DeleteObjects([key for _, key in waiting])))\n",
        new="            yield ForgetObjects([number for number, _ in waiting])\n"
        "            gone = set((yield DeleteObjects([key for _, key in waiting])))\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COLLECTING_TESTS}::test_a_deletion_that_failed_is_done_again",
    ),
)
