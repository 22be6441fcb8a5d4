"""Broken rules of requests: their order, their limits, and what they are answered."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

BEYOND = "tests/core/replication/test_out_of_range.py"
CROWDING = "anabranch.core.node.crowd"
ANY_ORDER = "tests/core/node/test_any_order.py::test_whatever_happens_in_any_order"
CONNECTION_TESTS = "tests/server/test_connection.py"
DATA_PATH_TESTS = "tests/core/diskless/test_data_path.py"
SEQUENCE_GAPS = "anabranch.core.log.sequence_gaps"
HELD_UP_ORDER = (
    "tests/core/api/test_sequence_gap_order.py"
    "::test_no_batch_is_taken_before_an_earlier_one_that_was_refused"
)

MUTANTS = (
    Mutant(
        name="long-requests-are-among-the-first",
        rule="a client with short requests does not wait for all that ask for much",
        module="anabranch.core.node.turns",
        old="Rank.LONG if member.length >= LONG else Rank.SHORT",
        new="Rank.SHORT",
        seed=NO_SCHEDULE,
        caught_by="tests/core/node/test_turns.py"
        "::test_a_slice_that_was_long_by_chance_sends_no_client_to_the_end_of_the_line",
    ),
    Mutant(
        name="all-waits-that-end-are-answered-in-one-step",
        rule="waits that end at the same time are answered in several turns of the loop",
        module="anabranch.server.request_shell",
        old="lambda: time.monotonic_ns() < until_ns",
        new="lambda: True",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_turns.py"
        "::test_waits_that_end_at_the_same_time_are_answered_in_several_turns",
    ),
    Mutant(
        name="sessions-of-any-size",
        rule="the sessions of clients hold a bounded number of partitions",
        module="anabranch.core.api.fetch_sessions",
        old="        while not self._fits(size, privileged):\n",
        new="        while False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_fetch_sessions.py"
        "::test_a_client_whose_partitions_do_not_fit_has_no_session",
    ),
    Mutant(
        name="brokers-wait-with-clients",
        rule="requests of brokers are run before those of clients",
        module="anabranch.core.node.turns",
        old="    if member.is_broker:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/node/test_turns.py"
        "::test_brokers_come_before_clients_which_are_served_in_each_turn",
    ),
    Mutant(
        name="clients-starve-behind-brokers",
        rule="each line in which a connection waits is served once in each turn",
        module="anabranch.core.node.turns",
        old="(has_time or self._is_owed[rank])",
        new="has_time",
        seed=NO_SCHEDULE,
        caught_by="tests/core/node/test_turns.py"
        "::test_brokers_come_before_clients_which_are_served_in_each_turn",
    ),
    Mutant(
        name="all-of-one-connection-is-run-at-once",
        rule="a connection runs for a slice, then the next one does",
        module="anabranch.core.node.channel",
        old="            if not has_time():\n                break\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_turns.py"
        "::test_a_client_does_not_wait_for_all_that_others_have_sent",
    ),
    Mutant(
        name="sync-that-hangs-is-believed",
        rule="a sync that hangs leaves the same mark as one that failed",
        module="anabranch.server.flush",
        old="run_in_executor(None, leave_mark, log)",
        new="run_in_executor(None, str, log)",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_flush.py"
        "::test_a_round_that_takes_long_leaves_the_mark_of_one_that_fails",
    ),
    Mutant(
        name="expired-sessions-are-served",
        rule="a connection without an authenticated session may only open one",
        module="anabranch.core.broker.gate",
        old="(SessionState.EXPIRED, False): Verdict.CLOSE,",
        new="(SessionState.EXPIRED, False): Verdict.ADMIT,",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_gate.py::test_a_session_opens_expires_and_is_renewed",
    ),
    Mutant(
        name="late-offsets-are-not-told",
        rule="a producer is told the final offsets of its batch",
        module="anabranch.core.api.p00_produce",
        old="if answer.base_offset == UNKNOWN_OFFSET:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/partition/test_protocol.py"
        "::test_a_produce_request_waits_for_offsets_that_come_late",
    ),
    Mutant(
        name="offsets-topic-is-never-asked-for",
        rule="a transaction that commits offsets has the topic of groups created",
        module="anabranch.core.api.groups",
        old="        wish_topic(broker, topic)\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/coordination/transactions/test_coordinator.py"
        "::test_a_group_that_no_client_has_looked_for_gets_its_topic",
    ),
    Mutant(
        name="acts-end-the-step",
        rule="work created by an action at the end of a step is done in the same step",
        module="anabranch.core.step",
        old="""            if not (changed or left.ready or faults or unsynced or due):
                break""",
        new="""            break""",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_step.py::test_what_an_act_leaves_belongs_to_the_same_step",
    ),
    Mutant(
        name="empty-batches-alone",
        rule="a consumer does not get empty batches alone if records follow",
        module="anabranch.core.api.empty_batches",
        old="        if follows >= limit or looked_at > MOST_BYTES_PAST:\n",
        new="        if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_empty_batches.py"
        "::test_a_consumer_is_given_a_record_while_one_follows_and_passes_over_none",
    ),
    Mutant(
        name="rotten-batch-passed-over",
        rule="a batch is not passed over as empty if its count of records may have rotted to 0",
        module="anabranch.core.api.empty_batches",
        old=" or not crc_is_valid(records, position, header.size_bytes):\n",
        new=":\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_empty_batches.py::test_a_batch_whose_header_rotted_is_given_as_it_is[26]",
    ),
    Mutant(
        name="unknown-epoch-by-an-unproven-leader",
        rule="a leader confirms that it leads before it reports UNKNOWN_LEADER_EPOCH",
        module="anabranch.core.api.p23_offset_for_leader_epoch",
        old="is_beyond = found.may_be_deposed and partition.leader_epoch > found.leader_epoch",
        new="is_beyond = False",
        seed=NO_SCHEDULE,
        caught_by=f"{BEYOND}::test_a_deposed_leader_does_not_say_that_it_knows_no_such_epoch",
    ),
    Mutant(
        name="missing-request-without-a-name",
        rule="the log names the request that a client sent and no node answers",
        module="anabranch.core.api.unserved",
        old='    name = served_name or UNSERVED.get(api_key, "")\n',
        new="    name = served_name\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_unserved.py::test_a_key_is_named_where_it_has_a_name",
    ),
    Mutant(
        name="held-up-never-refuses",
        rule="no batch is accepted before the refused one that it follows",
        module=SEQUENCE_GAPS,
        old="held.is_awaited(now_ms) and is_behind(sequence, held.sequence):",
        new="False:",
        seed=NO_SCHEDULE,
        caught_by=HELD_UP_ORDER,
    ),
    Mutant(
        name="held-up-one-epoch-at-a-time",
        rule="a gap in one epoch of a producer is remembered whatever happens in another epoch",
        module=SEQUENCE_GAPS,
        old="            self.first.pop(key, None)\n",
        new="            for each in [each for each in self.first if each[:2] == key[:2]]:\n"
        "                del self.first[each]\n",
        seed=NO_SCHEDULE,
        caught_by=HELD_UP_ORDER,
    ),
    Mutant(
        name="empty-batches-have-a-time",
        rule="a batch without records is not the newest by time",
        module="anabranch.core.wire.batch",
        old="return self.max_timestamp if self.record_count else -1",
        new="return self.max_timestamp",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_compaction.py"
        "::test_the_newest_record_by_time_is_found_though_newer_ones_are_gone",
    ),
    Mutant(
        name="refusals-of-unknown-topics-take-memory",
        rule="refused batches of topics that do not exist are counted together",
        module="anabranch.core.api.p00_produce",
        old="known = name if broker.image.topic(name) is not None else NO_TOPIC",
        new="known = name",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_produce.py"
        "::test_r19_every_batch_that_is_refused_is_counted",
    ),
    Mutant(
        name="followers-answered-at-the-end",
        rule="a follower is sent what it copies before the leader reads for the next one",
        module="anabranch.core.node.outcomes",
        old="        if slot.is_urgent:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_dispatch.py"
        "::test_an_answer_that_others_wait_for_is_sent_before_the_next_is_looked_at[True]",
    ),
    Mutant(
        name="one-connection-cannot-fill-the-write-buffers",
        rule="the limit for records that wait for a store applies to all connections together",
        module="anabranch.core.node.requests",
        old="if stored_later_bytes:  #",
        new="if False:  #",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_connection.py"
        "::test_what_waits_for_a_store_is_bounded_for_all_connections_not_for_each[True]",
    ),
    Mutant(
        name="end-overtakes-a-waiting-join",
        rule="requests that a client sends after a waiting join run after it",
        module="anabranch.core.node.outcomes",
        old="        slot.is_alone = slot.is_alone or wait.holds_up\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_connection.py"
        "::test_a_wait_that_says_so_holds_up_what_comes_behind_it",
    ),
    Mutant(
        name="part-that-waits-on-is-told",
        rule="an answer of many parts is sent when none of its parts waits",
        module="anabranch.core.outcome",
        old="return when_all(found, respond) if goes_on or not waits else None",
        new="return None if waits else respond(found)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_outcome.py"
        "::test_a_part_may_wait_for_something_else_while_others_wait_still",
    ),
    Mutant(
        name="parts-are-over-together",
        rule="each part of an answer is waited for until its own time is over",
        module="anabranch.core.outcome",
        old="expired and wait.deadline_ms <= deadline_ms",
        new="expired",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_outcome.py"
        "::test_each_part_is_waited_for_until_its_own_time_is_over",
    ),
    Mutant(
        name="who-waits-on-is-left-when-a-node-stops",
        rule="a node that stops answers each request, also one that goes on to wait",
        module="anabranch.core.api.purgatory",
        old="while is_last and isinstance(outcome, Wait):",
        new="while False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_purgatory.py"
        "::test_who_goes_on_to_wait_is_answered_too_when_the_node_stops",
    ),
    Mutant(
        name="committed-while-verified-is-waited-for",
        rule="records committed while another partition is verified are not waited for",
        module="anabranch.core.api.p00_produce",
        old="        acks = request.body.acks\n"
        "        pending[:] = [entry for entry in pending if not _settled(broker, entry, acks)]\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_what_is_committed_while_another_partition_is_verified_is_not_waited_for",
    ),
    Mutant(
        name="diskless-offsets-listed-from-the-cache",
        rule="listed offsets include what any broker has acknowledged before",
        module="anabranch.core.api.p02_list_offsets",
        old="        replica.ensure_current(since)\n",
        new="        replica.ensure_current()\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DATA_PATH_TESTS}::test_offsets_are_listed_as_they_are_now_and_exactly_by_time",
    ),
    Mutant(
        name="crowd-holds-up-the-last-one-alone",
        rule="while a store is overloaded, all connections that bring records for it wait",
        module=CROWDING,
        old="            for each in self._bringing:\n",
        new="            for each in (asker,):\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CONNECTION_TESTS}"
        "::test_who_brings_more_than_there_is_room_for_is_not_read_until_there_is",
    ),
    Mutant(
        name="lost-request-arrives-for-ever",
        rule="bytes of an incomplete request count until its connection is lost",
        module="anabranch.server.connection",
        old="            self._memory.arrived_bytes -= self._filled\n        self._memory.release(0",
        new="            pass\n        self._memory.release(0",
        seed=NO_SCHEDULE,
        caught_by=f"{CONNECTION_TESTS}::test_who_leaves_makes_room",
    ),
    Mutant(
        name="first-to-bring-is-always-first",
        rule="of waiting connections, the one that brought records last is read last",
        module=CROWDING,
        old="        self._bringing.pop(asker, None)\n        self._bringing[asker] = None",
        new="        self._bringing[asker] = None",
        seed=NO_SCHEDULE,
        caught_by=f"{CONNECTION_TESTS}"
        "::test_of_those_that_are_read_again_the_first_may_take_all_room",
    ),
    Mutant(
        name="answers-overtake",
        rule="an answer waits for those of earlier requests",
        module="anabranch.core.node.channel",
        old="            if self._slots:\n                self._owe(Slot",
        new="            if False:\n                self._owe(Slot",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="alone-is-not-alone",
        rule="nothing is run behind a request that must be alone",
        module="anabranch.core.node.channel",
        old="            if answer.is_alone and not answer.is_done:",
        new="            if False:",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="answers-that-wait-have-no-budget",
        rule="answers that wait for earlier ones are bounded in bytes",
        module="anabranch.core.node.channel",
        old="            and self.held_bytes <= UNSENT_HIGH_BYTES\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="promises-have-no-budget",
        rule="what parked requests of one connection may bring is bounded",
        module="anabranch.core.node.channel",
        old="            and self.promised_bytes <= PROMISED_HIGH_BYTES\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="slow-peers-are-served",
        rule="no request is run for a peer that does not take its answers",
        module="anabranch.core.node.channel",
        old="            and self._sending\n            and self.held",
        new="            and self.held",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="answers-follow-what-is-lent-at-once",
        rule="nothing follows an answer that keeps its link busy until it has left",
        module="anabranch.core.node.channel",
        old="        if self._link.is_busy:\n            return  #",
        new="        if False:\n            return  #",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="muted-request-is-run-last",
        rule="a request that a mute holds up is run before those behind it",
        module="anabranch.core.node.channel",
        old="        self._queue.appendleft(frame)",
        new="        self._queue.append(frame)",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="queues-have-no-budget",
        rule="a connection whose requests queue up is not read",
        module="anabranch.core.node.channel",
        old="                or self._queued_bytes > QUEUED_HIGH_BYTES\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="abandoned-requests-stay-parked",
        rule="nobody waits for an answer to a connection that has ended",
        module="anabranch.core.node.channel",
        old="            self._requests.abandon(slot)",
        new="            pass",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="lost-decisions-hold-memory",
        rule="a connection that ends holds no memory",
        module="anabranch.core.node.channel",
        old="self._queue)) + self._end_block())",
        new="self._queue)))",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="what-was-sent-before-the-end-is-dropped",
        rule="what a client sent before it ended the connection is run",
        module="anabranch.core.node.channel",
        old="        if self._closes_when_run and not self.has_runnable:",
        new="        if self._closes_when_run:",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="mutes-are-not-kept",
        rule="no request of a muted connection is run before the mute is over",
        module="anabranch.core.node.requests",
        old="            if verdict is Verdict.WAIT and not self.is_stopping:",
        new="            if False:",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="answers-before-far-reads",
        rule="an answer waits for all that it lacks",
        module="anabranch.core.node.outcomes",
        old="        slot.missing = 1 + bool(near) + bool(far)",
        new="        slot.missing = 1 + bool(far)",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="ended-requests-go-on",
        rule="what comes too late for a request does nothing",
        module="anabranch.core.node.outcomes",
        old="        if not slot.is_done:\n            self.resolve(slot, outcome)",
        new="        self.resolve(slot, outcome)",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
)
