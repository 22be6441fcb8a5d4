"""Broken rules of leaders, in-sync replicas and moves, as controllers decide them."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

CARRIED = "tests/core/controller/test_plans.py"
ELECTIONS = "anabranch.core.controller.partitions.elections"
IN_SYNC_CHANGES = "anabranch.core.controller.partitions.in_sync_replicas"
ISR_TESTS = "tests/core/controller/test_in_sync.py"
LEADERS = "tests/core/controller/test_leader_histories.py"
MOVES = "tests/core/controller/test_reassignment.py"
ROOM_TESTS = "tests/core/controller/test_room.py"

MUTANTS = (
    Mutant(
        name="any-replica-may-lead",
        rule="only an in-sync replica is elected, unless the topic allows unclean elections",
        module=ELECTIONS,
        old="        if broker_id in candidates and broker_id in holding:",
        new="        if broker_id in holding:",
        seed=1,
        caught_by="L4",
    ),
    Mutant(
        name="an-empty-disk-may-lead",
        rule="a member of the ISR that lost its disk does not lead",
        module=ELECTIONS,
        old="holding = [each for each in usable if each not in rules.emptied or each in joined]",
        new="holding = usable",
        seed=413,
        caught_by="L4",
    ),
    Mutant(
        name="preferred-leads-out-of-sync",
        rule="a preferred leader leads when it is in sync",
        module=ELECTIONS,
        old="may_lead = preferred in partition.isr and preferred not in",
        new="may_lead = preferred not in",
        seed=1000000005,
        caught_by="M3",
    ),
    Mutant(
        name="moved-away-and-in-sync",
        rule="a replica that a move removes leaves the ISR",
        module="anabranch.core.controller.moves.reassignment",
        old="    return Move(target), remaining\n",
        new="    return Move(target), isr\n",
        seed=221,
        caught_by="M3",
    ),
    Mutant(
        name="cancelled-move-keeps-the-added-replica",
        rule="a cancelled move restores the replicas from before it",
        module="anabranch.core.controller.moves.reassignment",
        old="    replicas = partition.former or Move.of(partition).original\n",
        new="    replicas = partition.replicas\n",
        seed=44,
        caught_by="M3",
    ),
    Mutant(
        name="refilled-replica-passed-over",
        rule="a replica that was emptied may lead again once it has joined the ISR",
        module=ELECTIONS,
        old="holding = [each for each in usable if each not in rules.emptied or each in joined]",
        new="holding = [each for each in usable if each not in rules.emptied]",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}"
        "::test_a_wiped_replica_that_was_filled_again_leads_when_a_move_leaves_it_alone",
    ),
    Mutant(
        name="added-replica-leads-empty",
        rule="a replica that a move adds leads uncleanly only when an operator asks for it",
        module=ELECTIONS,
        old="chosen = [each for each in last_resort if each not in added]",
        new="chosen = [*last_resort]",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}"
        "::test_a_replica_that_comes_does_not_lead_while_those_that_have_the_records_are_down",
    ),
    Mutant(
        name="cancel-puts-the-first-in-sync",
        rule="cancelling a move adds no replica to the ISR",
        module="anabranch.core.controller.moves.reassignment",
        old="return Move(replicas), isr, set(holders).isdisjoint(replicas)",
        new="return Move(replicas), isr or replicas[:1], False",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}"
        "::test_a_move_taken_back_to_a_replica_out_of_sync_is_an_unclean_election",
    ),
    Mutant(
        name="cancel-leaves-no-leader",
        rule="a move is not cancelled if none of the earlier replicas may lead",
        module="anabranch.core.controller.moves.requests",
        old="if leader < 0 and (may_lose or partition.leader >= 0):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}::test_a_move_is_not_taken_back_to_replicas_that_are_all_dead",
    ),
    Mutant(
        name="cancel-changes-the-order",
        rule="a cancelled move restores the replicas in the order that they had",
        module="anabranch.core.controller.moves.reassignment",
        old="    replicas = partition.former or Move.of(partition).original\n",
        new="    replicas = Move.of(partition).original\n",
        seed=NO_SCHEDULE,
        caught_by=f"{MOVES}::test_whatever_was_asked_meanwhile_a_move_taken_back_restores_all",
    ),
    Mutant(
        name="former-order-not-in-the-snapshot",
        rule="a cancelled move restores the order also after a controller began with a snapshot",
        module="anabranch.core.metadata.concerns.topics",
        old="        former_replicas=list(partition.former),\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{MOVES}::test_whatever_was_asked_meanwhile_a_move_taken_back_restores_all",
    ),
    Mutant(
        name="join-from-a-failed-folder",
        rule="a replica whose folder failed in its broker's present life does not join the ISR",
        module=IN_SYNC_CHANGES,
        old="    _check_folders(image, sessions, partition, wanted)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_directories.py"
        "::test_a_fetch_from_before_its_folder_failed_brings_no_replica_back_in_sync",
    ),
    Mutant(
        name="stale-change-of-the-isr",
        rule="a change of the ISR that is based on an older state is refused",
        module=IN_SYNC_CHANGES,
        old="if wanted.partition_epoch < partition.partition_epoch:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{ISR_TESTS}::test_a_change_that_stands_on_an_older_state_is_refused",
    ),
    Mutant(
        name="change-by-a-former-leader",
        rule="only the leader of the present epoch changes the ISR",
        module=IN_SYNC_CHANGES,
        old="if wanted.leader_epoch < partition.leader_epoch:\n"
        "        raise ClientFault(ErrorCode.FENCED_LEADER_EPOCH)\n"
        "    if broker_id != partition.leader:",
        new="if broker_id not in partition.replicas:",
        seed=NO_SCHEDULE,
        caught_by=f"{ISR_TESTS}::test_each_refusal_has_its_code_and_writes_nothing",
    ),
    Mutant(
        name="join-of-an-earlier-life",
        rule="a follower joins as the broker epoch that it fetched with (KIP-903)",
        module=IN_SYNC_CHANGES,
        old="if broker is None or not broker.active or epoch not in (ANY_EPOCH, broker.epoch):",
        new="if broker is None or not broker.active:",
        seed=NO_SCHEDULE,
        caught_by=f"{ISR_TESTS}::test_a_replica_that_was_restarted_is_told_by_its_epoch",
    ),
    Mutant(
        name="full-disk-joins",
        rule="a replica without disk space does not join the ISR",
        module=IN_SYNC_CHANGES,
        old="if not joining.isdisjoint(rules.roomless):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_who_has_no_room_does_not_join",
    ),
    Mutant(
        name="full-leader-keeps-what-joins",
        rule="a leader without disk space hands over to a replica that joins the ISR",
        module=IN_SYNC_CHANGES,
        old="isr = with_room(named, rules, partition.isr)",
        new="isr = named",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_the_last_one_in_sync_leads_on_for_readers_and_gives_way_to_who_joins",
    ),
    Mutant(
        name="full-disk-is-elected-first",
        rule="of the replicas that may lead, those with disk space come first",
        module=ELECTIONS,
        old="for broker_id in sorted(order, key=lambda each: each in rules.roomless):",
        new="for broker_id in order:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_of_those_who_may_lead_cleanly_those_with_room_come_first",
    ),
    Mutant(
        name="full-disk-is-preferred",
        rule="a preferred leader leads again only when it has disk space",
        module=ELECTIONS,
        old="preferred not in (*rules.emptied, *rules.roomless)",
        new="preferred not in rules.emptied",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_preferred_leaders_wait_for_room",
    ),
    Mutant(
        name="drain-does-not-cordon",
        rule="a plan cordons the brokers that it drains before the first move",
        module="anabranch.core.controller.moves.plans",
        old="*cordon_on(plan.cordons), ",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{CARRIED}"
        "::test_a_drain_cordons_first_and_only_its_own_cordon_is_taken_back[False-none]",
    ),
    Mutant(
        name="plan-copies-from-nobody",
        rule="a plan waits for the brokers that have the records of a partition that nobody leads",
        module="anabranch.core.controller.moves.plan_states",
        old="    if copies and partition.leader < 0:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{CARRIED}::test_moves_of_which_nobody_has_the_records_wait_for_whoever_has",
    ),
    Mutant(
        name="foreign-cordon-removed",
        rule="a plan that is cancelled removes no cordon that was there before it",
        module="anabranch.core.controller.moves.plan_cordons",
        old=" and not is_cordoned(image, each)",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{CARRIED}"
        "::test_a_drain_cordons_first_and_only_its_own_cordon_is_taken_back[True-cancel]",
    ),
    Mutant(
        name="internal-topic-grows",
        rule="the number of partitions of an internal topic never changes",
        module="anabranch.core.controller.topics.topics",
        old="    if is_internal(topic.name):\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_topics.py::test_an_internal_topic_does_not_grow",
    ),
)
