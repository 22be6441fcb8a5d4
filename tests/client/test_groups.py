"""Groups are listed though a coordinator cannot answer, and who that is is told."""

from __future__ import annotations

import pytest

from anabranch.client import every_broker
from anabranch.client.cluster import BrokerAddress, Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.groups import list_groups
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.wire.messages.list_groups import ListedGroup, ListGroupsResponse
from anabranch.core.wire.messages.metadata import (
    MetadataResponsePartition,
    MetadataResponseTopic,
)

LOADING = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
NO_TOPIC = ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "There is none.")


class TwoBrokers(Cluster):
    """Each coordinates the group of its name; what is planned for one comes first, the last of it
    again and again."""

    def __init__(self, planned=None, topic=NO_TOPIC):
        super().__init__("127.0.0.1:1", deadline_seconds=5)
        self.brokers = {each: BrokerAddress(each, "127.0.0.1", each, None) for each in (1, 2)}
        self.planned, self.offsets_topic = planned or {}, topic
        self.gone: set[int] = set()
        self.asked: list[int] = []

    async def metadata(self, _topics):
        for each in self.gone:
            self.brokers.pop(each, None)

    async def topic(self, name):
        assert name == OFFSETS_TOPIC
        if isinstance(self.offsets_topic, ApiError):
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
        code = planned.pop(0) if len(planned) > 1 else planned[0]
        if isinstance(code, Exception):
            raise code
        return ListGroupsResponse(error_code=code, groups=[ListedGroup(f"of-{broker_id}")])


@pytest.fixture(autouse=True)
def short_pause(monkeypatch):
    monkeypatch.setattr(every_broker, "PASS_OVER_SECONDS", 0.05)


async def listed(cluster):
    found = await list_groups(cluster)
    return [each.group_id for each in found.groups], list(found.faults), found.leaderless


async def test_groups_of_all_brokers_are_listed_by_name():
    assert await listed(TwoBrokers()) == (["of-1", "of-2"], [], [])


async def test_a_broker_that_still_loads_tells_what_it_has():
    assert await listed(TwoBrokers({1: [LOADING]})) == (["of-1", "of-2"], [1], [])
    assert await listed(TwoBrokers({1: [LOADING, ErrorCode.NONE]})) == (["of-1", "of-2"], [], [])


async def test_a_broker_that_is_gone_keeps_back_its_own_groups_only():
    assert await listed(TwoBrokers({2: [ConnectionLost("it is gone")]})) == (["of-1"], [2], [])


async def test_a_broker_that_is_gone_from_the_metadata_keeps_back_nothing():
    """Others coordinate its groups by then, and are asked again."""
    cluster = TwoBrokers({2: [ConnectionLost("it is gone")], 1: [ErrorCode.NONE]})
    cluster.gone.add(2)
    assert await listed(cluster) == (["of-1"], [], [])
    assert cluster.asked == [1, 2, 1]


async def test_a_refusal_is_raised():
    with pytest.raises(ApiError, match="no permission"):
        await listed(TwoBrokers({2: [ErrorCode.CLUSTER_AUTHORIZATION_FAILED]}))


async def test_partitions_that_nobody_leads_are_told():
    assert (await listed(TwoBrokers(topic=[1, -1, 2])))[2] == [(OFFSETS_TOPIC, 1)]


@pytest.mark.parametrize(
    ("code", "is_raised"),
    [
        (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False),
        (ErrorCode.UNKNOWN_SERVER_ERROR, True),
    ],
)
async def test_who_may_not_ask_for_the_topic_still_gets_the_groups(code, is_raised):
    cluster = TwoBrokers(topic=ApiError(code, "no"))
    if is_raised:
        with pytest.raises(ApiError):
            await listed(cluster)
    else:
        assert await listed(cluster) == (["of-1", "of-2"], [], [])
