"""Broken rules of the diskless data path, each caught by a test that is named.

Not here: how a mutant is made (`mutants.py`).
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

NO_SCHEDULE = -1
ROOM = "anabranch.core.diskless"
TESTS = "tests/core/diskless/test_data_path.py"
GUESSING = "tests/core/diskless/test_guessing.py"
ROWS = "tests/core/controller/test_diskless_rows.py"

DATA_PATH = (
    Mutant(
        name="diskless-acknowledged-before-its-commit",
        rule="a diskless batch is acknowledged when its commit is known",
        module=f"{ROOM}.partition",
        old="        return ticket.code\n",
        new="        return ErrorCode.NONE\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_nothing_is_acknowledged_before_its_commit_is_known",
    ),
    Mutant(
        name="diskless-commit-before-the-put-ended",
        rule="an object is committed when it lies in the store",
        module=f"{ROOM}.writing",
        old="if self.uploads and self.uploads[0].stage is Stage.STORED:",
        new="if self.uploads and self.uploads[0].stage in (Stage.STORED, Stage.PUTTING):",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_nothing_is_acknowledged_before_its_commit_is_known",
    ),
    Mutant(
        name="diskless-another-s-object-taken-for-its-own",
        rule="a name that is taken is another object's, whatever became of earlier attempts",
        module=f"{ROOM}.writing",
        old="        if isinstance(fault, ObjectTaken):  # it is another's, and stays\n",
        new="        if isinstance(fault, ObjectTaken) and upload.attempts:\n"
        "            self._put(upload, None, now_ms)\n"
        "        elif isinstance(fault, ObjectTaken):\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_an_object_of_another_is_not_taken_for_its_own_and_stays[1]",
    ),
    Mutant(
        name="diskless-objects-overtake",
        rule="objects of one broker are committed in the order in which they were cut",
        module=f"{ROOM}.writing",
        old="        if self.uploads and self.uploads[0].stage is Stage.STORED:\n"
        "            upload = self.uploads[0]\n",
        new="        upload = next((u for u in self.uploads if u.stage is Stage.STORED), None)\n"
        "        if upload is not None:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_objects_are_committed_in_the_order_in_which_they_were_cut",
    ),
    Mutant(
        name="diskless-unknown-commit-repeated",
        rule="a commit without an answer is asked for, and not made again blindly",
        module=f"{ROOM}.writing",
        old="        upload.stage = Stage.ASKING\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_a_commit_without_an_answer_is_looked_up_and_counts_once[True]",
    ),
    Mutant(
        name="diskless-unknown-commit-given-up",
        rule="a commit without an answer is no refusal",
        module=f"{ROOM}.writing",
        old="        upload.stage = Stage.ASKING\n        upload.retry(now_ms)\n",
        new="        self._give_up(upload, ErrorCode.KAFKA_STORAGE_ERROR)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_a_commit_without_an_answer_is_looked_up_and_counts_once[True]",
    ),
    Mutant(
        name="diskless-watch-missed-for-good",
        rule="what a broken watch may have missed is asked for when it goes again",
        module=f"{ROOM}.broker",
        old="        self.reading.want_states(self.by_key)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_what_a_broken_watch_missed_is_asked_for_when_it_goes_again",
    ),
    Mutant(
        name="diskless-guess-by-plain-numbers",
        rule="batches that a restore appends keep their producer's order, also where numbers wrap",
        module=f"{ROOM}.guessing",
        old="(sequence - origin + SEQUENCES // 2) % SEQUENCES - SEQUENCES // 2",
        new="sequence - origin",
        seed=NO_SCHEDULE,
        caught_by=f"{GUESSING}::test_a_producers_batches_keep_their_order[0-2147483646]",
    ),
    Mutant(
        name="diskless-guess-mixes-epochs",
        rule="batches that a restore appends are in the order of their producer's epochs",
        module=f"{ROOM}.guessing",
        old="        return batch.producer_epoch, _distance",
        new="        return 0, _distance",
        seed=NO_SCHEDULE,
        caught_by=f"{GUESSING}::test_a_producers_batches_keep_their_order[0-5]",
    ),
    Mutant(
        name="diskless-deleted-id-accepted",
        rule="a late creation of rows does not bring a deleted topic back",
        module=f"{ROOM}.memory_coordinator",
        old="if topic_id not in self._deleted and key not in self._logs:",
        new="if key not in self._logs:",
        seed=NO_SCHEDULE,
        caught_by="tests/server/coordinator/test_any_coordinator.py"
        "::test_a_deleted_topic_is_gone_for_good[memory]",
    ),
    Mutant(
        name="diskless-missed-changes-asked-for-once",
        rule="what a broken watch may have missed is asked for until it is answered",
        module=f"{ROOM}.broker",
        old="                self._ask_missed_ms = now_ms + MISSED_MS\n",
        new="                pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_what_a_broken_watch_missed_is_asked_for_until_it_is_answered[1]",
    ),
    Mutant(
        name="diskless-out-of-range-by-the-cache",
        rule="a diskless offset is out of range only when the coordinator has said so",
        module="anabranch.core.api.fetch_pass",
        old="                replica.know(self.since)\n",
        new="                pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_an_offset_is_out_of_range_only_when_the_coordinator_says_so",
    ),
    Mutant(
        name="diskless-offsets-listed-from-the-cache",
        rule="listed offsets have what was acknowledged through any broker before",
        module="anabranch.core.api.p02_list_offsets",
        old="        replica.know(since)\n",
        new="        replica.know()\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_offsets_are_listed_as_they_are_now_and_exactly_by_time",
    ),
    Mutant(
        name="diskless-failed-put-kept",
        rule="an object whose put failed is handed over to be collected at once",
        module=f"{ROOM}.writing",
        old="            self._effects.append(RefuseObjects((upload.prepared.object_id,)))\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_a_put_that_fails_for_good_frees_its_id_and_later_ones_go_on",
    ),
    Mutant(
        name="diskless-gap-told-at-once",
        rule="a gap of sequence numbers is waited for before it is told",
        module=f"{ROOM}.gaps",
        old="        return GAP if now_ms - seen[1] < GAP_MS else verdict.code\n",
        new="        return verdict.code\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_a_gap_of_sequences_is_waited_for_before_it_is_told",
    ),
    Mutant(
        name="diskless-buffer-without-a-bound",
        rule="producers are not read while too much waits for the store",
        module=f"{ROOM}.writing",
        old="        if self.waiting_bytes < CROWDED_BUFFERS * self.most_bytes:\n",
        new="        if True:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::test_what_waits_is_bounded_and_producers_are_held_up",
    ),
    Mutant(
        name="diskless-found-runs-trimmed",
        rule="what was just found for a reader far behind is kept until it is read",
        module=f"{ROOM}.coordinates",
        old=" and len(near.runs) <= MOST_JOINED:\n",
        new=":\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_coordinates.py"
        "::test_readers_that_begin_ever_further_back_get_on",
    ),
    Mutant(
        name="diskless-rows-by-old-metadata",
        rule="rows are compared with metadata that is not older than the controller's term",
        module="anabranch.core.controller.diskless.rows",
        old="return image.next_offset >= self._from_offset",
        new="return True",
        seed=NO_SCHEDULE,
        caught_by=f"{ROWS}::test_metadata_from_before_the_term_deletes_nothing",
    ),
    Mutant(
        name="diskless-patience-ends-late",
        rule="what is due at a time is done at that time, so that no timer rings for ever",
        module=f"{ROOM}.buffer",
        old="since_ms <= than_ms",
        new="since_ms < than_ms",
        seed=NO_SCHEDULE,
        caught_by=f"{TESTS}::"
        "test_what_is_due_at_a_time_is_not_due_any_more_after_a_step_at_that_time",
    ),
    Mutant(
        name="diskless-deposed-controller-rings-on",
        rule="a controller that resigned or was deposed has nothing more to do for rows",
        module="anabranch.core.controller.diskless.rows",
        old="if self._attempts and self._may_call else FAR_MS",
        new="if self._attempts and self._under_way is None else FAR_MS",
        seed=NO_SCHEDULE,
        caught_by=f"{ROWS}::test_no_timer_rings_for_a_call_that_may_not_be_made",
    ),
)
