"""Broken rules of replication: truncation, in-sync replicas, the high watermark, fetches.

The first four are the rules that Kafka's replication had and gave up: truncation to the high
watermark, KIP-101's (the leader answers with an offset alone), KIP-279's (histories are compared
once, fetches not fenced) and the first try of KIP-320 (compared at each fetch, still not fenced).
"""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

BEYOND = "tests/core/replication/test_out_of_range.py"
COMPACTED_TESTS = "tests/core/replication/test_compacted_logs.py"
DATA_PATH_TESTS = "tests/core/diskless/test_data_path.py"
LOCAL_START = "tests/core/replication/test_local_start.py"
DROPPED = "tests/core/replication/test_dropped_transactions.py"
FETCH = "anabranch.core.api.fetch_pass"
FOLLOWERS = "anabranch.core.api.fetch_followers"
FOLLOWING = "anabranch.core.replication.follower"
HISTORY = "anabranch.core.api.fetch_history"
IN_SYNC = "anabranch.core.replication.in_sync"
OVERTAKEN = "tests/core/replication/test_overtaken_metadata.py"
REPLICA = "anabranch.core.replication.replica"

MUTANTS = (
    Mutant(
        name="truncate-to-high-watermark",
        rule="a follower truncates its log where histories part, never at its high watermark "
        "(KIP-101)",
        module=FOLLOWING,
        old="self._part(truncation_offset(log, diverging.epoch, diverging.end_offset))",
        new="self._part(replica.high_watermark)",
        seed=2000000020,
        caught_by="L6",
    ),
    Mutant(
        name="divergence-by-offset-alone",
        rule="a leader that lacks the follower's epoch says so, whatever the offsets (KIP-279)",
        module=HISTORY,
        old="if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:",
        new="if end_offset < wanted.fetch_offset:",
        seed=1878,
        caught_by="L2",
    ),
    Mutant(
        name="aligned-once",
        rule="a follower's history is compared again in every leader epoch (KIP-320)",
        module=FETCH,
        old="            replica.check_epoch(wanted.leader_epoch)\n",
        new="            if wanted.leader_epoch != replica.leader_epoch:\n"
        "                wanted.last_fetched_epoch = -1\n",
        seed=7000012993,
        caught_by="L6",
    ),
    Mutant(
        name="fetch-not-fenced",
        rule="a fetch of another leader epoch is refused, also when histories agree (KIP-320)",
        module=FETCH,
        old="            replica.check_epoch(wanted.leader_epoch)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p01_fetch.py::test_leader_epochs_are_fenced[0-74]",
    ),
    Mutant(
        name="answer-to-an-older-question",
        rule="a fetch answer counts only if the log still ends at the offset that was asked for",
        module=FOLLOWING,
        old="        if self.sent_offset != (0 if has_no_history else log.end_offset):\n",
        new="        if False:\n",
        seed=13000000031,
        caught_by="liveness",
    ),
    Mutant(
        name="pending-member-not-counted",
        rule="a proposed member of the ISR bounds the high watermark at once (KIP-497)",
        module=REPLICA,
        old="members = dict.fromkeys((*isr, *self.left, "
        "*(() if proposal is None else proposal.isr)))",
        new="members = dict.fromkeys((*isr, *self.left))",
        seed=67,
        caught_by="L4",
    ),
    Mutant(
        name="join-below-epoch-start",
        rule="a follower joins the ISR only when its log reaches into this leader's epoch",
        module=IN_SYNC,
        old="follower.end_offset < max(replica.high_watermark, replica.epoch_start_offset)",
        new="follower.end_offset < replica.high_watermark",
        seed=56000000135,
        caught_by="L4",
    ),
    Mutant(
        name="join-below-high-watermark",
        rule="a follower joins the ISR only when it has everything that is committed",
        module=IN_SYNC,
        old="follower.end_offset < max(replica.high_watermark, replica.epoch_start_offset)",
        new="follower.end_offset < 0",
        seed=2,
        caught_by="L4",
    ),
    Mutant(
        name="high-watermark-of-the-leader-alone",
        rule="a record is committed when every in-sync replica has it",
        module=REPLICA,
        old="            if follower.end_offset < end:\n",
        new="            if follower.end_offset < 0:\n",
        seed=0,
        caught_by="L3",
    ),
    Mutant(
        name="high-watermark-below-minimum",
        rule="the high watermark waits for min.insync.replicas (KIP-966)",
        module=REPLICA,
        old="if not self.is_leader or not self._is_enough(in_sync):",
        new="if not self.is_leader:",
        seed=7,
        caught_by="L7",
    ),
    Mutant(
        name="committed-before-flushed",
        rule="with flush.messages=1 a record is committed when the leader has flushed it",
        module=REPLICA,
        old="end = log.flushed_offset if self.flushed_counts else log.end_offset",
        new="end = log.end_offset",
        seed=5,
        caught_by="L7",
    ),
    Mutant(
        name="follower-believes-beyond-its-end",
        rule="a follower's high watermark never exceeds the end of its log",
        module=REPLICA,
        old="end = max(min(leader_high_watermark, log.end_offset), log.local_start_offset)",
        new="end = max(leader_high_watermark, log.local_start_offset)",
        seed=2,
        caught_by="L1",
    ),
    Mutant(
        name="acknowledged-when-appended",
        rule="acks=all is answered when the high watermark has passed the record",
        module=REPLICA,
        old="if self.high_watermark > ticket.last_offset:",
        new="if self.log.end_offset > ticket.last_offset:",
        seed=0,
        caught_by="L7",
    ),
    Mutant(
        name="acknowledged-across-leaderships",
        rule="a leader acknowledges no record that it appended in an earlier leadership",
        module=REPLICA,
        old="if self.led_from_epoch != led_from_epoch:",
        new="if False:",
        seed=12000000306,
        caught_by="lost-write",
    ),
    Mutant(
        name="shown-before-committed",
        rule="consumers see nothing at or above the high watermark",
        module=REPLICA,
        old="            return self.last_stable_offset\n        return self.high_watermark",
        new="            return self.last_stable_offset\n        return self.log.end_offset",
        seed=2,
        caught_by="L5",
    ),
    Mutant(
        name="marks-go-with-records-alone",
        rule="a follower is told a high watermark that moved also if no records come",
        module="anabranch.core.api.fetch_sessions",
        old="told, self.told_high_watermark = True, answer.high_watermark",
        new="self.told_high_watermark = answer.high_watermark",
        seed=0,
        caught_by="liveness",
    ),
    Mutant(
        name="held-marks-are-forgotten",
        rule="a high watermark that is held back is told after an answer with records of others",
        module=FOLLOWERS,
        old="        if not self._held.untold:\n            self._held.tell_ms = NOTHING_TO_TELL\n",
        new="        self._held.untold.clear()\n        self._held.tell_ms = NOTHING_TO_TELL\n",
        seed=6000000010,
        caught_by="liveness",
    ),
    Mutant(
        name="observer-counted-in-sync",
        rule="an observer is never in sync",
        module=IN_SYNC,
        old="    if broker_id not in replica.replicas:\n        return False\n",
        new="",
        seed=6,
        caught_by="liveness",
    ),
    Mutant(
        name="diskless-stale-cache-tells-out-of-range",
        rule="a broker asks for other brokers' commits before it reports an offset as out of range",
        module="anabranch.core.api.fetch_pass",
        old="                replica.ensure_current(self.since)\n",
        new="                pass\n",
        seed=156,
        caught_by="out-of-range",
    ),
    Mutant(
        name="one-cold-range-a-round",
        rule="a fetch names all ranges that are not in memory, and reads them together",
        module="anabranch.core.api.fetch_pass",
        old="if len(missing) == MOST_READS:",
        new="if missing:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p01_fetch.py"
        "::test_fifty_cold_partitions_cost_one_round_of_reads",
    ),
    Mutant(
        name="cold-ranges-count-for-nothing",
        rule="ranges that are not in memory count against the request's size",
        module="anabranch.core.api.fetch_pass",
        old="at_least_one, left = False, max(0, left - cold.length)",
        new="at_least_one = False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p01_fetch.py"
        "::test_a_round_of_reads_stays_within_what_the_request_wants",
    ),
    Mutant(
        name="who-begins-a-session-waits-for-its-marks",
        rule="a follower without a session is told newer high watermarks at once",
        module="anabranch.core.api.fetch_pass",
        old="wanted.high_watermark < min(answer.high_watermark, wanted.fetch_offset)",
        new="False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_fetching.py"
        "::test_who_begins_a_session_is_told_its_marks_at_once",
    ),
    Mutant(
        name="marks-of-who-is-not-in-sync-wait",
        rule="records of other partitions do not put off the high watermark of a follower that is "
        "not in sync",
        module=FOLLOWERS,
        old="not (is_quiet and self.may_tell_later(wanted, replica))",
        new="not self.may_tell_later(wanted, replica)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_fetching.py"
        "::test_records_of_other_partitions_bring_the_marks_of_who_is_kept_out_of_the_isr",
    ),
    Mutant(
        name="out-of-range-by-an-unproven-leader",
        rule="a leader confirms with the controller that it leads before it reports "
        "OFFSET_OUT_OF_RANGE",
        module=FETCH,
        old="            if offset > replica.end_offset:\n",
        new="            if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{BEYOND}::test_a_deposed_leader_says_that_it_does_not_lead",
    ),
    Mutant(
        name="leadership-proven-by-an-earlier-answer",
        rule="only a question sent after the request arrived proves the leadership",
        module="anabranch.core.replication.controller_requests",
        old="return self._asked + 1",
        new="return self._asked",
        seed=NO_SCHEDULE,
        caught_by=f"{BEYOND}::test_an_answer_to_an_earlier_question_proves_nothing",
    ),
    Mutant(
        name="join-with-what-the-leader-deleted",
        rule="a follower joins the ISR only after it has dropped what the leader has deleted",
        module=IN_SYNC,
        old="if UNKNOWN_OFFSET != follower.start_offset < replica.log.start_offset:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_histories.py"
        "::test_what_was_never_committed_is_not_shown_where_records_were_deleted",
    ),
    Mutant(
        name="copy-without-history-keeps-its-start",
        rule="a log without records and epochs begins where its leader's log does",
        module=FOLLOWING,
        old="        if self.knows_start or not 0 < log.local_start_offset == log.end_offset:\n",
        new="        if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_histories.py"
        "::test_a_copy_without_records_is_in_sync_only_with_all_that_its_leader_has[1-1]",
    ),
    Mutant(
        name="in-sync-copy-gives-up-offsets",
        rule="a follower that may be elected never ends before what was committed",
        module=FOLLOWING,
        old=" and replica.broker_id not in may_lead\n",
        new="\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_histories.py"
        "::test_a_copy_without_records_that_may_lead_gives_up_no_offset",
    ),
    Mutant(
        name="own-log-start-not-told",
        rule="a follower reports each new start of its log to its leader, also one that it "
        "moved itself",
        module="anabranch.core.replication.follower",
        old="log.start_offset != self.sent_start",
        new="log.start_offset != answer.log_start_offset",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_records.py"
        "::test_a_follower_that_had_dropped_them_by_itself_says_so",
    ),
    Mutant(
        name="deleted-tail-keeps-its-producers",
        rule="a log whose leader has deleted everything keeps no producers of an uncommitted tail",
        module=FOLLOWING,
        old="            self._begin_at(log.end_offset, log.end_offset)\n        if answer.records:\n",
        new="            pass\n        if answer.records:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_histories.py"
        "::test_a_producer_of_what_was_never_committed_is_unknown_where_records_were_deleted",
    ),
    Mutant(
        name="start-that-does-not-follow",
        rule="a follower's log start follows its leader's, so that the follower can join the ISR",
        module=REPLICA,
        old="        if log.start_offset < leader_start_offset <= log.end_offset:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcw]",
    ),
    Mutant(
        name="out-of-range-follower-waits",
        rule="a follower starts over if its log ends before its leader's log begins",
        module=FOLLOWING,
        old="        self._begin_at(max(told.offset, start_offset), start_offset, beginning)\n"
        "        return Next.FETCH",
        new="        return Next.LATER",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcw]",
    ),
    Mutant(
        name="follower-begins-in-remote-storage",
        rule="a follower whose leader has only a later part on its disk begins there",
        module=FOLLOWING,
        old="self._begin_at(max(told.offset, start_offset), start_offset, beginning)",
        new="self._begin_at(start_offset, start_offset, None)",
        seed=NO_SCHEDULE,
        caught_by=f"{LOCAL_START}::test_a_new_follower_begins_where_its_leader_s_disk_does",
    ),
    Mutant(
        name="follower-knows-no-earlier-producers",
        rule="a copy that begins in the middle knows the producers that its leader knew there",
        module=FOLLOWING,
        old="self._begin_at(max(told.offset, start_offset), start_offset, beginning)",
        new="self._begin_at(max(told.offset, start_offset), start_offset)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_local_producers.py"
        "::test_a_copy_knows_what_its_leader_knew",
    ),
    Mutant(
        name="follower-forgets-the-remote-part",
        rule="a copy that begins in the middle keeps the start of the whole log",
        module=FOLLOWING,
        old="self._begin_at(max(told.offset, start_offset), start_offset, beginning)",
        new="self._begin_at(max(told.offset, start_offset), max(told.offset, start_offset))",
        seed=NO_SCHEDULE,
        caught_by=f"{LOCAL_START}::test_a_new_follower_begins_where_its_leader_s_disk_does",
    ),
    Mutant(
        name="answer-drops-an-eligible-member",
        rule="a replica that an answer removes bounds the high watermark until metadata shows it",
        module=REPLICA,
        old="self.left += tuple(each for each in self.in_sync_replicas if each not in isr)",
        new="self.left = ()",
        seed=NO_SCHEDULE,
        caught_by=f"{OVERTAKEN}"
        "::test_who_may_be_elected_has_all_that_counts_whatever_the_leader_was_told",
    ),
    Mutant(
        name="answer-fills-the-minimum",
        rule="a joining replica counts for min.insync.replicas once the metadata shows it",
        module=REPLICA,
        old="in_sync = min(self.told_count, len(self.in_sync_replicas))",
        new="in_sync = len(self.in_sync_replicas)",
        seed=NO_SCHEDULE,
        caught_by=f"{OVERTAKEN}"
        "::test_a_factor_that_grows_with_a_join_asks_for_more_before_the_leader_hears_of_it",
    ),
    Mutant(
        name="progress-of-an-earlier-epoch",
        rule="a follower's progress under an earlier leader does not count",
        module=REPLICA,
        old="        if new_epoch:\n            self.followers = {}\n",
        new="        if new_epoch:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_in_sync.py"
        "::test_what_a_follower_had_under_another_leader_counts_for_nothing",
    ),
    Mutant(
        name="leads-by-old-metadata",
        rule="a process leads nothing by metadata that does not show its registration",
        module="anabranch.core.replication.partitions",
        old="is_known = own is not None and own.epoch == broker_epoch",
        new="is_known = True",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_partitions.py"
        "::test_a_process_leads_nothing_by_metadata_that_does_not_know_it",
    ),
    Mutant(
        name="log-before-the-leaders-start-counts",
        rule="a log that ends where its leader's begins holds nothing that counts",
        module=FOLLOWING,
        old="if log.end_offset == answer.log_start_offset:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_an_old_leader_is_told_of_it_where_the_begin_of_the_epoch_was_deleted[False-True]",
    ),
    Mutant(
        name="compacted-log-is-cut",
        rule="a compacted log that loses committed records starts over",
        module=FOLLOWING,
        old="if log.config.compacted and offset < relied_on and may_have_holes(log, offset):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}::test_a_cut_into_what_was_compacted_leaves_no_key_out[False]",
    ),
    Mutant(
        name="high-watermark-tells-what-was-compacted",
        rule="a replica that was killed knows how far it compacted its log",
        module=FOLLOWING,
        old="relied_on = max(replica.high_watermark, log.compacted_to)",
        new="relied_on = replica.high_watermark",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}::test_a_cut_into_what_was_compacted_leaves_no_key_out[True]",
    ),
    Mutant(
        name="cut-by-older-metadata",
        rule="a log that knows newer leader epochs than the metadata is not truncated",
        module=FOLLOWING,
        old="        if replica.is_ahead:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_restored_metadata.py"
        "::test_a_follower_that_knows_newer_epochs_than_the_metadata_keeps_its_log",
    ),
    Mutant(
        name="older-metadata-forgotten",
        rule="such a log is not truncated when the metadata reaches those epochs again, either",
        module=REPLICA,
        old="self.is_ahead = self.is_ahead or state.leader_epoch < self.log.epochs.latest",
        new="self.is_ahead = state.leader_epoch < self.log.epochs.latest",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_restored_metadata.py"
        "::test_it_goes_on_to_refuse_when_the_metadata_reaches_its_epochs_another_time",
    ),
    Mutant(
        name="full-follower-copies",
        rule="a follower without disk space fetches nothing",
        module="anabranch.core.replication.replication",
        old="if log.room.is_full:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_copying.py"
        "::test_a_follower_without_room_asks_for_nothing_until_it_has_room",
    ),
    Mutant(
        name="full-follower-is-asked-for",
        rule="a leader proposes no follower for the ISR that has no disk space by the metadata",
        module=IN_SYNC,
        old="not broker.active or _lacks_room(replica, broker, image):",
        new="not broker.active:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_roomless_followers.py"
        "::test_a_leader_asks_for_no_follower_that_has_no_room_until_it_has",
    ),
    Mutant(
        name="diskless-out-of-range-by-the-cache",
        rule="a diskless offset is out of range only when the coordinator has said so",
        module="anabranch.core.api.fetch_pass",
        old="                replica.ensure_current(self.since)\n",
        new="                pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_an_offset_is_out_of_range_only_when_the_coordinator_says_so",
    ),
    Mutant(
        name="open-transaction-kept-behind-a-gap",
        rule="a replica that was away copies records again that may have lost their marker to "
        "compaction",
        module=FOLLOWING,
        old="                if header.base_offset > next_offset or not header.record_count:\n",
        new="                if False:\n",
        seed=4000000211,
        caught_by="C5",
    ),
    Mutant(
        name="empty-batch-is-no-gap",
        rule="a batch without records that compaction left may also have hidden a marker",
        module=FOLLOWING,
        old="header.base_offset > next_offset or not header.record_count:",
        new="header.base_offset > next_offset:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_ended_while_away.py"
        "::test_who_returns_knows_how_transactions_ended[4-True]",
    ),
    Mutant(
        name="gap-overlooked-by-old-metadata",
        rule="a replica looks for a missing marker even if its metadata still shows it in sync",
        module=FOLLOWING,
        old=" in replica.in_sync_replicas and not is_behind):",
        new=" in replica.in_sync_replicas):",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_ended_while_away.py"
        "::test_also_one_that_takes_itself_for_in_sync_or_pauses",
    ),
    Mutant(
        name="gap-overlooked-in-a-slow-copy",
        rule="a replica looks for a missing marker even if it copied the transaction long ago",
        module=FOLLOWING,
        old="(first_offset < self.kept_to or self._is_old(producer_id, first_offset, wall_ms))",
        new="first_offset < self.kept_to",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_ended_while_away.py"
        "::test_also_one_that_takes_itself_for_in_sync_or_pauses",
    ),
    Mutant(
        name="gap-overlooked-for-a-minute",
        rule="so does one that was away for delete.retention.ms, however short that is",
        module=FOLLOWING,
        old="least_ms = PAUSE_MS if first_offset < self.reached else 0",
        new="least_ms = PAUSE_MS",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_ended_while_away.py"
        "::test_also_one_that_takes_itself_for_in_sync_or_pauses",
    ),
    Mutant(
        name="transaction-copied-again-without-end",
        rule="what was copied again is not copied once more at once",
        module=FOLLOWING,
        old="least_ms = PAUSE_MS if first_offset < self.reached else 0",
        new="least_ms = 0",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_ended_while_away.py"
        "::test_a_copy_gets_on_also_where_markers_go_at_once",
    ),
    Mutant(
        name="overlapping-transactions-copied-without-end",
        rule="what was copied under this leader is not taken for older after a cut",
        module=FOLLOWING,
        old="self.kept_to, self.copies_again = min(self.kept_to, log.end_offset), True",
        new="self.kept_to, self.copies_again = log.end_offset, True",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_ended_while_away.py"
        "::test_a_copy_gets_on_also_where_each_transaction_overlaps_the_next",
    ),
)
