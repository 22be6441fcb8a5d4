"""R9: replicas that copy and are counted nowhere, and the record of ours that says who they are."""

from __future__ import annotations

import pytest
from tests.core.controller.test_in_sync import alter, elect
from tests.core.controller.world import World, speaking

from anabranch.core.controller.partitions.observers import set_observers
from anabranch.core.errors import ApiError, Bug, ErrorCode
from anabranch.core.metadata.batches import decode_batches, encode_snapshot
from anabranch.core.metadata.image import MetadataImage, PartitionImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreateTopicsRequest,
)
from anabranch.core.wire.metadata_records import (
    METADATA_RECORDS,
    PartitionChangeRecord,
    ReplicaRolesRecord,
    decode_record,
    encode_record,
    read_record_head,
)
from anabranch.core.wire.own_records import (
    FIRST_OWN_ID,
    OWN_RECORD_IDS,
    OWN_RECORDS,
    RECORDS_FEATURE,
)

UNCLEAN = 1


@pytest.fixture
def world() -> World:
    """Four brokers; `t`-0 is on 1 and 2, led by 1, observed by 3 and 4; unclean is allowed."""
    made = World(settings={"unclean.leader.election.enable": "true"})
    made.start(1, 2, 3, 4)
    topic = CreatableTopic(
        name="t", num_partitions=-1, replication_factor=-1,
        assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[1, 2])],
    )  # fmt: skip
    made.ask(CreateTopicsRequest(topics=[topic]))
    made.commit(set_observers(made.controller.state, "t", 0, [3, 4]).records)
    return made


def partition(world: World) -> PartitionImage:
    found = world.image.partition("t", 0)
    assert found is not None
    return found


def test_observers_are_not_replicas_and_change_no_epoch(world: World) -> None:
    state = partition(world)
    assert (state.replicas, state.isr, state.observers) == ((1, 2), (1, 2), (3, 4))
    assert (state.leader_epoch, state.partition_epoch) == (0, 0)


def test_who_names_an_observer_in_sync_is_refused(world: World) -> None:
    before = world.image
    assert alter(world, 1, 2, 3).error_code == ErrorCode.INVALID_REQUEST
    assert world.image is before


def test_no_observer_leads_not_even_uncleanly(world: World) -> None:
    for broker_id in (1, 2):
        world.beat(broker_id, want_fence=True)
    assert partition(world).leader == -1
    assert elect(world, UNCLEAN, 0) == [("t", 0, ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE)]
    for broker_id in (3, 4):
        world.beat(broker_id, want_fence=True)
        world.beat(broker_id)
    state = partition(world)
    assert state.leader == -1 and not {3, 4} & {*state.isr, *state.elr, *state.last_known_elr}


def test_what_is_set_replaces_what_was(world: World) -> None:
    state = world.controller.state
    assert set_observers(state, "t", 0, [3, 4]).records == ()
    result = set_observers(state, "t", 0, [4])
    assert result.reasons[0].sentence == "t-0 is observed by 4"
    assert result.reasons[0].details == {"partition": "t-0", "observers": [4]}
    world.commit(result.records)
    assert partition(world).observers == (4,)
    world.commit(set_observers(state, "t", 0, []).records)
    assert partition(world).observers == ()


@pytest.mark.parametrize(
    ("topic", "index", "observers", "code"),
    [
        ("t", 0, [9], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [1], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 0, [3, 3], ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ("t", 1, [3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        ("u", 0, [3], ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_observers_that_cannot_be_are_refused(
    world: World, topic: str, index: int, observers: list[int], code: ErrorCode
) -> None:
    with pytest.raises(ApiError) as refused:
        set_observers(world.controller.state, topic, index, observers)
    assert refused.value.code == code


def test_replay_snapshot_and_live_state_agree_on_observers(world: World) -> None:
    assert world.replayed() == world.image
    whole = encode_snapshot(snapshot_records(world.image), epoch=1, last_contained_ms=1, now_ms=1)
    records = [each for batch in decode_batches(whole) for each in batch.records]
    assert from_snapshot(records, world.image.next_offset, 1) == world.image


def test_a_replica_that_begins_to_count_observes_no_more(world: World) -> None:
    change = PartitionChangeRecord(topic_id=world.image.topic_ids_by_name["t"], partition_id=0)
    change.replicas = [1, 2, 3]
    world.commit([change])
    assert partition(world).observers == (4,)


def test_roles_that_do_not_fit_are_not_replayed(world: World) -> None:
    topic_id = world.image.topic_ids_by_name["t"]
    for record in (
        ReplicaRolesRecord(topic_id=topic_id, partition_id=0, observers=[1]),
        ReplicaRolesRecord(topic_id=topic_id, partition_id=7, observers=[3]),
    ):
        with pytest.raises(Bug):
            replay_batch(world.image, [record], world.image.offset + 1, 1)


def test_a_node_that_could_not_read_the_record_refuses_the_plan() -> None:
    world = World()
    world.start(1, 2, 3)
    world.create("t", [1, 2])
    world.register(9, features=speaking(0))
    with pytest.raises(ApiError, match="needs level 1 of anabranch") as refused:
        set_observers(world.controller.state, "t", 0, [3])
    assert refused.value.code == ErrorCode.UNSUPPORTED_VERSION


def test_own_ids_are_apart_from_kafkas_and_each_record_has_its_level() -> None:
    assert all(type_id < FIRST_OWN_ID for type_id in METADATA_RECORDS)
    assert all(type_id >= FIRST_OWN_ID for type_id in OWN_RECORD_IDS)
    for type_id in OWN_RECORDS:
        assert OWN_RECORD_IDS[type_id].since is not None
    assert MetadataImage.empty().features.get(RECORDS_FEATURE, 0) == 0


def test_the_bytes_of_the_roles_record() -> None:
    record = ReplicaRolesRecord(
        topic_id=TopicId(bytes(range(16))), partition_id=5, observers=[7, -1]
    )
    data = encode_record(record)
    assert data.hex() == "01" + "904e" + "00" + "00000005" + bytes(range(16)).hex() + (
        "03" + "00000007" + "ffffffff" + "00"
    )
    assert read_record_head(data)[:2] == (10_000, 0)
    assert decode_record(data) == record
