"""Broken rules of transactions: verification, coordinators, markers, answers to clients."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

TRANSACTIONS = "anabranch.core.coordination.transactions"
TRANSACTION_TESTS = "tests/core/coordination/transactions"
VERIFYING = "anabranch.core.coordination.transactions.verification"

MUTANTS = (
    Mutant(
        name="verification-skipped",
        rule="the coordinator is asked before the first batch of a transaction",
        module=VERIFYING,
        old="if producers.is_open(producer_id, epoch):",
        new="if True:",
        seed=131,
        caught_by="stable-held",
    ),
    Mutant(
        name="zombie-ends-a-transaction",
        rule="only the producer of the present epoch ends a transaction",
        module=f"{TRANSACTIONS}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    if before.state in DECIDED",
        new="    if before.state in DECIDED",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/transactions/test_coordinator.py"
        "::test_a_second_producer_fences_the_first",
    ),
    Mutant(
        name="late-transaction-is-not-fenced",
        rule="a transaction that is aborted for its timeout raises the epoch",
        module=f"{TRANSACTIONS}.transaction",
        old="become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))\n",
        new="become(PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch)\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/transactions/test_coordinator.py"
        "::test_a_second_producer_aborts_the_transaction_of_the_first",
    ),
    Mutant(
        name="partition-without-a-marker",
        rule="a transaction is complete when each partition has its marker",
        module=f"{TRANSACTIONS}.markers",
        old="                if code in HAS_NO_NEED:\n",
        new="                if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/transactions/test_coordinator.py::test_a_partition_is_asked_until_it_has_its_marker[6]",
    ),
    Mutant(
        name="commit-answered-before-it-is-logged",
        rule="the commit of a transaction is answered when its record is committed",
        module=f"{TRANSACTIONS}.coordinator",
        old="            shard.change(transactional_id, after, now_ms, then)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        new="            shard.change(transactional_id, after, now_ms, then)\n"
        "            answer.give(Decision(ErrorCode.NONE, *after.next_producer))\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        seed=22000000147,
        caught_by="lost-write",
    ),
    Mutant(
        name="late-batch-after-a-marker",
        rule="a verification from before a marker begins no transaction after it",
        module="anabranch.core.coordination.transactions.verification",
        old="if code is ErrorCode.NONE and self.is_overtaken:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py::test_a_marker_overtakes_what_the_coordinator_said_before",
    ),
    Mutant(
        name="marker-overtakes-the-next-transaction",
        rule="a marker that raises the epoch ends no transaction of that epoch",
        module="anabranch.core.coordination.transactions.verification",
        old="if found is not None and (found.epoch < epoch or not raises_epoch):",
        new="if found is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_the_marker_of_the_transaction_before_overtakes_nothing",
    ),
    Mutant(
        name="verification-outlives-a-leadership",
        rule="a new leader asks the coordinator again, though an earlier leader had asked",
        module="anabranch.core.coordination.transactions.verification",
        old="or partition.led_from_epoch != self.led_from_epoch:",
        new="or False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py::test_a_new_leadership_asks_again",
    ),
    Mutant(
        name="late-marker-ends-the-next-transaction",
        rule="a marker that raises the epoch is written once",
        module="anabranch.core.api.p27_write_txn_markers",
        old="if raises_epoch and producers.has_marker(producer_id, epoch):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p27_write_txn_markers.py::test_a_marker_that_raises_the_epoch_counts_once",
    ),
    Mutant(
        name="zombie-not-fenced",
        rule="a producer with an older epoch is refused",
        module=f"{TRANSACTIONS}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    return before\n",
        new="    return before\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_second_producer_fences_the_first",
    ),
    Mutant(
        name="markers-before-the-decision-is-committed",
        rule="no marker is sent before the decision is committed",
        module=f"{TRANSACTIONS}.coordinator",
        old="        else:\n"
        "            shard.change(transactional_id, after, now_ms, then)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        new="        else:\n"
        "            shard.change(transactional_id, after, now_ms, then)\n"
        "            self.markers.send(shard, transactional_id, after)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_nothing_is_answered_and_no_marker_is_sent_before_the_record_is_committed",
    ),
    Mutant(
        name="epoch-not-raised-at-the-end",
        rule="each end of a transaction raises the producer's epoch (KIP-890)",
        module=f"{TRANSACTIONS}.transaction",
        old="    if client_version < BUMPS_EPOCHS:\n"
        "        return after\n"
        "    return after._replace",
        new="    if client_version < BUMPS_EPOCHS + 1:\n"
        "        return after\n"
        "    return after._replace",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_transaction_ends_with_a_marker_in_each_partition_and_in_no_other",
    ),
    Mutant(
        name="end-asked-again-is-fenced",
        rule="a repeated EndTxn with the previous epoch is answered as before (KAFKA-14402)",
        module=f"{TRANSACTIONS}.rules",
        old="        and before.producer_epoch == producer.epoch + 1\n",
        new="        and before.producer_epoch == producer.epoch\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_an_end_that_is_asked_again_is_answered_as_before",
    ),
    Mutant(
        name="opposite-end-is-answered",
        rule="a request for the opposite outcome does not succeed",
        module=f"{TRANSACTIONS}.rules",
        old="    return before.state is (COMPLETE_COMMIT if commits else COMPLETE_ABORT)\n",
        new="    return before.state in (COMPLETE_COMMIT, COMPLETE_ABORT)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_end_with_an_epoch_for_each_transaction",
    ),
    Mutant(
        name="late-transaction-goes-on",
        rule="a transaction that outlives its timeout is aborted",
        module=f"{TRANSACTIONS}.transaction",
        old="        return self.state is ONGOING and self.started_ms + self.timeout_ms < now_ms\n",
        new="        return False\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py::test_a_late_transaction_is_aborted",
    ),
    Mutant(
        name="id-with-a-record-on-its-way-expires",
        rule="a transactional id does not expire while a record of it is being written",
        module=f"{TRANSACTIONS}.upkeep",
        old="now_ms, expiration_ms) and name not in shard.pending\n",
        new="now_ms, expiration_ms)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_an_id_with_a_record_on_its_way_does_not_expire",
    ),
    Mutant(
        name="fenced-producer-is-told-the-next-epoch",
        rule="a producer that the coordinator fenced is not told the new epoch",
        module=f"{TRANSACTIONS}.rules",
        old="        and not before.is_fenced\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_fenced_producer_is_not_told_the_epoch_of_its_successor",
    ),
    Mutant(
        name="decisions-carried-out-before-they-are-committed",
        rule="a new coordinator carries out a decision that it read once it is committed",
        module=f"{TRANSACTIONS}.coordinator",
        old="        shard.when_committed(loader.read_to, ready, now_ms)\n",
        new="        ready(now_ms)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_new_coordinator_says_nothing_before_all_that_it_read_is_committed",
    ),
    Mutant(
        name="decision-of-the-past-is-left-alone",
        rule="a new coordinator carries out what the previous one decided",
        module=f"{TRANSACTIONS}.coordinator",
        old="                if each.state in DECIDED:\n",
        new="                if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_three_coordinators.py"
        "::test_a_transaction_is_decided_once_and_ends",
    ),
    Mutant(
        name="epoch-raised-twice-by-a-fence",
        rule="the coordinator's own abort raises the epoch once (KAFKA-19367)",
        module=f"{TRANSACTIONS}.transaction",
        old="become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))\n",
        new="become(PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch + 2)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_every_way_out_of_a_transaction_raises_the_epoch_by_one",
    ),
    Mutant(
        name="late-request-joins-the-next-transaction",
        rule="a request with an earlier epoch adds nothing to a later transaction (KAFKA-14402)",
        module=f"{TRANSACTIONS}.rules",
        old="    before = _checked(before, producer)\n    if is_pending",
        new="    before = _checked(\n"
        "        before, before and Producer(producer.producer_id, before.producer_epoch)\n"
        "    )\n"
        "    if is_pending",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py::test_partitions_join",
    ),
    Mutant(
        name="transactions-wait-for-a-client",
        rule="a committed decision is carried out without waiting for a client",
        module=f"{TRANSACTIONS}.coordinator",
        old="                if shard is not None:\n                    shard.catch_up(now_ms)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_markers_are_sent_when_the_record_is_committed_though_no_client_waits",
    ),
    Mutant(
        name="next-transaction-does-not-wait-for-markers",
        rule="a client's next transaction waits for the markers of the one before it",
        module="anabranch.core.api.transactions",
        old="if may_wait and fault.code is ErrorCode.CONCURRENT_TRANSACTIONS:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_the_next_transaction_begins_when_the_one_before_has_its_markers",
    ),
    Mutant(
        name="next-transaction-waits-its-time-out",
        rule="a request that waits for the end of a transaction is answered when it ends",
        module=f"{TRANSACTIONS}.shard",
        old="            self._broker.changed[Changed(transactional_id)] = None\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_the_next_transaction_begins_when_the_one_before_has_its_markers",
    ),
    Mutant(
        name="waiting-join-holds-up-nothing",
        rule="a join that waits delays its client's later requests",
        module="anabranch.core.api.transactions",
        old=", decided, holds_up=is_client)",
        new=", decided)",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_an_end_does_not_overtake_the_join_that_waits",
    ),
    Mutant(
        name="leader-does-not-wait-for-markers",
        rule="a leader's question that may wait is answered when the id is free",
        module="anabranch.core.api.p24_add_partitions_to_txn",
        old="if is_client or has_own(request.body):",
        new="if is_client:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_leader_that_asks_to_wait_is_answered_when_all_may_begin",
    ),
    Mutant(
        name="leader-pauses-before-it-asks-to-wait",
        rule="a partition asks at once to wait for the end of the previous transaction",
        module="anabranch.core.coordination.transactions.verification",
        old="rest_ms = 0 if asked_ms == NO_TIME_MS else asked_ms + backoff_ms - now_ms",
        new="rest_ms = backoff_ms",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_the_coordinator_is_asked_to_wait_for_the_end_of_the_transaction_before",
    ),
    Mutant(
        name="first-partition-asked-about-alone",
        rule="one question covers all partitions of a request",
        module="anabranch.core.coordination.transactions.verification",
        old=".append(verification)\n        broker.peers.ask_last(self._ask_all)\n",
        new=".append(verification)\n        self._ask_all()\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_partitions_of_one_request_are_asked_about_in_one_question",
    ),
    Mutant(
        name="coordinator-asked-without-a-pause",
        rule="a coordinator that cannot wait is asked again after a pause",
        module="anabranch.core.coordination.transactions.verification",
        old="rest_ms = 0 if asked_ms == NO_TIME_MS else asked_ms + backoff_ms - now_ms",
        new="rest_ms = 0",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_a_coordinator_that_does_not_wait_is_asked_again_after_a_pause",
    ),
    Mutant(
        name="join-holds-up-other-transactions",
        rule="a question that waits delays no question about other transactions",
        module="anabranch.core.coordination.transactions.verification",
        old="            self._queue(verification, JOINS)\n            return True\n",
        new="            self._queue(verification, VERIFICATIONS)\n            return True\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_who_waits_for_the_end_of_the_transaction_before_holds_up_no_other",
    ),
    Mutant(
        name="late-producer-may-not-go-on",
        rule="a producer whose transaction timed out may continue (KIP-588)",
        module=f"{TRANSACTIONS}.transaction",
        old="last_producer_epoch=before.producer_epoch,\n        client_version=server_version",
        new="last_producer_epoch=NO_PRODUCER_EPOCH,\n        client_version=server_version",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_kafka_answers.py::test_as_kafka[a_late_transaction]",
    ),
    Mutant(
        name="ids-hold-empty-sets-of-their-own",
        rule="ids without a transaction share one empty set of partitions",
        module=f"{TRANSACTIONS}.records",
        old="        or NO_PARTITIONS,\n",
        new="        | NO_PARTITIONS,\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_ids_without_a_transaction_share_one_empty_set_of_partitions",
    ),
    Mutant(
        name="ids-listed-whatever-the-pattern",
        rule="only ids that match the pattern as a whole are listed",
        module="anabranch.core.api.p66_list_transactions",
        old="if pattern is not None and not pattern.matches(name):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_ids_are_listed_by_a_pattern_of_whole_ids",
    ),
    Mutant(
        name="late-transactions-all-named",
        rule="a round names at most twenty late transactions in the log, and counts the others",
        module=f"{TRANSACTIONS}.upkeep",
        old="if len(self.said) < MOST_SAID:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_late_transactions_are_named_in_the_log_up_to_a_number",
    ),
    Mutant(
        name="next-producer-id-is-fenced-while-markers-are-written",
        rule="a producer with a new producer id may return while its markers are written",
        module=f"{TRANSACTIONS}.rules",
        old="    return producer == (before.next_producer_id, 0)\n",
        new="    return False\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_who_goes_on_before_the_markers_are_written_comes_again",
    ),
    Mutant(
        name="next-end-is-fenced-while-markers-are-written",
        rule="a producer that was told its next epoch may return while its markers are written",
        module=f"{TRANSACTIONS}.rules",
        old="        if before.is_fenced:  # no producer",
        new="        if True:  # no producer",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_who_goes_on_before_the_markers_are_written_comes_again",
    ),
    Mutant(
        name="last-epoch-is-given",
        rule="no producer gets the last possible epoch",
        module=f"{TRANSACTIONS}.rules",
        old="    if epoch > LAST_EPOCH or (is_newest and before.is_exhausted):",
        new="    if is_newest and before.is_exhausted:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_each_epoch_that_a_producer_is_given_can_be_fenced",
    ),
    Mutant(
        name="diskless-topic-of-the-name-gets-markers",
        rule="a transaction ends without markers in a diskless topic that has taken a name",
        module=f"{TRANSACTIONS}.markers",
        old="if state is None or is_diskless(image, place.topic):",
        new="if state is None:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_diskless_topic_of_the_same_name_holds_nothing_up",
    ),
    Mutant(
        name="fence-of-the-last-epoch-forgotten",
        rule="no producer is told the epoch that fenced it, even after the coordinator has moved",
        module=f"{TRANSACTIONS}.records",
        old="said.producer_epoch == FENCE_EPOCH and said.next_producer_id == NO_PRODUCER_ID",
        new="False",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_each_epoch_that_a_producer_is_given_can_be_fenced",
    ),
    Mutant(
        name="effects-within-effects",
        rule="actions that are committed together are carried out one after the other",
        module="anabranch.core.coordination.shard",
        old="        if self._is_catching_up:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/groups/test_shard.py"
        "::test_what_is_committed_together_is_done_one_after_the_other",
    ),
)
