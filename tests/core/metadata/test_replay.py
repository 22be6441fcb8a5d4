"""Live state == replay of the log == snapshot plus tail; a change costs what it touches."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.controller.test_resources import alter as alter_config
from tests.core.controller.world import World

from anabranch.core.controller.brokers.hints import Answer
from anabranch.core.controller.cluster_state import ClusterState
from anabranch.core.controller.partitions.observers import set_observers
from anabranch.core.errors import ApiError, Bug
from anabranch.core.metadata.batches import (
    decode_batches,
    encode_batch,
    encode_snapshot,
    snapshot_is_whole,
)
from anabranch.core.metadata.features import ELR_VERSION
from anabranch.core.metadata.image import MetadataImage, TopicImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.elect_leaders import ElectLeadersRequest
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.core.wire.metadata_records import (
    AbortTransactionRecord,
    BeginTransactionRecord,
    EndTransactionRecord,
    PartitionChangeRecord,
    PartitionRecord,
    TopicRecord,
)

NAMES = st.sampled_from(["a", "b.c", "b_c", "d"])
BROKERS = st.integers(1, 3)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("create"), NAMES, st.integers(1, 4), st.integers(1, 3)),
        st.tuples(st.just("grow"), NAMES, st.integers(1, 6)),
        st.tuples(st.just("delete"), NAMES),
        st.tuples(st.just("set"), NAMES, st.sampled_from(["1", "2", "1000"])),
        st.tuples(st.just("register"), BROKERS, st.integers(1, 3)),
        st.tuples(st.just("beat"), BROKERS, st.booleans(), st.booleans()),
        st.tuples(st.just("ids"), BROKERS),
        st.tuples(st.just("silence")),
        st.tuples(st.just("hint"), BROKERS),
        st.tuples(st.just("observe"), NAMES, st.lists(BROKERS, unique=True)),
        st.tuples(st.just("unclean"), NAMES, st.sampled_from(["true", "false"])),
        st.tuples(st.just("elect"), st.integers(0, 1)),
        st.tuples(st.just("elr"), st.integers(0, 1)),
        st.tuples(st.just("wait"), st.integers(1, 400_000)),
        st.tuples(st.just("join"), NAMES),
        st.tuples(st.just("wipe"), BROKERS, st.integers(3, 4)),
    ),
    max_size=30,
)


def take(world: World, step: tuple[Any, ...]) -> None:
    """One step of a history; refusals are part of it."""
    kind, *rest = step
    if kind == "create":
        topic = CreatableTopic(name=rest[0], num_partitions=rest[1], replication_factor=rest[2])
        world.ask(CreateTopicsRequest(topics=[topic]))
    elif kind == "grow":
        topic = CreatePartitionsTopic(name=rest[0], count=rest[1], assignments=None)
        world.ask(CreatePartitionsRequest(topics=[topic]))
    elif kind == "delete":
        world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name=rest[0])]))
    elif kind == "set":
        change = AlterableConfig(name="min.insync.replicas", config_operation=0, value=rest[1])
        resource = AlterConfigsResource(resource_type=2, resource_name=rest[0], configs=[change])
        world.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    elif kind == "register":
        world.register(rest[0], incarnation=rest[1])
    elif kind == "beat" and rest[0] in world.image.brokers:
        world.beat(rest[0], want_fence=rest[1], want_shut_down=rest[2])
    elif kind == "ids" and rest[0] in world.image.brokers:
        epoch = world.image.brokers[rest[0]].epoch
        world.ask(AllocateProducerIdsRequest(broker_id=rest[0], broker_epoch=epoch))
    elif kind == "silence":
        world.now_ms += 9_001
        while (result := world.controller.tick(world.now_ms)) is not None:
            world.commit(result.records)
    else:
        take_own(world, kind, rest)


def take_own(world: World, kind: str, rest: list[Any]) -> None:
    """The steps that came with elections, hints and roles."""
    if kind == "hint" and rest[0] in world.image.brokers:
        epoch = world.image.brokers[rest[0]].epoch
        world.controller.connection_closed(rest[0], epoch, world.now_ms)
        world.now_ms += 1
        for probe in world.controller.take_probes():
            result = world.controller.probed(probe, Answer.REFUSED, world.now_ms)
            world.commit_result(result)
    elif kind == "observe" and world.image.partition(rest[0], 0) is not None:
        with suppress(ApiError):
            world.commit_result(set_observers(world.controller.state, rest[0], 0, rest[1]))
    elif kind == "unclean" and world.image.topic(rest[0]) is not None:
        alter_config(world, 2, rest[0], "unclean.leader.election.enable", rest[1])
    elif kind == "elect":
        world.ask(ElectLeadersRequest(election_type=rest[0], topic_partitions=None))
    elif kind == "elr":
        update = FeatureUpdateKey(
            feature=ELR_VERSION, max_version_level=rest[0], upgrade_type=2 - rest[0]
        )
        world.ask(UpdateFeaturesRequest(feature_updates=[update]))
    elif kind == "wait":
        world.pass_time(rest[0])
    elif kind == "wipe":
        folder = bytes([rest[0] + 10 * rest[1]]) * 16
        world.register(rest[0], incarnation=rest[1], log_dirs=[folder])
    elif kind == "join" and world.image.partition(rest[0], 0) is not None:
        join(world, rest[0])


def join(world: World, name: str) -> None:
    """The leader of the first partition takes every active replica into its ISR."""
    topic, state = world.image.topic(name), world.partition(name)
    leader = world.image.brokers.get(state.leader)
    if topic is None or leader is None:
        return
    active = {each.broker_id for each in world.image.brokers.values() if each.active}
    asked = AlterPartitionRequestPartitionData(
        partition_index=0, leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch
    )
    asked.new_isr = [each for each in state.replicas if each in active]
    data = AlterPartitionRequestTopicData(topic_id=topic.topic_id, partitions=[asked])
    request = AlterPartitionRequest(
        broker_id=leader.broker_id, broker_epoch=leader.epoch, topics=[data]
    )
    (answer,) = world.ask(request, 2).topics[0].partitions
    assert answer.error_code == 0


def check_invariants(image: MetadataImage) -> None:
    """What must hold after every step."""
    for topic in image.topics_by_id.values():
        assert image.topic_ids_by_name[topic.name] == topic.topic_id
        assert sorted(topic.partitions) == list(range(len(topic.partitions)))
        for partition in topic.partitions.values():
            assert set(partition.isr) <= set(partition.replicas)
            assert not set(partition.isr) & set(partition.elr)
            assert set(partition.elr) <= set(partition.replicas)
            assert not set(partition.observers) & set(partition.replicas)
            assert image.features.get(ELR_VERSION, 0) or (partition.isr and not partition.elr)
            for member in partition.isr:
                alone = partition.isr == (member,) and partition.leader < 0
                assert alone or image.brokers[member].active
            if partition.leader >= 0:
                assert partition.leader in partition.isr
                assert image.brokers[partition.leader].active


@settings(max_examples=100, deadline=None)
@given(STEPS, st.integers(0, 29))
def test_live_state_is_replay_is_snapshot_plus_tail(steps: list[tuple[Any, ...]], cut: int) -> None:
    world = World()
    world.start(1, 2)
    snapshot, tail_from = b"", 0
    middle = world.image
    for number, step in enumerate(steps):
        if number == cut:
            middle, tail_from = world.image, len(world.batches)
            snapshot = encode_snapshot(
                snapshot_records(middle), epoch=1, last_contained_ms=1, now_ms=1
            )
        take(world, step)
        check_invariants(world.image)
    assert world.replayed() == world.image
    assert_bytes_say_everything(world)
    assert_indexes_follow(world.controller.state)
    if snapshot:
        assert snapshot_is_whole(snapshot) and not snapshot_is_whole(snapshot[:-1])
        records = [each for batch in decode_batches(snapshot) for each in batch.records]
        image = from_snapshot(records, middle.next_offset, 1)
        assert image == middle
        for batch in world.batches[tail_from:]:
            for decoded in decode_batches(batch):
                image, _ = replay_batch(image, decoded.records, decoded.last_offset, 1)
        assert image == world.image


def assert_bytes_say_everything(world: World) -> None:
    """Decoded and encoded again, batches and snapshot are the same bytes in Kafka's format."""
    for batch in world.batches:
        (decoded,) = decode_batches(batch)
        header = decoded.header
        assert batch == encode_batch(
            decoded.records,
            base_offset=header.base_offset,
            epoch=header.leader_epoch,
            now_ms=header.base_timestamp,
        )
    whole = encode_snapshot(snapshot_records(world.image), epoch=1, last_contained_ms=1, now_ms=1)
    records = [each for batch in decode_batches(whole) for each in batch.records]
    image = from_snapshot(records, world.image.next_offset, world.image.epoch)
    assert image == world.image
    again = encode_snapshot(snapshot_records(image), epoch=1, last_contained_ms=1, now_ms=1)
    assert again == whole


def assert_indexes_follow(state: ClusterState) -> None:
    fresh = ClusterState.of(state.image)
    names = ("in_isr", "in_elr", "led_count", "leaderless", "preferred_count", "away", "colliding")
    for name in names:
        kept = {key: value for key, value in getattr(state, name).items() if value != 0}
        kept = {key: value for key, value in kept.items() if value != {}}
        made = {key: value for key, value in getattr(fresh, name).items() if value != {}}
        assert kept == made, name
    assert (state.racks.spreads, state.missing_count) == (fresh.racks.spreads, fresh.missing_count)
    assert +state.observed_count == fresh.observed_count


def filled(topics: int, partitions: int) -> World:
    """A cluster with many partitions, all on broker 1, and broker 2 with none."""
    world = World(settings={"num.partitions": "1"})
    world.start(1)
    for number in range(topics):
        topic = CreatableTopic(name=f"t{number}", num_partitions=partitions, replication_factor=1)
        world.ask(CreateTopicsRequest(topics=[topic]))
    world.start(2)
    return world


def test_a_change_costs_what_it_touches_not_what_exists() -> None:
    """Counted looks at partitions are the same in a small and in a large cluster."""
    looks = []
    for topics in (2, 20):
        world = filled(topics, 500)
        state = world.controller.state
        before = state.steps
        topic = CreatableTopic(name="one-more", num_partitions=3, replication_factor=1)
        world.ask(CreateTopicsRequest(topics=[topic]))
        world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="one-more")]))
        world.beat(2, want_fence=True)
        world.beat(2)
        looks.append(state.steps - before)
        kept = world.image.topic("t0")
        assert isinstance(kept, TopicImage)
    assert looks[0] == looks[1] < 30


def test_partitions_with_equal_lists_share_them() -> None:
    """Each list of its own took 40 MB more where 100,000 partitions were made and moved."""
    made = [TopicRecord(name="t", topic_id=b"t" * 16)]
    moved = []
    for index in range(10):
        where = {"partition_id": index, "topic_id": b"t" * 16}
        made.append(PartitionRecord(**where, replicas=[1, 2], isr=[1, 2], leader=1,
                                    directories=[bytes(16), bytes(16)]))  # fmt: skip
        moved.append(PartitionChangeRecord(**where, replicas=[1, 2, 3], isr=[1, 2, 3],
                                           directories=[bytes(16)] * 3))  # fmt: skip
    image = MetadataImage.empty()
    for records in (made, moved):
        (batch,) = decode_batches(
            encode_batch(records, base_offset=image.next_offset, epoch=1, now_ms=0)
        )
        image, _ = replay_batch(image, batch.records, batch.last_offset, 1)
        (topic,) = image.topics_by_id.values()
        lists = [
            each for one in topic.partitions.values()
            for each in (one.replicas, one.isr, one.directories)
        ]  # fmt: skip
        assert len(lists) == 30
        assert len(set(map(id, lists))) == len(set(lists)) == 2


def test_records_between_the_marks_of_kafkas_controller_are_followed() -> None:
    begin, end = BeginTransactionRecord(name="Bootstrap records"), EndTransactionRecord()
    topic = TopicRecord(name="t", topic_id=TopicId(bytes(15) + b"\x01"))
    image, delta = replay_batch(MetadataImage.empty(), [begin, topic, end], 2, 1)
    assert list(image.topic_ids_by_name) == ["t"]
    assert delta.created_topics == (topic.topic_id,)
    with pytest.raises(Bug, match="no rule replays AbortTransactionRecord"):
        replay_batch(image, [AbortTransactionRecord()], 3, 1)


def test_a_topic_id_is_not_given_twice() -> None:
    topic = TopicRecord(name="t", topic_id=TopicId(bytes(15) + b"\x01"))
    image, _ = replay_batch(MetadataImage.empty(), [topic], 0, 1)
    with pytest.raises(Bug, match="given twice"):
        replay_batch(image, [TopicRecord(name="u", topic_id=topic.topic_id)], 1, 1)


@pytest.mark.parametrize("how", ["silence", "hint", "crash", "unregistered"])
def test_losing_a_broker_costs_its_own_partitions(how: str) -> None:
    """Broker 2 has three partitions among very many of broker 1."""
    looks = []
    for topics in (2, 20):
        world = filled(topics, 500)
        world.create("mine", [2, 1], [2, 1])
        world.create("alone", [2])
        state, before = world.controller.state, world.controller.state.steps
        if how == "silence":
            world.now_ms += 5_000
            world.beat(1)
            assert "BROKER_SESSION_EXPIRED" in world.pass_time(5_000)
        elif how == "hint":
            take(world, ("hint", 2))
            world.beat(1)
            world.pass_time(8_000)
            world.beat(1)
            world.pass_time(8_000)
        elif how == "crash":
            world.register(2, incarnation=2)
        else:
            world.ask(UnregisterBrokerRequest(broker_id=2))
        assert world.partition("mine", 0).leader == 1
        looks.append(state.steps - before)
    assert looks[0] == looks[1] < 30
