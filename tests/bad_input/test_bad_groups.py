"""Members and commits that no group should take (R15)."""

from __future__ import annotations

import pytest
from bad_kit import Raw, eventually, framed

from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages.delete_groups import DeleteGroupsRequest
from anabranch.core.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.core.wire.messages.heartbeat import HeartbeatRequest
from anabranch.core.wire.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from anabranch.core.wire.messages.leave_group import LeaveGroupRequest
from anabranch.core.wire.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from anabranch.core.wire.messages.sync_group import SyncGroupRequest

UNKNOWN_TOPIC, METADATA_TOO_LARGE, ILLEGAL_GENERATION, INCONSISTENT = 3, 12, 22, 23
INVALID_GROUP, UNKNOWN_MEMBER, BAD_SESSION_TIMEOUT = 24, 25, 26
INVALID_REQUEST, MEMBER_ID_REQUIRED = 42, 79
SESSION_MS = 1000


def join(group="g", **fields):
    protocols = [JoinGroupRequestProtocol(name="range", metadata=b"\0\1\0\0\0\0\0\0\0\0")]
    values = {
        "group_id": group,
        "session_timeout_ms": SESSION_MS,
        "rebalance_timeout_ms": SESSION_MS,
        "protocol_type": "consumer",
        "protocols": protocols,
    }
    return JoinGroupRequest(**{**values, **fields})


def commit(*partitions, group="g", topic="plain", **fields):
    topics = [OffsetCommitRequestTopic(name=topic, partitions=list(partitions))]
    return OffsetCommitRequest(group_id=group, topics=topics, **fields)


def partition(index=0, **fields):
    return OffsetCommitRequestPartition(partition_index=index, committed_offset=1, **fields)


def delete_when_empty(client, group):
    described = DescribeGroupsRequest(groups=[group])
    eventually(lambda: client.ask(described, 5).groups[0].group_state == "Empty", "no members")
    answer = client.ask(DeleteGroupsRequest(groups_names=[group]), 2).results[0]
    assert answer.error_code == 0


def codes(answer):
    return {each.error_code for topic in answer.topics for each in topic.partitions}


def test_megabytes_of_protocols(node, client):
    """More than a record of the group could hold: refused before anything is kept."""
    huge = [JoinGroupRequestProtocol(name="range", metadata=bytes(90_000_000))]
    assert client.ask(join(protocols=huge), 9).error_code == INVALID_REQUEST
    assert client.ask(join(protocols=huge), 2).error_code == INVALID_REQUEST


def test_thousands_of_protocols(node, client):
    many = [JoinGroupRequestProtocol(name=f"p{each}", metadata=b"") for each in range(100_000)]
    assert client.ask(join(protocols=many), 2).error_code == INVALID_REQUEST


def test_members_that_never_come_back(node, client):
    """Each is given an id; without the second half of the greeting there is no member."""
    for _ in range(3000):
        assert client.ask(join("ghosts"), 9).error_code == MEMBER_ID_REQUIRED
    eventually(lambda: "ghosts" not in node.exists()[1], "the end of the ids' time", 30)


def test_names_of_members_as_long_as_strings_can_be(node, client):
    """A member's id begins with one of them, and must be a string, too."""
    long = "x" * 32_767
    assert client.ask(join("long", group_instance_id=long), 7).error_code == 0
    with Raw(node) as named:
        named.send(b"".join(map(bytes, frame_request(1, long, join("longer"), 3))))
        _, answer = read_response(named.frame(), JoinGroupResponse, 3)
    assert answer.error_code == 0
    for group in ("long", "longer"):
        delete_when_empty(client, group)


@pytest.mark.parametrize("group", ["", None], ids=["empty", "null"])
def test_a_group_without_a_name(node, client, group):
    if group is None:
        frame = bytearray(framed(join("g"), 4))
        place = frame.index(b"\0\1g")
        frame[place : place + 3] = b"\xff\xff"
        frame[:4] = (len(frame) - 4).to_bytes(4, "big")
        assert client.send(frame).ended()
        node.says("bad JoinGroup request", "group_id")
    else:
        assert client.ask(join(group), 9).error_code == INVALID_GROUP


@pytest.mark.parametrize(
    "group", ["x" * 32_767, "g\0g", "../../etc", "\u202e\u0301𝔤", "a\nb", " "], ids=ascii
)
def test_a_group_with_a_strange_name(node, client, group):
    """Any text may name a group; what is not in the way leaves nothing behind."""
    assert client.ask(join(group, session_timeout_ms=1), 9).error_code == BAD_SESSION_TIMEOUT
    heartbeat = HeartbeatRequest(group_id=group, generation_id=1, member_id="nobody")
    assert client.ask(heartbeat, 4).error_code == UNKNOWN_MEMBER
    assert codes(client.ask(commit(partition(), group=group, topic="no-such"), 8)) == {
        UNKNOWN_TOPIC
    }


@pytest.mark.parametrize("timeout_ms", [0, -1, 1, (1 << 31) - 1])
def test_a_session_timeout_out_of_bounds(node, client, timeout_ms):
    answer = client.ask(join(session_timeout_ms=timeout_ms), 9)
    assert answer.error_code == BAD_SESSION_TIMEOUT


def test_a_group_without_protocols(node, client):
    assert client.ask(join(protocols=[]), 2).error_code == INCONSISTENT
    assert client.ask(join(protocol_type=""), 2).error_code == INCONSISTENT


def test_members_that_nobody_knows(node, client):
    assert client.ask(join(member_id="nobody"), 9).error_code == UNKNOWN_MEMBER
    sync = SyncGroupRequest(group_id="g", generation_id=1, member_id="nobody")
    assert client.ask(sync, 3).error_code == UNKNOWN_MEMBER
    assert client.ask(LeaveGroupRequest(group_id="g", member_id="nobody"), 2).error_code == (
        UNKNOWN_MEMBER
    )
    late = commit(partition(), generation_id_or_member_epoch=5, member_id="nobody")
    assert codes(client.ask(late, 8)) <= {UNKNOWN_MEMBER, ILLEGAL_GENERATION}


def test_a_commit_with_a_long_note(node, client):
    note = partition(committed_metadata="x" * 4097)
    assert codes(client.ask(commit(note), 8)) == {METADATA_TOO_LARGE}
    note = partition(committed_metadata="x" * 32_767)
    assert codes(client.ask(commit(note), 8)) == {METADATA_TOO_LARGE}


def test_a_commit_to_a_million_partitions(node, client):
    request = framed(commit(*map(partition, range(1_000_000))), 8)
    assert client.send(request).ended()
    node.says("bad OffsetCommit request", "over the limit")


def test_a_commit_to_a_hundred_thousand_partitions(node, client):
    many = commit(*map(partition, range(1, 100_000)))
    assert codes(client.ask(many, 8)) == {UNKNOWN_TOPIC}


def test_a_commit_to_an_unknown_topic(node, client):
    assert codes(client.ask(commit(partition(), topic="no-such"), 8)) == {UNKNOWN_TOPIC}
    assert codes(client.ask(commit(partition(7)), 8)) == {UNKNOWN_TOPIC}
    assert codes(client.ask(commit(partition(-1)), 8)) == {UNKNOWN_TOPIC}


def test_offsets_of_groups_that_nobody_knows(node, client):
    topic = OffsetFetchRequestTopics(name="no-such", partition_indexes=[0])
    wanted = OffsetFetchRequestGroup(group_id="no-such", topics=[topic])
    answer = client.ask(OffsetFetchRequest(groups=[wanted]), 8).groups[0]
    assert answer.topics[0].partitions[0].committed_offset == -1


def test_a_group_of_members_that_are_cut_off(node, client):
    """Who joins and hangs up is taken out when its session is over; Kafka keeps the empty group."""
    for _ in range(50):
        with Raw(node) as other:
            other.send(framed(join("cut-off"), 2))
    delete_when_empty(client, "cut-off")
