"""Groups are listed though a coordinator cannot answer, and who that is is told."""

from __future__ import annotations

import asyncio

import pytest

from anabranch.client import every_broker
from anabranch.client.cluster import BrokerAddress, Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.groups import list_groups
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from anabranch.core.wire.messages.metadata import (
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NO_TOPIC = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is none.")


class TwoBrokers(Cluster):
    """Each coordinates the group of its name, and leads partitions of the topic if there is one.
    What is planned for one comes first: a code, a fault, or groups; the last of it again and
    again."""

    def __init__(self, planned=None, topic=NO_TOPIC):
        super().__init__("127.0.0.1:1", deadline_seconds=5)
        self.brokers = {each: BrokerAddress(each, "127.0.0.1", each, None) for each in (1, 2)}
        self.planned, self.offsets_topic = planned or {}, topic
        self.gone: set[int] = set()
        self.asked: list[int] = []
        self.no_metadata: Exception | None = None

    async def metadata(self, _topics):
        if self.no_metadata is not None:
            raise self.no_metadata
        for each in self.gone:
            self.brokers.pop(each, None)

    async def topic(self, name):
        assert name == OFFSETS_TOPIC
        if isinstance(self.offsets_topic, Exception):
            raise self.offsets_topic
        return MetadataResponseTopic(
            partitions=[
                MetadataResponsePartition(partition_index=index, leader_id=leader)
                for index, leader in enumerate(self.offsets_topic)
            ]
        )

    async def send_to(self, broker_id, _message):
        self.asked.append(broker_id)
        planned = self.planned.get(broker_id, [ErrorCode.NONE])
        answer = planned.pop(0) if len(planned) > 1 else planned[0]
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, tuple):
            return ListGroupsResponse(groups=[ListedGroup(each) for each in answer])
        return ListGroupsResponse(error_code=answer, groups=[ListedGroup(f"of-{broker_id}")])


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(every_broker, "PASS_OVER_SECONDS", 0.05)


async def listed(cluster):
    found = await list_groups(cluster)
    return [each.group_id for each in found.groups], list(found.missing)


async def test_groups_of_all_brokers_are_listed_by_name():
    assert await listed(TwoBrokers()) == (["of-1", "of-2"], [])


async def test_a_broker_that_still_loads_tells_what_it_has():
    assert await listed(TwoBrokers({1: [LOADING]})) == (["of-1", "of-2"], ["broker 1"])
    assert await listed(TwoBrokers({1: [LOADING, ErrorCode.NONE]})) == (["of-1", "of-2"], [])


async def test_a_broker_that_is_gone_keeps_back_its_own_groups_only():
    gone = ConnectionLost("it is gone")
    assert await listed(TwoBrokers({2: [gone]})) == (["of-1"], ["broker 2"])
    assert await listed(TwoBrokers({2: [gone]}, topic=[1, 2])) == (["of-1"], ["broker 2"])


async def test_of_a_broker_that_coordinates_nothing_no_group_is_missing():
    """It died, others lead its partitions, and the metadata lists it for a while."""
    cluster = TwoBrokers({2: [ConnectionLost("it is gone")]}, topic=[1, 1])
    assert await listed(cluster) == (["of-1"], [])


async def test_a_broker_that_is_gone_from_the_metadata_keeps_back_nothing():
    cluster = TwoBrokers({2: [ConnectionLost("it is gone")]})
    cluster.gone.add(2)
    assert await listed(cluster) == (["of-1"], [])


async def test_who_took_over_a_group_while_another_was_waited_for_is_asked_again():
    """Broker 2 comes back, and coordinates nothing any more."""
    planned = {1: [("of-1",), ("of-1", "of-2")], 2: [ConnectionLost("it restarts"), ()]}
    assert await listed(TwoBrokers(planned)) == (["of-1", "of-2"], [])


async def test_a_group_that_two_brokers_name_is_listed_once():
    planned = {1: [("moves", "stays")], 2: [LOADING, ("moves",)]}
    assert await listed(TwoBrokers(planned)) == (["moves", "stays"], [])


async def test_a_refusal_is_raised():
    with pytest.raises(ApiError, match="Cluster authorization failed"):
        await listed(TwoBrokers({2: [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]}))


async def test_partitions_that_nobody_leads_are_told():
    _, missing = await listed(TwoBrokers(topic=[1, -1, 2]))
    assert missing == [f"{OFFSETS_TOPIC}-1"]


@pytest.mark.parametrize(
    "fault", [ConnectionLost("it is gone"), ApiError(ErrorCode.UNKNOWN_SERVER_ERROR, "no")]
)
async def test_what_was_answered_is_listed_though_nothing_more_is(fault):
    """The metadata cannot be read any more."""
    cluster = TwoBrokers({2: [ConnectionLost("it is gone")]}, topic=fault)
    cluster.no_metadata = fault
    assert await listed(cluster) == (["of-1"], ["broker 2", OFFSETS_TOPIC])


async def test_who_may_not_ask_for_the_topic_still_gets_the_groups():
    cluster = TwoBrokers(topic=ApiError(ErrorCode.TOPIC_AUTHORIZATION_FAILED, "no"))
    assert await listed(cluster) == (["of-1", "of-2"], [])


async def test_a_cluster_without_groups_answers_at_once(monkeypatch):
    """No topic of offsets, and nothing listed that shows that there is one."""
    monkeypatch.setattr(every_broker, "PASS_OVER_SECONDS", 3600)
    cluster = TwoBrokers({1: [()], 2: [()]})
    assert await asyncio.wait_for(listed(cluster), 5) == ([], [])
