"""Joining, assigning, staying and leaving (R15); codes and order as in Kafka 4.1."""

from __future__ import annotations

import pytest
from tests.core.coordination.groups.group_world import SESSION_MS, GroupWorld, subscription

from anabranch.core.coordination.transactions.shard import TransactionShard
from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest
from anabranch.core.wire.messages.list_groups import ListGroupsRequest


def both(world):
    """A stable group of two: (leader, other, generation)."""
    leader, _ = world.one_member()
    waiting = world.enter()
    again = world.join(leader)
    other = waiting[0].member_id
    generation = again.generation_id
    late = world.sync(other, generation)
    world.sync(leader, generation, {leader: b"L", other: b"O"})
    assert late[0].assignment == b"O"
    return leader, other, generation


def test_a_new_member_is_first_given_its_id(world):
    first = world.join(client_id="me")
    assert first.error_code == ErrorCode.MEMBER_ID_REQUIRED
    assert first.member_id.startswith("me-")
    joined = world.join(first.member_id)
    assert (joined.error_code, joined.generation_id, joined.leader) == (0, 1, first.member_id)
    assert [each.member_id for each in joined.members] == [first.member_id]
    assert joined.protocol_name == "range"


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_before_version_4_a_member_joins_at_once(version):
    world = GroupWorld()
    joined = world.join(version=version)
    assert (joined.error_code, joined.generation_id) == (0, 1)
    assert world.group().members[joined.member_id].rebalance_timeout_ms == (
        SESSION_MS if version == 0 else 60_000
    )


def test_a_given_id_that_is_never_used_leaves_nothing_behind(world):
    world.join(session_ms=10_000)
    assert world.state() == "Empty"
    world.advance(10_000)
    assert world.state() == "none"


def test_the_second_member_waits_until_the_first_has_joined_again(world):
    leader, generation = world.one_member()
    waiting = world.enter()
    assert waiting == [] and world.state() == "PreparingRebalance"
    assert world.heartbeat(leader, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    again = world.join(leader)
    assert again.generation_id == waiting[0].generation_id == 2
    assert len(again.members) == 2 and waiting[0].members == []
    assert waiting[0].leader == leader
    assert world.state() == "CompletingRebalance"


def test_followers_wait_for_the_leaders_assignment(world):
    leader, other, generation = both(world)
    assert world.state() == "Stable"
    assert world.sync(other, generation).assignment == b"O"
    assert world.heartbeat(other, generation) == world.heartbeat(leader, generation) == 0


def test_a_silent_member_is_out_after_its_session(world):
    leader, other, generation = both(world)
    world.advance(SESSION_MS - 1)
    assert world.heartbeat(leader, generation) == 0
    world.advance(1)
    assert world.state() == "PreparingRebalance"
    assert world.heartbeat(other, generation) == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.join(leader).generation_id == generation + 1
    assert list(world.group().members) == [leader]


def test_who_does_not_join_again_in_time_is_out(world):
    leader, other, generation = both(world)
    waiting = world.join(leader, protocols={"range": b"changed"})
    for _ in range(6):
        world.advance(SESSION_MS - 1)
        world.heartbeat(other, generation)
    assert waiting == []
    world.advance(6)
    assert waiting[0].generation_id == generation + 1
    assert list(world.group().members) == [leader]


def test_who_joined_and_never_syncs_is_out(world):
    leader, other, generation = both(world)
    waiting = world.join(other, protocols={"range": b"changed"})
    assert world.join(leader).generation_id == generation + 1
    assert waiting[0].error_code == 0
    for _ in range(7):
        world.advance(9_000)
        world.heartbeat(leader, generation + 1)
        world.heartbeat(other, generation + 1)
    assert world.state() == "Empty" and world.group().members == {}


def test_the_last_member_leaves_an_empty_group(world):
    member, _ = world.one_member()
    assert world.leave((member, None)).members[0].error_code == 0
    assert world.state() == "Empty"
    assert world.leave((member, None)).members[0].error_code == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_leaves_makes_room_at_once(world):
    leader, other, generation = both(world)
    world.leave((leader, None))
    assert world.heartbeat(other, generation) == ErrorCode.REBALANCE_IN_PROGRESS
    joined = world.join(other)
    assert (joined.leader, joined.generation_id) == (other, generation + 1)


def test_first_members_wait_for_more_and_more(world):
    world = GroupWorld(group_initial_rebalance_delay_ms="3000")
    first = world.enter(rebalance_ms=7_000)
    world.advance(2_999)
    second = world.enter(rebalance_ms=7_000)
    world.advance(1)
    assert first == second == []
    world.advance(2_999)
    world.enter(rebalance_ms=7_000)
    world.advance(1)
    assert first == [], "a third member came: one more second is left of seven"
    world.advance(1_000)
    assert first[0].generation_id == second[0].generation_id == 1
    assert len(first[0].members) == 3


def test_the_same_protocols_again_change_nothing(world):
    _leader, other, generation = both(world)
    again = world.join(other)
    assert (again.generation_id, again.members, world.state()) == (generation, [], "Stable")


def test_a_leader_that_joins_again_starts_a_rebalance(world):
    leader, other, generation = both(world)
    assert world.join(leader) == []
    assert world.state() == "PreparingRebalance"
    assert world.join(other).generation_id == generation + 1


def test_a_lost_answer_is_given_again(world):
    joined = world.enter()
    again = world.join(joined.member_id)
    assert (again.generation_id, len(again.members)) == (joined.generation_id, 1)


def test_the_protocol_is_the_one_that_most_prefer(world):
    both_kinds = {"sticky": subscription("t"), "range": subscription("t")}
    first = world.enter(protocols=both_kinds)
    assert first.protocol_name == "sticky"
    world.sync(first.member_id, 1, {}, protocol="sticky")
    second = world.enter(protocols={"range": subscription("t")})
    again = world.join(first.member_id, protocols=both_kinds)
    assert again.protocol_name == second[0].protocol_name == "range"
    refused = world.join(protocols={"sticky": b""})
    assert refused.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.join(protocol_type="connect").error_code == refused.error_code


@pytest.mark.parametrize("how", [{"protocols": {}}, {"protocol_type": ""}])
def test_a_group_is_not_made_by_who_says_nothing(world, how):
    assert world.join(**how).error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.state() == "none"


@pytest.mark.parametrize(
    ("how", "code"),
    [
        ({"group_id": ""}, ErrorCode.INVALID_GROUP_ID),
        ({"session_ms": 5_999}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"session_ms": 1_800_001}, ErrorCode.INVALID_SESSION_TIMEOUT),
        ({"member_id": "stranger"}, ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_what_a_join_is_refused_for(world, how, code):
    member_id = how.pop("member_id", "")
    assert world.join(member_id, **how).error_code == code
    assert world.groups.groups == {}


def test_a_full_group_takes_nobody(world):
    world = GroupWorld(group_max_size="1")
    member, _ = world.one_member()
    assert world.join().error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert world.join(member).error_code == 0


def test_generation_protocol_and_member_are_checked_in_this_order(world):
    member, generation = world.one_member()
    assert world.sync("stranger", 99).error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.sync(member, 99).error_code == ErrorCode.ILLEGAL_GENERATION
    wrong = world.sync(member, generation, protocol="sticky")
    assert wrong.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert world.sync(member, generation, group_id="other").error_code == (
        ErrorCode.UNKNOWN_MEMBER_ID
    )
    assert world.heartbeat(member, 99) == ErrorCode.ILLEGAL_GENERATION
    assert world.heartbeat("stranger", generation) == ErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_ends_the_wait_for_an_assignment(world):
    leader, other, generation = both(world)
    world.join(leader)
    world.join(other)
    late = world.sync(other, generation + 1)
    world.join(leader, protocols={"range": b"changed"})
    assert late[0].error_code == ErrorCode.REBALANCE_IN_PROGRESS


def test_a_wall_clock_that_is_set_expires_nobody(world):
    member, generation = world.one_member()
    world.node.now_ms += 3_600_000
    world.groups.tick(world.node.now_ms)
    assert world.heartbeat(member, generation) == 0


def test_a_session_that_is_over_keeps_no_group_from_being_deleted(world):
    """A request may be read before the timer of the same millisecond rings."""
    member, generation = world.one_member(instance_id="i")
    delete = DeleteGroupsRequest(groups_names=["g"])
    world.broker.steady_ms += SESSION_MS - 1
    assert world.ask(delete, 2).results[0].error_code == ErrorCode.NON_EMPTY_GROUP
    world.broker.steady_ms += 1
    assert world.ask(delete, 2).results[0].error_code == 0
    assert world.state() == "none"
    assert world.heartbeat(member, generation, "i") == ErrorCode.UNKNOWN_MEMBER_ID


# Static members (KIP-345).


def test_a_static_member_takes_its_place_back_in_peace(world):
    old, generation = world.one_member(instance_id="i")
    again = world.join(instance_id="i")
    assert again.generation_id == generation and again.member_id != old
    assert again.skip_assignment and again.leader == again.member_id
    assert world.state() == "Stable"
    assert world.sync(again.member_id, generation, instance_id="i").assignment == b"all"
    assert world.heartbeat(old, generation, "i") == ErrorCode.FENCED_INSTANCE_ID
    assert world.heartbeat(again.member_id, generation, "i") == 0


def test_before_version_9_the_leader_looks_like_a_follower(world):
    old, _generation = world.one_member(instance_id="i")
    again = world.join(instance_id="i", version=8)
    assert (again.leader, again.members, again.skip_assignment) == (old, [], False)


def test_a_static_member_is_known_after_its_session_only_by_name(world):
    world.one_member(instance_id="i")
    world.advance(SESSION_MS)
    assert world.state() == "Empty" and world.group().static_members == {}


def test_a_static_member_that_waits_is_fenced_by_its_successor(world):
    leader, _ = world.one_member()
    waiting = world.join(instance_id="i")
    successor = world.join(instance_id="i")
    assert waiting[0].error_code == ErrorCode.FENCED_INSTANCE_ID
    world.join(leader)
    assert successor[0].error_code == 0


def test_static_members_stay_when_a_rebalance_is_over(world):
    leader, _ = world.one_member()
    waiting = world.join(instance_id="i", session_ms=300_000)
    joined = world.join(leader)
    static = waiting[0].member_id
    world.sync(leader, joined.generation_id, {})
    world.sync(static, joined.generation_id, instance_id="i")
    again = world.join(leader, protocols={"range": b"changed"}, session_ms=300_000)
    world.advance(60_000)
    assert again[0].generation_id == 3
    assert set(world.group().members) == {leader, static}


@pytest.mark.parametrize("timeout_ms", [0, 1])
@pytest.mark.parametrize("is_reloaded", [False, True])
def test_silent_static_members_that_ask_for_no_time_do_not_keep_the_coordinator_busy(
    world, monkeypatch, is_reloaded, timeout_ms
):
    """The longest of no times is over at once, again and again, while only they are there."""
    leader, _ = world.one_member(instance_id="a", session_ms=300_000, rebalance_ms=1_000)
    waiting = world.join(instance_id="b", rebalance_ms=1_000)
    joined = world.join(leader, instance_id="a", session_ms=300_000, rebalance_ms=1_000)
    other = waiting[0].member_id
    world.sync(leader, joined.generation_id, {other: b"b"}, instance_id="a")
    world.sync(other, joined.generation_id, instance_id="b")
    for instance, session_ms in (("a", 300_000), ("b", SESSION_MS)):
        world.join(instance_id=instance, session_ms=session_ms, rebalance_ms=timeout_ms)
    assert (world.state(), world.group().rebalance_timeout_ms) == ("Stable", timeout_ms)
    if is_reloaded:
        world.restart()
    planned, after = [], world.groups.after

    def counted(delay_ms, action):
        planned.append(delay_ms)
        assert len(planned) < 100, "one turn goes on for ever"
        return after(delay_ms, action)

    monkeypatch.setattr(world.groups, "after", counted)
    if is_reloaded:
        world.advance(SESSION_MS)
    else:
        world.leave(("", "b"))
    for _ in range(1_000):
        world.advance(1)
    assert world.state() == "PreparingRebalance"
    assert len(planned) < 10
    world.advance(300_000)
    assert world.state() == "Empty"


def test_an_administrator_removes_a_static_member_by_its_instance_id(world):
    world.one_member(instance_id="i")
    left = world.leave(("", "i"), ("", "unknown"))
    assert [each.error_code for each in left.members] == [0, ErrorCode.UNKNOWN_MEMBER_ID]
    assert world.state() == "Empty"


# The coordinator moves.


def test_who_waits_is_told_when_the_coordinator_moves(world):
    leader, _ = world.one_member()
    waiting = world.enter()
    for index in range(3):
        world.node.change("__consumer_offsets", index, leader=2, leader_epoch=1)
    world.groups.follow_leadership(world.node.now_ms)
    world.wake()
    assert waiting[0].error_code == ErrorCode.NOT_COORDINATOR
    assert world.heartbeat(leader, 1) == ErrorCode.NOT_COORDINATOR
    assert world.groups.groups == {} and len(world.groups.timers) == 0


def test_the_next_coordinator_knows_generation_and_assignments(world):
    leader, other, generation = both(world)
    world.restart()
    assert world.state() == "Stable"
    assert world.sync(other, generation).assignment == b"O"
    assert world.sync(leader, generation).assignment == b"L"
    assert world.heartbeat(other, generation) == 0
    world.advance(SESSION_MS)
    assert world.state() == "Empty", "sessions begin anew, and end"


def test_requests_are_told_to_wait_while_the_log_is_read(world):
    member, generation = world.one_member()
    world.commit({0: 5}, generation_id=generation, member_id=member)
    world.groups.__init__(world.broker)
    assert world.commit_codes({0: 6}) == [ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    assert world.heartbeat(member, generation) == 0
    assert world.sync(member, generation).error_code == ErrorCode.REBALANCE_IN_PROGRESS
    assert world.join(member).error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    world.restart()
    assert world.fetch()[0] == 5


def test_groups_are_listed_as_loading_while_one_of_their_own_partitions_is_read(world):
    world.one_member()
    world.node.topic(TRANSACTION_TOPIC, 1)
    transactions = world.broker.transactions
    ids = TransactionShard(world.broker, world.node.replica(TRANSACTION_TOPIC), transactions)
    world.broker.mailbox.to_load.append(ids)

    def listed():
        answer = world.ask(ListGroupsRequest(), 5)
        return answer.error_code, len(answer.groups), world.groups.statistics()["loading"]

    assert listed() == (0, 1, 0)
    world.broker.mailbox.to_load.clear()
    world.groups.__init__(world.broker)
    world.groups.follow_leadership(world.node.now_ms)
    assert listed() == (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, 0, 1)


def test_an_id_that_was_given_to_a_dynamic_member_joins_as_no_static_one(world):
    static = world.join(instance_id="i")
    given = world.join().member_id
    answer = world.join(given, instance_id="i")
    assert answer.error_code == ErrorCode.FENCED_INSTANCE_ID
    assert world.join(given, instance_id="j").error_code == ErrorCode.UNKNOWN_MEMBER_ID
    assert world.group().static_members == {"i": static.member_id}
    assert list(world.group().members) == [static.member_id]


@pytest.mark.parametrize("count", [2, 4])
def test_a_member_is_limited_by_each_protocol_and_not_by_the_sum_of_all(world, count):
    """Only what it says under the chosen protocol becomes part of the group's record (KAFKA-2017);
    clients offer several, each with all their topics."""
    most = world.broker.config.message_max_bytes
    large = {name: bytes(most - 1000) for name in ("range", "a", "b", "c")[:count]}
    joined = world.enter(protocols=large)
    assert (joined.error_code, joined.protocol_name) == (0, "range")
    synced = world.sync(joined.member_id, joined.generation_id, {joined.member_id: b"A"})
    assert (synced.error_code, synced.assignment) == (0, b"A")


def test_a_protocol_that_no_record_of_the_group_could_hold_is_refused(world):
    most = world.broker.config.message_max_bytes
    for protocols in (
        {"small": b"", "large": bytes(most)},
        {f"p{n}": bytes(most // 2) for n in range(20)},
    ):
        assert world.join(protocols=protocols).error_code == ErrorCode.INVALID_REQUEST
        assert world.state() == "none"
