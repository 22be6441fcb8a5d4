"""A month in a second: topics, groups, clients, brokers and terms come and go, and leave nothing.

Counts, not times: after three times as many, no container that a broker or a controller holds may
have more in it, but for caches, whose bounds are named here."""

from __future__ import annotations

import tracemalloc

import pytest
from tests.core.api.in_memory_node import batch
from tests.core.census import census, grown
from tests.core.controller.admin_requests import delete_names
from tests.core.controller.test_missing import create
from tests.core.controller.world import World
from tests.core.coordination.groups.group_world import GroupWorld

from anabranch.core.api.metadata_view import CACHED_TOPICS
from anabranch.core.controller.history import MOST
from anabranch.core.controller.partitions.observer_placement import INTERVAL_MS
from anabranch.core.coordination.groups.offset_records import offset_key
from anabranch.core.coordination.groups.offsets import MINUTE_MS, expire
from anabranch.core.coordination.internal_topics import java_hash
from anabranch.core.errors import ErrorCode
from anabranch.core.log.log import Log
from anabranch.core.log.logs import MOST_RETURNING
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.segment import IndexCache
from anabranch.core.metadata.committed_log import CommittedLog
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest

ROUNDS = 20
DAY_MS = 24 * 60 * MINUTE_MS
ELSEWHERE = (MemoryFiles, Log, IndexCache, MetadataImage)
"""What is on the disk is for retention and compaction; indexes are bounded in bytes; images are the
tests' own."""


def one_life_of_a_topic(world: GroupWorld, number: int) -> None:
    """It is written to, read and committed for by clients that are seen once, and deleted."""
    name, group_id, client = f"topic-{number}", f"group-{number}", {"client_id": f"c{number}"}
    far = f"diskless-{number}"
    world.node.topic(name, 2)
    world.node.topic(far, 2, configs={"diskless.enable": "true"})
    asked = MetadataRequest(topics=[MetadataRequestTopic(name=each) for each in (name, far)])
    world.ask(asked, 9, **client)
    for records in (batch(), batch(producer_id=number, producer_epoch=0, base_sequence=0), b"bad"):
        data = [PartitionProduceData(index=0, records=bytes(records))]
        topics = [TopicProduceData(name=name, partition_data=data)]
        world.ask(ProduceRequest(acks=1, timeout_ms=1_000, topic_data=topics), 9, **client)
    wanted = [FetchTopic(topic=name, partitions=[FetchPartition(partition=0)])]
    begun = world.ask(FetchRequest(max_wait_ms=0, topics=wanted), 11, **client)
    world.ask(FetchRequest(session_id=begun.session_id, session_epoch=-1, topics=[]), 11, **client)
    member_id, generation_id = world.one_member(group_id=group_id, **client)
    who = {"group_id": group_id, "member_id": member_id, "generation_id": generation_id}
    world.commit({0: 1}, topic=name, **who)
    world.leave((member_id, None), group_id=group_id)
    world.commit({1: 2}, topic=name, group_id=f"simple-{number}")
    gone = [world.broker.image.topic(each) for each in (name, far)]
    for each in (name, far):
        world.node.remove(each)
    delta = MetadataDelta(deleted_topics=tuple(each for each in gone if each is not None))
    world.broker.take_image(delta, delta, world.node.now_ms)
    world.advance(8 * DAY_MS)
    expire(world.groups, world.node.now_ms)
    world.wake()
    world.node.folder.checkpoint()
    world.node.folder.remove_deleted(world.node.now_ms)


def test_a_broker_holds_no_more_after_topics_groups_and_clients_have_come_and_gone() -> None:
    world = GroupWorld()
    counts = []
    for number in range(3 * ROUNDS):
        one_life_of_a_topic(world, number)
        if number in (ROUNDS - 1, 3 * ROUNDS - 1):
            counts.append(census((world.broker, world.node.folder), ELSEWHERE))
    bounded = {path for path in counts[1] if ".metadata_cache._" in path}
    assert all(counts[1][path] <= 2 * CACHED_TOPICS for path in bounded)
    returning = {path for path in counts[1] if path.endswith("._may_return")}
    assert all(counts[1][path] <= MOST_RETURNING for path in returning)
    more = grown(*counts, least=ROUNDS // 2)
    assert not {path: more[path] for path in more.keys() - bounded - returning}


NAMED_BY_CLIENTS = (
    java_hash,
    lambda name: offset_key(name, "t", 0),
    lambda name: offset_key("g", name, 0),
)


@pytest.mark.parametrize("remember", NAMED_BY_CLIENTS)
def test_what_is_remembered_by_a_client_s_name_has_a_bound_in_bytes(remember) -> None:
    """A name may have 32 KB, and caches keep tens of thousands of them."""
    tracemalloc.start()
    try:
        for number in range(40):
            remember(f"{number:030000}")
        held_bytes, _ = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert held_bytes < 500_000


def one_month_of_a_cluster(world: World, number: int) -> None:
    """Topics, also with placement constraints and moves, brokers that restart, and one that is
    there once."""
    name = f"topic-{number}"
    world.create(name, [1, 2], [2, 3])
    narrow = {"factor": -1, "confluent_placement_constraints": "replicas=east:2"}
    assert create(world, f"narrow-{number}", **narrow).error_code == ErrorCode.NONE
    incarnation = 2 + number
    world.register(2, incarnation=incarnation, rack="east")
    world.beat(2)
    world.start(50 + number)
    world.pass_time(INTERVAL_MS + 1)
    world.ask(UnregisterBrokerRequest(broker_id=50 + number))
    world.ask(delete_names(name, f"narrow-{number}"), 5)
    for broker_id in (1, 2, 3):
        world.beat(broker_id)
    world.pass_time(INTERVAL_MS + 1)


def test_a_controller_holds_no_more_after_topics_and_brokers_have_come_and_gone() -> None:
    world = World()
    for broker_id in (1, 2, 3):
        world.register(broker_id, rack="east")
        world.beat(broker_id)
    counts = []
    for number in range(3 * ROUNDS):
        one_month_of_a_cluster(world, number)
        if number in (ROUNDS - 1, 3 * ROUNDS - 1):
            counts.append(census(world.controller, (CommittedLog,)))
    more = grown(*counts, least=ROUNDS // 2)
    said = {path for path in more if ".history._said" in path}
    assert all(counts[1][path] <= MOST for path in said)
    assert not {path: more[path] for path in more.keys() - said}
