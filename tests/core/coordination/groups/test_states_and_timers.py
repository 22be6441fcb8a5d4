"""The transition table, the timers, and that what is loaded is what was lived (R15)."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.coordination.groups.group_world import GroupWorld

from anabranch.core.coordination.groups.classic.group import Group
from anabranch.core.coordination.groups.classic.states import MAY_COME_FROM, GroupState
from anabranch.core.coordination.groups.classic.subscription import subscribed_topics
from anabranch.core.coordination.groups.loader import Loader
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.coordination.groups.shard import Shard
from anabranch.core.coordination.internal_topics import java_hash
from anabranch.core.coordination.timers import DEAD_ENTRIES_KEPT, Timers
from anabranch.core.errors import Bug, CorruptLog
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.records import Record, build_batch


def test_a_move_that_the_table_does_not_know_is_a_bug():
    world = GroupWorld()
    shard = Shard(world.broker, world.node.replica(OFFSETS_TOPIC), world.groups)
    for state in GroupState:
        for before in GroupState:
            group = Group("g", shard, 0)
            group.state = before
            if before in MAY_COME_FROM[state]:
                group.become(state, 5)
                assert (group.state, group.previous_state, group.state_since_ms) == (
                    state,
                    before,
                    5,
                )
            else:
                with pytest.raises(Bug):
                    group.become(state, 5)


def test_timers_ring_in_order_and_once():
    timers, rung = Timers(), []
    for due in (30, 10, 20):
        timers.at(due, lambda _now, due=due: rung.append(due))
    timers.at(15, rung.append).cancel()
    assert timers.next_due_ms() == 10
    timers.run(20, 0)
    assert rung == [10, 20]
    timers.run(100, 0)
    timers.run(100, 0)
    assert rung == [10, 20, 30] and timers.next_due_ms() is None


def test_what_a_timer_plans_for_now_rings_in_the_next_turn():
    timers, rung = Timers(), []

    def again(_now):
        rung.append(len(rung))
        assert len(rung) < 5, "one turn goes on for ever"
        timers.at(10, again)

    timers.at(10, again)
    timers.at(10, lambda _now: rung.append("other"))
    timers.run(10, 0)
    assert rung == [0, "other"] and timers.next_due_ms() == 10
    timers.run(10, 0)
    assert rung == [0, "other", 2]


def test_cancelled_timers_do_not_pile_up():
    timers = Timers()
    for _ in range(10 * DEAD_ENTRIES_KEPT):
        timers.at(1_000, lambda _now: None).cancel()
    assert len(timers._heap) <= 2 * DEAD_ENTRIES_KEPT


@pytest.mark.parametrize(
    "bad", [b"", b"\0", b"\0\1\0\0\0\1", b"\0\1\x7f\xff\xff\xff", b"\0\1\0\0\0\1\0\x09t",
            b"\xff\xff\0\0\0\0", b"\0\1\0\0\0\1\0\1\xff"],
)  # fmt: skip
def test_a_subscription_that_cannot_be_read_is_none(bad):
    assert subscribed_topics([bad]) is None


STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("commit"), st.integers(0, 7), st.integers(0, 99), st.sampled_from("gh")),
        st.tuples(st.just("member"), st.just(0), st.just(0), st.sampled_from("gh")),
        st.tuples(st.just("leave"), st.just(0), st.just(0), st.sampled_from("gh")),
        st.tuples(st.just("delete"), st.just(0), st.just(0), st.sampled_from("gh")),
        st.tuples(st.just("wait"), st.integers(1, 20_000), st.just(0), st.just("g")),
    ),
    max_size=25,
)


@settings(max_examples=60, deadline=None)
@given(STEPS)
def test_what_is_loaded_is_what_was_lived(steps):
    """Offsets, generations, members and assignments are the same for the next coordinator."""
    from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest

    world = GroupWorld()
    for step, number, offset, name in steps:
        group = world.group(name)
        members = {} if group is None else group.members
        member = next(iter(members), "")
        if step == "commit" and not (group and group.state.value == "PreparingRebalance"):
            generation = group.generation_id if member else -1
            world.commit(
                {number: offset}, group_id=name, generation_id=generation, member_id=member
            )
        elif step == "member" and not member:
            world.one_member(group_id=name)
        elif step == "leave" and member:
            world.leave((member, None), group_id=name)
        elif step == "delete":
            world.ask(DeleteGroupsRequest(groups_names=[name]), 2)
        elif step == "wait":
            world.advance(number)
    lived = {name: seen(group) for name, group in world.groups.groups.items()}
    world.restart()
    assert {name: seen(group) for name, group in world.groups.groups.items()} == lived


def seen(group):
    members = {name: (m.session_timeout_ms, m.assignment) for name, m in group.members.items()}
    return group.offsets, group.generation_id, members, group.protocol_type, group.leader_id


def place_of(world):
    return world.node.replica(OFFSETS_TOPIC, java_hash("g") % 3)


def test_offsets_of_a_transaction_count_when_it_is_committed():
    world = GroupWorld()
    world.commit({0: 1})
    replica = place_of(world)
    key, value = (
        b"\0\1\0\1g\0\1t\0\0\0\0",
        b"\0\3" + (50).to_bytes(8) + b"\xff\xff\xff\xff" + b"\0\0" + bytes(8),
    )
    for producer, committed in ((1, False), (2, True)):
        batch = build_batch(
            [Record(0, 0, key, value[:9] + bytes([50 + producer]) + value[10:])],
            transactional=True, producer_id=producer, producer_epoch=0, base_sequence=0,
        )  # fmt: skip
        replica.append(batch, required_acks=-1, now_ms=0, client=False)
        marker = build_end_marker(
            committed=committed, producer_id=producer, producer_epoch=0, coordinator_epoch=0,
            base_offset=0, leader_epoch=0, now_ms=0,
        )  # fmt: skip
        replica.append(marker, required_acks=-1, now_ms=0, client=False)
    world.restart()
    assert world.fetch()[0] == 52


def test_groups_of_another_protocol_are_passed_over():
    world = GroupWorld()
    world.commit({0: 1})
    batch = build_batch([Record(0, 0, b"\0\3\0\1g", b"\0\0")])
    replica = place_of(world)
    replica.append(batch, required_acks=-1, now_ms=0, client=False)
    loader = Loader(Shard(world.broker, replica, world.groups))
    list(loader.steps(0))
    assert (loader.unknown_keys, loader.groups["g"].offsets["t"][0].offset) == (1, 1)


def test_a_value_that_is_not_ours_is_named():
    world = GroupWorld()
    replica = place_of(world)
    batch = build_batch([Record(0, 0, b"\0\1\0\1g\0\1t\0\0\0\0", b"\0\3nonsense")])
    replica.append(batch, required_acks=-1, now_ms=0, client=False)
    with pytest.raises(CorruptLog, match=r"__consumer_offsets-\d.*offset 0.*Restore"):
        list(Loader(Shard(world.broker, replica, world.groups)).steps(0))
