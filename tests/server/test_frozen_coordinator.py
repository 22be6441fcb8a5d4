"""R5: a coordinator that was frozen over its session acknowledges no commit that is not kept.

Found by chaos: commits that had waited in its sockets were appended to its own log when it went on,
cut off it a moment later, and acknowledged as its successor's log grew past their offsets.
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

GROUP, TOPIC = "g", "t"
SETTINGS = {
    "broker_session_timeout_ms": 2_000,
    "broker_heartbeat_interval_ms": 300,
    "offsets_topic_num_partitions": 1,
    "offsets_commit_timeout_ms": 600_000,  # who is not refused at once is not answered at all
    "min_insync_replicas": 2,
}
LONGEST_SECONDS = 20
QUEUED = range(100, 108)
"""Committed to the frozen coordinator, each on a connection of its own."""
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


async def freeze_and_go_on(nodes):
    """What the commits that waited were answered, and what the group has committed then."""
    first = await coordinator(nodes, IDS)
    await committed(nodes[first], 1)
    connections = [await opened(nodes[first]) for _ in QUEUED]
    nodes[first].process.send_signal(signal.SIGSTOP)
    queued = [
        asyncio.create_task(each.send(commit(offset), timeout_seconds=LONGEST_SECONDS))
        for each, offset in zip(connections, QUEUED, strict=True)
    ]
    others = [each for each in IDS if each != first]
    second = await coordinator(nodes, others, but=first)
    for offset in SUCCESSORS:
        await committed(nodes[second], offset)
    nodes[first].process.send_signal(signal.SIGCONT)
    answers = [code_of(each) for each in await asyncio.gather(*queued)]
    for each in connections:
        await each.close()
    return answers, await fetched(nodes[second])


@pytest.mark.timeout(90)
async def test_commits_that_waited_at_a_frozen_coordinator_are_refused(tmp_path):
    with running(three_processes(tmp_path, **SETTINGS)) as nodes:
        admin = AdminClient({"bootstrap.servers": bootstrap_of(nodes), "log_level": 0})
        admin.create_topics([NewTopic(TOPIC, 1, 3)])[TOPIC].result(20)
        async with asyncio.timeout(60):
            answers, offset = await freeze_and_go_on(nodes)
    assert set(answers) == {ErrorCode.NOT_COORDINATOR}
    assert offset == SUCCESSORS[-1]
