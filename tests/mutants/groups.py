"""Broken rules of groups and of committed offsets, and of what coordinators share."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

ANY_ORDER = "tests/core/coordination/groups/test_offsets_any_order.py::test_what_once_went_wrong"
ANY_SHARD = "anabranch.core.coordination.shard"
MEMBERS = "anabranch.core.coordination.groups.classic.members"
OFFSETS = "anabranch.core.coordination.groups.offsets"
OFFSET_FETCH = "anabranch.core.api.p09_offset_fetch"
SHARD = "anabranch.core.coordination.groups.shard"
THREE = "tests/core/coordination/groups/test_three_coordinators.py"
TRANSACTION_TESTS = "tests/core/coordination/transactions"
UNDECIDED = "anabranch.core.coordination.groups.undecided"

MUTANTS = (
    Mutant(
        name="run-of-timers-without-end",
        rule="a run of timers leaves what its actions plan to the next one",
        module="anabranch.core.coordination.timers",
        old="if self._heap[0][1] > last:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_states_and_timers.py"
        "::test_what_a_timer_plans_for_now_rings_in_the_next_turn",
    ),
    Mutant(
        name="silent-static-members-are-looked-for-all-the-time",
        rule="a group of silent static members waits half a second before it looks again",
        module="anabranch.core.coordination.groups.classic.rebalance",
        old="max(group.rebalance_timeout_ms, SHORTEST_WAIT_MS)",
        new="group.rebalance_timeout_ms",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_membership.py"
        "::test_silent_static_members_that_ask_for_no_time_do_not_keep_the_coordinator_busy",
    ),
    Mutant(
        name="commit-acknowledged-early",
        rule="a group's commit is acknowledged when its record is committed",
        module=ANY_SHARD,
        old="while pending and pending[0][0] <= replica.high_watermark:",
        new="while pending:",
        seed=109,
        caught_by="group-commit",
    ),
    Mutant(
        name="commit-acknowledged-across-epochs",
        rule="a deposed coordinator acknowledges no commit, even if its log has it",
        module=ANY_SHARD,
        old="        if not self.is_current:\n            return False\n",
        new="",
        seed=17000000076,
        caught_by="group-commit",
    ),
    Mutant(
        name="offset-expires-before-its-time",
        rule="an offset with its own retention lives that long",
        module=OFFSETS,
        old="        return committed.expire_timestamp_ms <= now_ms\n",
        new="        return committed.commit_timestamp_ms <= now_ms\n",
        seed=104,
        caught_by="offset-early",
    ),
    Mutant(
        name="offset-outlives-its-retention",
        rule="an offset expires when its own retention is over",
        module=OFFSETS,
        old="        return committed.expire_timestamp_ms <= now_ms\n",
        new="        return False\n",
        seed=104,
        caught_by="liveness",
    ),
    Mutant(
        name="expired-offset-stays-in-the-log",
        rule="an expired offset is deleted in the log, and is gone once that is committed",
        module=OFFSETS,
        old="    group.shard.write(records, now_ms, effect)\n    group.shard.undecided",
        new="    effect(now_ms)\n    group.shard.undecided",
        seed=1000000296,
        caught_by="offset-again",
    ),
    Mutant(
        name="retention-forgotten-with-the-coordinator",
        rule="the record of an offset contains its expiry time",
        module="anabranch.core.coordination.groups.offset_records",
        old="        value.kept_until, value.topic_id = committed.expire_timestamp_ms, committed",
        new="        value.topic_id = committed",
        seed=208,
        caught_by="liveness",
    ),
    Mutant(
        name="aborted-offsets-count",
        rule="offsets of an aborted transaction are forgotten",
        module=UNDECIDED,
        old="            if committed and offset is not None and written > stands:",
        new="            if offset is not None and written > stands:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_transactions.py"
        "::test_a_group_of_an_aborted_transaction_is_forgotten",
    ),
    Mutant(
        name="groups-read-in-part-are-served",
        rule="groups are not served if their log could not be read to its end",
        module="anabranch.core.coordination.shard_load",
        old="self._is_whole and bool(self.shard.is_current)",
        new="bool(self.shard.is_current)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_shard.py"
        "::test_groups_that_are_read_at_once_in_part_are_not_served",
    ),
    Mutant(
        name="expiry-overlooks-commits-in-flight",
        rule="an offset that a commit in flight is about to replace does not expire",
        module=OFFSETS,
        old="        if place not in under_way\n        and (",
        new="        if (",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="offset-of-an-earlier-topic",
        rule="an offset is returned only for the topic id that it was committed for",
        module=OFFSETS,
        old="return committed.topic_id == topic_id != ZERO_TOPIC_ID",
        new="return True",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="topic-by-name-when-read",
        rule="an offset that is read from the log belongs to the topic id in its record",
        module="anabranch.core.coordination.groups.loader",
        old="        if committed.topic_id != ZERO_TOPIC_ID:\n            return committed\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="offset-deleted-and-committed",
        rule="a deletion covers the commits that were written before it",
        module=OFFSETS,
        old="or (topic, partition) in under_way",
        new="or False",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="group-deleted-and-committed",
        rule="deleting a group also deletes its offsets whose commits are in flight",
        module=OFFSETS,
        old="places = list(dict.fromkeys([*_places(group), *under_way]))",
        new="places = _places(group)",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="deletion-from-a-forgotten-group",
        rule="a deletion applies to the group that has the id when the deletion is committed",
        module=OFFSETS,
        old="    def effect(_now_ms: int) -> None:\n        _drop(coordinator, group_id, places)\n",
        new="    group = coordinator.groups.get(group_id)\n"
        "\n"
        "    def effect(_now_ms: int) -> None:\n"
        "        if coordinator.groups.get(group_id) is group:\n"
        "            _drop(coordinator, group_id, places)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="no-offset-without-proof",
        rule="a coordinator proves its role before it says that there is no offset to delete",
        module=OFFSETS,
        old="        group.shard.prove(done, now_ms)\n",
        new="        done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="no-group-without-proof",
        rule="a coordinator proves its role before it says that there is no group to delete",
        module="anabranch.core.api.p42_delete_groups",
        old="            shard.prove(done, now_ms)\n",
        new="            done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="no-offsets-of-no-group-without-proof",
        rule="a coordinator proves its role before it says that a group without offsets does "
        "not exist",
        module="anabranch.core.api.p47_offset_delete",
        old="            shard.prove(done, now_ms)\n",
        new="            done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="generation-told-from-memory",
        rule="a coordinator proves its role before it tells a member its generation",
        module=MEMBERS,
        old="group.shard.write([nothing_said(group.group_id, now_ms)], now_ms, tell)",
        new="tell(now_ms)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_shard.py"
        "::test_a_generation_that_was_read_above_the_high_watermark_is_told_once_it_is_committed",
    ),
    Mutant(
        name="offset-told-from-memory",
        rule="a coordinator proves its role before it returns offsets",
        module=OFFSET_FETCH,
        old="    shard.prove(done, now_ms)\n",
        new="    done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{THREE}::test_no_fetch_tells_less_than_was_acknowledged_before",
    ),
    Mutant(
        name="offset-told-unsettled",
        rule="a coordinator that is alone in sync waits until all that it has read is committed",
        module=SHARD,
        old="if replica.is_alone and self.is_settled:",
        new="if replica.is_alone:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_offsets.py"
        "::test_alone_in_sync_a_new_coordinator_waits_until_what_it_read_is_flushed",
    ),
    Mutant(
        name="proof-of-an-earlier-record",
        rule="only a record that is written after the request proves the role",
        module=SHARD,
        old="        if not self._is_proving:\n",
        new="        if self._is_proving:\n"
        "            end = self._pending[-1][0]\n"
        "            self._pending.append((end, lambda _now_ms: answer.give(ErrorCode.NONE)))\n"
        "        else:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{THREE}::test_no_fetch_tells_less_than_was_acknowledged_before",
    ),
    Mutant(
        name="proof-is-waited-for-with-too-few",
        rule="with too few replicas in sync no request waits for a proof",
        module=SHARD,
        old="if not replica.enough_in_sync:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_proofs.py"
        "::test_nobody_waits_for_a_proof_once_too_few_are_in_sync",
    ),
    Mutant(
        name="offsets-forgotten-with-a-marker-that-is-refused",
        rule="a transaction's offsets wait until the log has accepted its marker",
        module="anabranch.core.coordination.groups.offsets",
        old="        shard.undecided.restore(producer_id, decided)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_full_disk.py"
        "::test_a_transaction_ends_by_itself_once_there_is_room[5-True]",
    ),
    Mutant(
        name="offsets-before-the-marker",
        rule="offsets of a transaction count once its marker is committed",
        module="anabranch.core.coordination.groups.offsets",
        old="        shard.write_batch(marker, now_ms, effect)",
        new="        shard.write_batch(marker, now_ms, lambda _: None)\n        effect(now_ms)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_transactions.py::test_nothing_is_visible_before_the_marker_is_committed",
    ),
    Mutant(
        name="undecided-offsets-stay-behind",
        rule="a new coordinator of a group knows the offsets of open transactions",
        module="anabranch.core.coordination.groups.coordinator",
        old="        shard.undecided = loader.undecided\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_transactions.py::test_offsets_count_when_the_transaction_is_committed",
    ),
    Mutant(
        name="undecided-offset-replaces-a-later-one",
        rule="an offset committed after one of an open transaction is kept",
        module="anabranch.core.coordination.groups.undecided",
        old="of_producer[group_id, place] = self._written, None",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_transactions.py::test_what_comes_after_an_undecided_offset_stands",
    ),
    Mutant(
        name="offset-that-is-decided-later-stands",
        rule="of the offsets of two transactions, the one written later counts",
        module="anabranch.core.coordination.groups.undecided",
        old="            if committed and offset is not None and written > stands:",
        new="            if committed and offset is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_transactions.py::test_any_order_is_as_the_log_says[8]",
    ),
    Mutant(
        name="zombie-member-commits",
        rule="a transaction commits offsets only for a member in its generation",
        module="anabranch.core.coordination.groups.offsets",
        old="if generation_id < 0 and (group.state is EMPTY or not is_named):",
        new="if group.state is EMPTY or generation_id < group.generation_id:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_transactions.py::test_only_the_member_of_this_generation_may_commit",
    ),
    Mutant(
        name="group-error-in-no-partition",
        rule="an error of a group is repeated in each partition, for clients that look only there",
        module="anabranch.core.api.p09_offset_fetch",
        old="            for topic in body.topics or ()\n        ],\n    )\n",
        new="            for topic in ()\n        ],\n    )\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_offsets.py"
        "::test_a_reader_is_told_wherever_it_looks_that_its_offsets_are_not_known",
    ),
    Mutant(
        name="refused-write-leaves-a-part",
        rule="a coordinator's write of many records is in the log as a whole, or not at all",
        module=ANY_SHARD,
        old="        self.write_batch(build_batch(records, codec=self.codec, **how), "
        "now_ms, effect)\n",
        new="        for some in (records[:900], records[900:]):\n"
        "            if some:\n"
        "                then = effect if some[-1] is records[-1] else lambda _: None\n"
        "                some = [each._replace(offset=at) for at, each in enumerate(some)]\n"
        "                self.write_batch(build_batch(some, **how), now_ms, then)\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_whole_writes.py"
        "::test_a_request_is_written_whole_or_not_at_all",
    ),
    Mutant(
        name="written-and-never-read",
        rule="a coordinator writes no batch that outgrows what a reader takes decompressed",
        module="anabranch.core.coordination.shard",
        old="if size_bytes > MOST_WRITE_BYTES:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_whole_writes.py"
        "::test_what_is_compressed_can_be_read_back_or_is_refused",
    ),
)
