"""Dialogues about offsets and administration: what is committed, listed, described and deleted."""

from __future__ import annotations

from tests.core.coordination.groups.dialogues import TOPIC, Talk, dialogue

from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)

ZERO = (TOPIC, 0)
ONE = (TOPIC, 1)


@dialogue
def commits_without_a_group(talk: Talk) -> None:
    talk.fetch()
    talk.commit({ZERO: 5})
    talk.commit({ZERO: 6}, member_id="stranger")
    talk.commit({ZERO: 6}, generation_id_or_member_epoch=1)
    talk.commit({ZERO: 6}, generation_id_or_member_epoch=1, member_id="stranger")
    talk.commit({ZERO: 6}, generation_id_or_member_epoch=0)
    talk.commit({ZERO: 6}, group_instance_id="i")
    talk.fetch()
    talk.describe()
    talk.listed()


@dialogue
def a_commit_to_a_group_that_does_not_exist(talk: Talk) -> None:
    talk.commit({ZERO: 6}, generation_id_or_member_epoch=1, member_id="stranger")
    talk.commit({ZERO: 6}, generation_id_or_member_epoch=1, member_id="stranger", version=8)
    talk.commit({ZERO: 6}, generation_id_or_member_epoch=1)
    talk.commit({}, generation_id_or_member_epoch=1, member_id="stranger")
    talk.describe()
    talk.commit({ZERO: 6}, version=2, retention_time_ms=-1)
    talk.describe()


@dialogue
def commits_beside_an_active_group(talk: Talk) -> None:
    member, generation = talk.alone()
    talk.commit({ZERO: 5})
    talk.commit({ZERO: 5}, member_id=member)
    talk.commit({ZERO: 5}, member_id=member, generation_id_or_member_epoch=generation + 1)
    talk.commit({ZERO: 5}, member_id=member, generation_id_or_member_epoch=generation - 1)
    talk.commit({ZERO: 5}, member_id="stranger", generation_id_or_member_epoch=generation)
    talk.commit({ZERO: 5}, member_id="", generation_id_or_member_epoch=generation)
    member_commits = {"member_id": member, "generation_id_or_member_epoch": generation}
    talk.commit({ZERO: 5}, **member_commits, group_instance_id="i")
    talk.commit({ZERO: 5}, **member_commits)
    talk.fetch()


@dialogue
def commits_of_odd_offsets(talk: Talk) -> None:
    talk.commit({ZERO: -1})
    talk.commit({ZERO: -2})
    talk.commit({ZERO: 2**63 - 1})
    talk.commit({ZERO: (3, None)})
    talk.fetch()
    talk.commit({ZERO: (4, "x" * 4096)})
    talk.commit({ZERO: (4, "x" * 4097), ONE: 9})
    talk.commit({ZERO: (4, "é" * 4096)})
    talk.commit({("nowhere", 0): 1, (TOPIC, 7): 2, (TOPIC, -1): 2, ONE: 3})
    talk.fetch({TOPIC: (1,)})


@dialogue
def a_commit_of_nothing(talk: Talk) -> None:
    talk.commit({})
    talk.describe()


@dialogue
def fetches_of_what_is_not_there(talk: Talk) -> None:
    talk.fetch({TOPIC: (0, 7), "nowhere": (0,)})
    talk.fetch({})
    talk.fetch({TOPIC: ()})
    talk.commit({ZERO: (5, "five"), ONE: 6})
    talk.fetch({TOPIC: (0, 7), "nowhere": (0,)})
    talk.fetch({TOPIC: (0, 0)})
    talk.fetch({})
    for version in (1, 2, 3, 5, 6, 7, 8):
        talk.fetch({TOPIC: (0,)}, version=version)
    for version in (2, 5, 7, 8):
        talk.fetch(version=version)
    talk.fetch(stable=True)
    talk.fetch(stable=True, version=7)
    talk.describe()


@dialogue
def fetches_as_a_member(talk: Talk) -> None:
    member, generation = talk.alone()
    talk.commit({ZERO: 5}, member_id=member, generation_id_or_member_epoch=generation)
    talk.fetch(member_id=member, member_epoch=generation)
    talk.fetch(member_id=member, member_epoch=generation + 1)
    talk.fetch(member_id="stranger", member_epoch=generation)
    talk.fetch(member_id=None, member_epoch=-1)


@dialogue
def fetches_of_many_groups(talk: Talk) -> None:
    talk.commit({ZERO: 5})
    groups = [
        OffsetFetchRequestGroup(group_id=talk.group, topics=None),
        OffsetFetchRequestGroup(group_id="nobody", topics=None),
        OffsetFetchRequestGroup(
            group_id=talk.group,
            topics=[OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0, 1])],
        ),
    ]
    talk.ask(OffsetFetchRequest(groups=groups), 8)
    talk.ask(OffsetFetchRequest(groups=[]), 8)


@dialogue
def offsets_are_deleted(talk: Talk) -> None:
    talk.delete_offsets(ZERO)
    talk.commit({ZERO: 5, ONE: 6})
    talk.delete_offsets(ZERO, (TOPIC, 7), ("nowhere", 0))
    talk.delete_offsets(ZERO)
    talk.fetch()


@dialogue
def offsets_of_a_subscribed_topic_are_not_deleted(talk: Talk) -> None:
    member, generation = talk.alone()
    talk.commit({ZERO: 5, ONE: 6}, member_id=member, generation_id_or_member_epoch=generation)
    talk.delete_offsets(ZERO, ("nowhere", 0))
    talk.delete_offsets()
    talk.leave((member, None))
    talk.delete_offsets(ZERO)
    talk.fetch()


@dialogue
def offsets_of_an_active_group_that_is_not_a_consumer_are_not_deleted(talk: Talk) -> None:
    joined = talk.enter(protocol_type="connect")
    talk.sync(joined.member_id, 1, protocol_type="connect", assigned={joined.member_id: b"x"})
    talk.delete_offsets(ZERO)


@dialogue
def groups_are_deleted(talk: Talk) -> None:
    talk.delete()
    member, _ = talk.alone()
    talk.delete()
    talk.leave((member, None))
    talk.delete(talk.group, talk.group, "nobody")
    talk.describe()
    talk.commit({ZERO: 5})
    talk.delete()
    talk.fetch()
    talk.listed()


@dialogue
def the_group_without_a_name(talk: Talk) -> None:
    """Old consumers without a group commit to it."""
    talk.describe("")
    talk.delete("")
    talk.delete_offsets(ZERO, group="")
    talk.fetch(group_id="")
    talk.commit({ZERO: 6}, group_id="")
    talk.fetch(group_id="")
    talk.delete_offsets(ZERO, group="")
    talk.describe("")
    talk.leave(("stranger", None), group_id="")
    talk.delete("")
    talk.fetch(group_id="")


@dialogue
def groups_are_described(talk: Talk) -> None:
    talk.describe(talk.group, "nobody")
    for version in (0, 3, 5):
        talk.describe(version=version)
    joined = talk.enter()
    talk.sync(joined.member_id, 1, assigned={joined.member_id: b"all"})
    for version in (0, 3, 4, 5):
        talk.describe(version=version)
    talk.describe(include_authorized_operations=True)


@dialogue
def groups_are_listed(talk: Talk) -> None:
    member, _ = talk.alone()
    for version in (0, 3, 4, 5):
        talk.listed(version)
    for states in (["Stable"], ["stable"], ["STABLE", "Empty"], ["Empty"], ["Nonsense"], [""]):
        talk.listed(states_filter=states)
        talk.listed(4, states_filter=states)
    for types in (["classic"], ["Classic"], ["CLASSIC"], ["consumer"], ["Nonsense"], [""]):
        talk.listed(types_filter=types)
    talk.listed(states_filter=["Stable"], types_filter=["consumer"])
    talk.leave((member, None))
    talk.listed()
    talk.listed(states_filter=["Empty"])


@dialogue
def coordinators_are_found(talk: Talk) -> None:
    talk.coordinator(0, key=talk.group)
    talk.coordinator(3, key=talk.group, key_type=0)
    talk.coordinator(6, coordinator_keys=[talk.group, "other", talk.group], key_type=0)
    talk.coordinator(4, coordinator_keys=[], key_type=0)
    talk.coordinator(3, key="", key_type=0)
    talk.coordinator(4, coordinator_keys=[""], key_type=0)
    talk.coordinator(3, key="x", key_type=9)
    talk.coordinator(4, coordinator_keys=["x", "y"], key_type=9)
    talk.coordinator(4, coordinator_keys=["x"], key_type=-1)
