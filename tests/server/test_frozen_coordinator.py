"""R5: a coordinator that was frozen over its session acknowledges no commit that is not kept, and
takes no member back to a generation that is over.

Found by chaos: commits that had waited in its sockets were appended to its own log when it went on,
cut off it a moment later, and acknowledged as its successor's log grew past their offsets. By the
simulator: a join that had waited there was answered from memory.
"""

from __future__ import annotations

import asyncio
import signal

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from tests.server.three_kit import IDS, bootstrap_of, running, three_processes

from anabranch.client.connection import Connection
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.find_coordinator import FindCoordinatorRequest
from anabranch.core.wire.messages.join_group import JoinGroupRequest, JoinGroupRequestProtocol
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
from anabranch.core.wire.messages.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP, TOPIC = "g", "t"
MEMBERS_GROUP = "m"
SETTINGS = {
    "broker_session_timeout_ms": 5_000,  # the next one keeps its own though the machine is busy
    "broker_heartbeat_interval_ms": 300,
    "offsets_topic_num_partitions": 1,
    "offsets_commit_timeout_ms": 600_000,  # who is not refused at once is not answered at all
    "min_insync_replicas": 2,
    "group_initial_rebalance_delay_ms": 0,
}
LONGEST_SECONDS = 60
QUEUED = range(100, 108)
"""Committed to the frozen coordinator, each on a connection of its own, beside as many joins."""
SUCCESSORS = range(1_000, 1_040)
"""Committed to the next one, one after the other: more records than are queued."""


def commit(offset):
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset)
    topics = [OffsetCommitRequestTopic(name=TOPIC, partitions=[partition])]
    return OffsetCommitRequest(group_id=GROUP, topics=topics)


async def opened(node):
    return await Connection.open("127.0.0.1", node.port)


async def ask(node, message):
    connection = await opened(node)
    try:
        return await connection.send(message)
    finally:
        await connection.close()


async def coordinator(nodes, ids, but=None):
    """Who coordinates the group, as one of these says."""
    message = FindCoordinatorRequest(key_type=0, coordinator_keys=[GROUP])
    while True:
        found = (await ask(nodes[ids[0]], message)).coordinators[0]
        if not found.error_code and found.node_id != but:
            return found.node_id
        await asyncio.sleep(0.05)


def code_of(answer):
    return ErrorCode(answer.topics[0].partitions[0].error_code)


async def committed(node, offset):
    """Commit until it is acknowledged: a new coordinator reads its log first."""
    while True:
        if code_of(await ask(node, commit(offset))) is ErrorCode.NONE:
            return
        await asyncio.sleep(0.05)


async def fetched(node):
    topics = [OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])]
    groups = [OffsetFetchRequestGroup(group_id=GROUP, topics=topics)]
    answer = (await ask(node, OffsetFetchRequest(groups=groups))).groups[0]
    return answer.topics[0].partitions[0].committed_offset


def join(member_id):
    return JoinGroupRequest(
        group_id=MEMBERS_GROUP,
        session_timeout_ms=60_000,
        rebalance_timeout_ms=60_000,
        member_id=member_id,
        protocol_type="consumer",
        protocols=[JoinGroupRequestProtocol(name="range", metadata=b"")],
    )


async def synced(node, member_id, generation_id, *members):
    """Take a share; who leads names the members."""
    assignments = [SyncGroupRequestAssignment(member_id=each, assignment=b"1") for each in members]
    message = SyncGroupRequest(
        group_id=MEMBERS_GROUP,
        generation_id=generation_id,
        member_id=member_id,
        protocol_type="consumer",
        protocol_name="range",
        assignments=assignments,
    )
    answer = await ask(node, message)
    assert (answer.error_code, answer.assignment) == (ErrorCode.NONE, b"1")


async def joined_after(node, member_id, generation_id):
    """Join again until the next generation begins: its leader has to ask for it."""
    while True:
        answer = await ask(node, join(member_id))
        if answer.generation_id > generation_id:
            return answer.generation_id
        await asyncio.sleep(0.05)


async def next_generation(node, leader, other, after):
    """Two members join again, and the one that leads assigns; the generation that begins."""
    leading = asyncio.create_task(ask(node, join(leader)))
    generation = await joined_after(node, other, after)
    assert (await leading).generation_id == generation
    await synced(node, leader, generation, leader, other)
    await synced(node, other, generation)
    return generation


async def two_members(node):
    """A stable group: who leads, the other, and the generation."""
    leader = (await ask(node, join(""))).member_id
    generation = (await ask(node, join(leader))).generation_id
    await synced(node, leader, generation, leader)
    other = (await ask(node, join(""))).member_id
    return leader, other, await next_generation(node, leader, other, generation)


def send_all(connections, messages):
    return [
        asyncio.create_task(each.send(message, timeout_seconds=LONGEST_SECONDS))
        for each, message in zip(connections, messages, strict=True)
    ]


async def freeze_and_go_on(nodes):
    """What commits that waited were answered, what joins that did; what is committed then."""
    first = await coordinator(nodes, IDS)
    await committed(nodes[first], 1)
    leader, other, generation = await two_members(nodes[first])
    connections = [await opened(nodes[first]) for _ in (*QUEUED, *QUEUED)]
    nodes[first].process.send_signal(signal.SIGSTOP)
    commits = send_all(connections[: len(QUEUED)], map(commit, QUEUED))
    joins = send_all(connections[len(QUEUED) :], [join(other)] * len(QUEUED))
    others = [each for each in IDS if each != first]
    second = await coordinator(nodes, others, but=first)
    for offset in SUCCESSORS:
        await committed(nodes[second], offset)
    assert await next_generation(nodes[second], leader, other, generation) == generation + 1
    nodes[first].process.send_signal(signal.SIGCONT)
    codes = [code_of(each) for each in await asyncio.gather(*commits)]
    joined = [ErrorCode(each.error_code) for each in await asyncio.gather(*joins)]
    for each in connections:
        await each.close()
    return codes, joined, await fetched(nodes[second])


@pytest.mark.slow
@pytest.mark.timeout(90)
async def test_what_waited_at_a_frozen_coordinator_is_refused(tmp_path):
    with running(three_processes(tmp_path, **SETTINGS)) as nodes:
        admin = AdminClient({"bootstrap.servers": bootstrap_of(nodes), "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(20)
        async with asyncio.timeout(60):
            commits, joins, offset = await freeze_and_go_on(nodes)
    assert set(commits) == {ErrorCode.NOT_COORDINATOR}
    assert set(joins) == {ErrorCode.NOT_COORDINATOR}
    assert offset == SUCCESSORS[-1]
