"""CreateTopics, DeleteTopics and CreatePartitions: Kafka's codes and texts."""

# ruff: noqa: E501

from typing import Any

import pytest
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.topic_names import INTERNAL_TOPICS
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState


def topic(name: str = "t", partitions: int = 1, factor: int = 1, **rest: Any) -> CreatableTopic:
    return CreatableTopic(name=name, num_partitions=partitions, replication_factor=factor, **rest)


def manual(*lists: list[int], **rest: Any) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in enumerate(lists)
    ]
    return topic(partitions=-1, factor=-1, assignments=assignments, **rest)


def create(world: World, *topics: CreatableTopic, validate_only: bool = False) -> Any:
    request = CreateTopicsRequest(topics=list(topics), validate_only=validate_only)
    return world.ask(request).topics


@pytest.fixture
def world() -> World:
    made = World()
    made.start(1, 2, 3)
    return made


@pytest.mark.parametrize(
    ("wanted", "code", "sentence"),
    [
        (topic(""), 17, "Topic name is invalid: the empty string is not allowed"),
        (topic(".."), 17, "Topic name is invalid: '..' is not allowed"),
        (topic(factor=0), 38, "Replication factor must be larger than 0, or -1 to use the default value."),
        (topic(factor=4), 38, "Unable to replicate the partition 4 time(s): The target replication factor of 4 cannot be reached because only 3 broker(s) are registered."),
        (topic(partitions=0), 37, "Number of partitions was set to an invalid non-positive value."),
        (topic(configs=[CreatableTopicConfig(name="retention.ms", value=None)]), 40, "Null value not supported for topic configs: retention.ms"),
        (manual([1], []), 39, "The manual partition assignment includes an empty replica list."),
        (manual([9]), 39, "The manual partition assignment includes broker 9, but no such broker is registered."),
        (manual([2, 2]), 39, "The manual partition assignment includes the broker 2 more than once."),
        (manual([1, 2, 3], [1, 2]), 39, "The manual partition assignment includes a partition with 2 replica(s), but this is not consistent with previous partitions, which have 3 replica(s)."),
    ],
)  # fmt: skip
def test_a_refused_topic(world: World, wanted: CreatableTopic, code: int, sentence: str) -> None:
    (result,) = create(world, wanted)
    assert (result.error_code, result.error_message) == (code, sentence)
    assert not world.image.topics_by_id


def test_a_manual_assignment_with_counts(world: World) -> None:
    wanted = manual([1])
    wanted.replication_factor = 1
    (result,) = create(world, wanted)
    assert result.error_code == ErrorCode.INVALID_REQUEST
    assert "replication factor was not set to -1" in result.error_message


def test_an_existing_and_a_colliding_name(world: World) -> None:
    create(world, topic("a.b"))
    exists, collides = create(world, topic("a.b"), topic("a_b"))
    assert (exists.error_code, exists.error_message) == (36, "Topic 'a.b' already exists.")
    assert collides.error_message == "Topic 'a_b' collides with existing topic: a.b"


def test_duplicates_and_the_metadata_topic(world: World) -> None:
    results = create(world, topic("x"), topic("x"), topic("__cluster_metadata"))
    assert [(each.name, each.error_code) for each in results] == [
        ("x", 42),
        ("__cluster_metadata", 42),
    ]


def test_too_many_partitions_a_request(world: World) -> None:
    (result,) = create(world, topic(partitions=10_001))
    assert result.error_code == ErrorCode.POLICY_VIOLATION


def test_validate_only_writes_nothing(world: World) -> None:
    (result,) = create(world, topic(partitions=5), validate_only=True)
    assert (result.error_code, result.num_partitions) == (0, 5)
    assert world.image.topic("t") is None


def test_the_isr_of_a_new_partition_is_active_and_its_first_leads(world: World) -> None:
    world.beat(2, want_fence=True)
    create(world, manual([2, 3, 1]))
    partition = world.image.partition("t", 0)
    assert partition is not None
    assert (partition.isr, partition.leader) == ((3, 1), 3)


def test_nobody_active(world: World) -> None:
    for broker_id in (1, 2, 3):
        world.beat(broker_id, want_fence=True)
    automatic, by_hand = create(world, topic("a"), manual([1, 2], name="b"))  # type: ignore[misc]
    assert automatic.error_message == (
        "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
    )
    assert by_hand.error_code == 39


def grow(
    world: World, count: int, assignments: list[list[int]] | None = None, *, name: str = "t"
) -> Any:
    lists = assignments and [CreatePartitionsAssignment(broker_ids=each) for each in assignments]
    wanted = CreatePartitionsTopic(name=name, count=count, assignments=lists)
    return world.ask(CreatePartitionsRequest(topics=[wanted])).results[0]


def test_partitions_grow(world: World) -> None:
    assert grow(world, 2).error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    create(world, topic(partitions=2))
    assert grow(world, 2).error_message == "Topic already has 2 partition(s)."
    sentence = "The topic t currently has 2 partition(s); 1 would not be an increase."
    assert grow(world, 1).error_message == sentence
    sentence = (
        "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified."
    )
    assert grow(world, 4, [[1]]).error_message == sentence
    assert grow(world, 4, [[1], [2]]).error_code == 0
    assert grow(world, 5).error_code == 0
    found = world.image.topic("t")
    assert found is not None and len(found.partitions) == 5
    assert found.partitions[3].replicas == (2,)


@pytest.mark.parametrize("name", sorted(INTERNAL_TOPICS))
def test_an_internal_topic_does_not_grow(world: World, name: str) -> None:
    """Who asks for a group or a transactional id would find another partition, and nothing in it."""
    create(world, topic(name, partitions=2))
    assert grow(world, 3, name=name).error_code == ErrorCode.INVALID_REQUEST
    found = world.image.topic(name)
    assert found is not None and len(found.partitions) == 2


def test_a_topic_is_deleted_by_name_or_id(world: World) -> None:
    create(world, topic("a"), topic("b"))
    found = world.image.topic("b")
    assert found is not None
    states = [
        DeleteTopicState(name="a"),
        DeleteTopicState(topic_id=found.topic_id),
        DeleteTopicState(name="nope"),
        DeleteTopicState(),
    ]
    responses = world.ask(DeleteTopicsRequest(topics=states)).responses
    assert [each.error_code for each in responses] == [0, 0, 3, 42]
    assert not world.image.topics_by_id and not world.controller.state.in_isr[1]


def test_deletion_can_be_disabled() -> None:
    world = World(settings={"delete.topic.enable": "false"})
    request = DeleteTopicsRequest(topics=[DeleteTopicState(name="a")])
    assert world.ask(request).responses[0].error_code == ErrorCode.TOPIC_DELETION_DISABLED


def test_a_controller_in_waiting_answers_not_controller(world: World) -> None:
    world.controller.resign()
    assert create(world, topic())[0].error_code == ErrorCode.NOT_CONTROLLER
