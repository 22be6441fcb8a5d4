"""Dialogues about membership: JoinGroup, SyncGroup, Heartbeat, LeaveGroup."""

from __future__ import annotations

from tests.core.coordination.groups.dialogues import Talk, dialogue

STRANGER = "stranger"


@dialogue
def joins_that_are_refused(talk: Talk) -> None:
    talk.join(STRANGER)
    talk.join(protocols=())
    talk.join(protocol_type="")
    talk.join(group_id="")
    talk.join(session_timeout_ms=99)
    talk.join(session_timeout_ms=60_001)
    talk.join(session_timeout_ms=-1)
    for version in (0, 1, 3, 5):
        talk.join(STRANGER, version=version)
        talk.join(session_timeout_ms=1, version=version)
    talk.join(STRANGER, group_instance_id="i")


@dialogue
def first_ids_come_before_joining(talk: Talk) -> None:
    first = talk.join()
    talk.join(first.member_id)
    talk.describe()


@dialogue
def old_versions_join_at_once(talk: Talk) -> None:
    joined = talk.join(version=3)
    talk.sync(joined.member_id, 1, version=2, assigned={joined.member_id: b"all"})
    talk.describe(version=4)


@dialogue
def joins_with_other_protocols(talk: Talk) -> None:
    talk.alone()
    first = talk.join(who="b", protocols=("roundrobin",))
    talk.join(who="b", protocol_type="connect")
    talk.join(first.member_id, who="b", protocols=("roundrobin",))
    talk.join(who="b", version=3, protocols=("roundrobin",))
    talk.describe()


@dialogue
def syncs_that_are_refused(talk: Talk) -> None:
    talk.sync(STRANGER, 1)
    talk.sync("", 1)
    member, generation = talk.alone()
    talk.sync(member, generation + 1)
    talk.sync(member, generation - 1)
    talk.sync(STRANGER, generation)
    talk.sync(member, generation, protocol_name="roundrobin")
    talk.sync(member, generation, protocol_type="connect")
    talk.sync(member, generation, protocol_name=None, protocol_type=None)
    talk.sync(member, generation, group_instance_id="i")
    talk.sync(member, generation, group_id="")
    talk.sync(member, generation)


@dialogue
def a_sync_assigns_to_strangers_and_leaves_members_out(talk: Talk) -> None:
    joined = talk.enter()
    talk.sync(joined.member_id, 1, assigned={STRANGER: b"theirs"})
    talk.describe()


@dialogue
def heartbeats(talk: Talk) -> None:
    talk.beat(STRANGER, 1)
    talk.beat("", -1)
    talk.beat(STRANGER, 1, group_id="")
    joined = talk.enter()
    talk.beat(joined.member_id, 1)
    talk.beat(joined.member_id, 2)
    talk.sync(joined.member_id, 1, assigned={joined.member_id: b"all"})
    talk.beat(joined.member_id, 1)
    talk.beat(joined.member_id, 0)
    talk.beat(STRANGER, 1)
    talk.beat(joined.member_id, 1, group_instance_id="i")
    second = talk.join(who="b")
    again = talk.wait_to_join(second.member_id, who="b")
    talk.beat(joined.member_id, 1)
    talk.beat(joined.member_id, 2)
    talk.join(joined.member_id)
    again()
    talk.beat(joined.member_id, 1)
    talk.beat(joined.member_id, 2)
    talk.describe()


@dialogue
def leaving(talk: Talk) -> None:
    talk.leave((STRANGER, None))
    talk.leave()
    member, _ = talk.alone()
    talk.leave((STRANGER, None), ("", "i"), (STRANGER, "i"))
    talk.leave((member, None), (member, None), (STRANGER, None))
    talk.describe()
    talk.leave((member, None))
    talk.leave((member, None), group_id="")


@dialogue
def leaving_with_an_id_that_was_only_given(talk: Talk) -> None:
    """Kafka lets the group rebalance for it, though nobody had joined; here nothing happens."""
    talk.alone()
    pending = talk.join(who="b")
    talk.leave((pending.member_id, None))
    talk.join(pending.member_id, who="b")


@dialogue
def a_second_member_joins(talk: Talk) -> None:
    member, generation = talk.alone()
    second = talk.join(who="b")
    joining = talk.wait_to_join(second.member_id, who="b")
    talk.commit({}, member_id=member, generation_id_or_member_epoch=generation)
    talk.commit({("dialogue", 0): 1}, member_id=member, generation_id_or_member_epoch=generation)
    talk.sync(member, generation)
    talk.describe()
    first = talk.join(member)
    joining()
    talk.commit({("dialogue", 0): 2}, member_id=member, generation_id_or_member_epoch=2)
    talk.commit({("dialogue", 0): 3}, member_id=member, generation_id_or_member_epoch=1)
    waiting = talk.begin_sync(second.member_id, 2, "b")
    talk.sync(member, 2, assigned={member: b"one", second.member_id: b"two"})
    waiting()
    assert first.leader == member
    talk.join(second.member_id, who="b")
    talk.describe()


@dialogue
def a_follower_that_joins_again_with_what_it_said_stays(talk: Talk) -> None:
    member, _ = talk.alone()
    second = talk.join(who="b")
    joining = talk.wait_to_join(second.member_id, who="b")
    talk.join(member)
    joining()
    waiting = talk.begin_sync(second.member_id, 2, "b")
    talk.sync(member, 2, assigned={member: b"one", second.member_id: b"two"})
    waiting()
    talk.join(second.member_id, who="b")
    changed = talk.wait_to_join(second.member_id, who="b", metadata=b"other")
    talk.beat(member, 2)
    talk.join(member)
    changed()


@dialogue
def a_fourth_member_of_three(talk: Talk) -> None:
    """Whoever joins again last finds the group full, though it was there before."""
    member, _ = talk.alone(rebalance_timeout_ms=1000)
    others = [talk.join(who=who) for who in "bcd"]
    for other, who in zip(others, "bcd"):
        talk.wait_to_join(other.member_id, who, rebalance_timeout_ms=1000)
    talk.join(member)
    talk.advance(2500)
    talk.beat(member, 2)
    talk.describe()


@dialogue
def static_members(talk: Talk) -> None:
    first = talk.join(group_instance_id="i")
    talk.sync(first.member_id, 1, group_instance_id="i", assigned={first.member_id: b"all"})
    talk.join(first.member_id, group_instance_id="i")
    talk.join(STRANGER, group_instance_id="i")
    talk.beat(first.member_id, 2, group_instance_id="i")
    talk.describe()


@dialogue
def a_static_member_comes_back(talk: Talk) -> None:
    first = talk.join(group_instance_id="i")
    talk.sync(first.member_id, 1, group_instance_id="i", assigned={first.member_id: b"all"})
    second = talk.join(group_instance_id="i")
    talk.beat(first.member_id, 1, group_instance_id="i")
    talk.beat(first.member_id, 1)
    talk.beat(second.member_id, 1, group_instance_id="i")
    talk.beat(second.member_id, 1, group_instance_id="j")
    talk.sync(first.member_id, 1, group_instance_id="i")
    talk.sync(second.member_id, 1, group_instance_id="i")
    talk.join(first.member_id, group_instance_id="i")
    talk.commit(
        {("dialogue", 0): 1}, member_id=first.member_id, group_instance_id="i",
        generation_id_or_member_epoch=1,
    )  # fmt: skip
    talk.commit(
        {("dialogue", 0): 1}, member_id=second.member_id, group_instance_id="i",
        generation_id_or_member_epoch=1,
    )  # fmt: skip
    talk.leave((first.member_id, "i"))
    talk.leave(("", "i"))
    talk.describe()


@dialogue
def a_static_member_comes_back_in_an_old_version(talk: Talk) -> None:
    first = talk.join(group_instance_id="i", version=5)
    talk.sync(
        first.member_id, 1, version=3, group_instance_id="i", assigned={first.member_id: b"x"}
    )
    talk.join(group_instance_id="i", version=5)
    talk.describe()


@dialogue
def a_static_member_comes_back_with_other_protocols(talk: Talk) -> None:
    first = talk.join(group_instance_id="i", protocols=("range", "roundrobin"))
    talk.sync(first.member_id, 1, group_instance_id="i", assigned={first.member_id: b"x"})
    talk.join(group_instance_id="i", protocols=("roundrobin",))
    talk.describe()


@dialogue
def a_member_that_is_silent_is_put_out(talk: Talk) -> None:
    member, generation = talk.alone(session_timeout_ms=1000)
    talk.commit({("dialogue", 0): 7}, member_id=member, generation_id_or_member_epoch=generation)
    talk.advance(2500)
    talk.describe()
    talk.beat(member, generation)
    talk.commit({("dialogue", 0): 8}, member_id=member, generation_id_or_member_epoch=generation)
    talk.join(member)
    talk.fetch()


@dialogue
def a_member_that_does_not_join_again_is_put_out(talk: Talk) -> None:
    member, _ = talk.alone(rebalance_timeout_ms=1000)
    second = talk.join(who="b", rebalance_timeout_ms=1000)
    joining = talk.wait_to_join(second.member_id, who="b", rebalance_timeout_ms=1000)
    talk.advance(2500)
    joining()
    talk.beat(member, 1)
    talk.describe()


@dialogue
def the_leader_goes_before_it_syncs(talk: Talk) -> None:
    member, _ = talk.alone()
    second = talk.join(who="b")
    joining = talk.wait_to_join(second.member_id, who="b")
    talk.join(member)
    joining()
    waiting = talk.begin_sync(second.member_id, 2, "b")
    talk.leave((member, None))
    waiting()
    talk.join(second.member_id, who="b")


@dialogue
def many_protocols_and_one_in_common(talk: Talk) -> None:
    member, _ = talk.alone(protocols=("range", "roundrobin", "sticky"))
    second = talk.join(who="b", protocols=("sticky", "range"))
    joining = talk.wait_to_join(second.member_id, who="b", protocols=("sticky",))
    talk.join(member, protocols=("range", "roundrobin", "sticky"))
    joining()


@dialogue
def groups_that_are_not_consumers(talk: Talk) -> None:
    joined = talk.enter(protocol_type="connect", metadata=b"\xff")
    talk.sync(joined.member_id, 1, protocol_type="connect", assigned={joined.member_id: b"\xfe"})
    talk.describe()
    talk.listed()
