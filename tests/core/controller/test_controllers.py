"""Controllers register, and every one of them is named by whoever is asked (KIP-919)."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION, SUPPORTED_FEATURES
from anabranch.core.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)
from anabranch.core.wire.messages.describe_cluster import DescribeClusterRequest
from anabranch.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartitionData,
    QuorumTopicData,
)
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest
from anabranch.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest

CONTROLLERS = 2
METADATA = "__cluster_metadata"


def register(world: World, node_id: int, *, port: int = 9093, newest: int = 27) -> Any:
    offered = {**SUPPORTED_FEATURES, METADATA_VERSION: (7, newest)}
    return world.ask(
        ControllerRegistrationRequest(
            controller_id=node_id,
            incarnation_id=bytes([node_id]) * 16,
            listeners=[Listener(name="CONTROLLER", host=f"host{node_id}", port=port)],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in offered.items()
            ],
        )
    )


def described(world: World) -> Any:
    answer = world.ask(DescribeClusterRequest(endpoint_type=CONTROLLERS), 1)
    return answer.controller_id, [(each.broker_id, each.host) for each in answer.brokers]


def quorum(world: World) -> Any:
    part = QuorumPartitionData(partition_index=0)
    asked = QuorumTopicData(topic_name=METADATA, partitions=[part])
    return world.ask(DescribeQuorumRequest(topics=[asked]), 2)


def test_all_controllers_are_named_and_the_active_one_is_told() -> None:
    world = World()
    world.controller.endpoint = ("host1", 9093)
    for node_id in (1, 2, 3):
        assert register(world, node_id).error_code == 0
    assert described(world) == (1, [(1, "host1"), (2, "host2"), (3, "host3")])
    assert world.replayed() == world.image


def test_one_that_waits_names_them_too_and_who_is_active() -> None:
    world = World()
    world.controller.endpoint = ("host1", 9093)
    for node_id in (1, 2):
        register(world, node_id)
    image = world.image
    world.controller.resign()
    world.controller.followed, world.controller.other_active_id = image, 2
    assert described(world) == (2, [(1, "host1"), (2, "host2")])


def test_the_same_registration_again_changes_nothing() -> None:
    world = World()
    register(world, 2)
    before = world.image
    assert register(world, 2).error_code == 0
    assert world.image is before
    register(world, 2, port=9094)
    assert world.image.controllers[2].endpoints["CONTROLLER"].port == 9094


def test_quorum_tells_controllers_as_voters_and_other_brokers_as_observers() -> None:
    world = World()
    for node_id in (1, 2):
        register(world, node_id)
    world.start(2, 4)
    world.controller.wall_ms = 7_000
    world.controller.has_read(2, 5)
    answer = quorum(world)
    partition = answer.topics[0].partitions[0]
    assert [each.replica_id for each in partition.current_voters] == [1, 2]
    assert [each.replica_id for each in partition.observers] == [4]
    follower = partition.current_voters[1]
    assert follower.log_end_offset == 5
    assert (follower.last_fetch_timestamp, follower.last_caught_up_timestamp) == (7_000, 7_000)
    assert [each.node_id for each in answer.nodes] == [1, 2]


def test_who_is_behind_was_caught_up_before() -> None:
    world = World()
    register(world, 2)
    world.controller.wall_ms = 7_000
    world.controller.has_read(2, 10)
    world.controller.log = SimpleNamespace(end_offset=12)  # type: ignore[assignment]
    world.controller.wall_ms = 8_000
    world.controller.has_read(2, 11)
    assert world.controller.read_to[2] == (11, 8_000, 7_000)


def test_a_fetch_of_a_stranger_is_not_remembered() -> None:
    world = World()
    fetch = FetchTopic(topic=METADATA, partitions=[FetchPartition(partition=0, fetch_offset=5)])
    world.ask(FetchRequest(replica_id=77, topics=[fetch]), 12)
    assert world.controller.read_to == {}


def test_a_controller_that_lacks_a_level_in_use_is_refused() -> None:
    world = World()
    answer = register(world, 2, newest=26)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "does not support finalized version 27 of metadata.version" in answer.error_message
    assert not world.image.controllers


def test_a_level_before_controllers_were_registered_has_no_record_for_them() -> None:
    world = World()
    world.level(METADATA_VERSION, 14)
    answer = register(world, 2)
    assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
    assert "too old" in answer.error_message


def test_one_that_is_gone_for_good_is_forgotten() -> None:
    """Else its old version would keep levels from being raised."""
    world = World()
    register(world, 2)
    register(world, 3)
    world.start(3)
    assert world.ask(UnregisterBrokerRequest(broker_id=2)).error_code == 0
    assert sorted(world.image.controllers) == [3]
    assert world.sentences("BROKER_UNREGISTERED") == ["controller 2 was unregistered"]
    assert world.ask(UnregisterBrokerRequest(broker_id=3)).error_code == 0
    assert not world.image.controllers and not world.image.brokers
    assert world.replayed() == world.image
    answer = world.ask(UnregisterBrokerRequest(broker_id=2))
    assert answer.error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    register(world, 2)
    assert sorted(world.image.controllers) == [2], "it came back after all"


@pytest.mark.parametrize(("level", "code"), [(26, 0), (27, ErrorCode.INVALID_UPDATE_VERSION)])
def test_no_level_is_raised_over_what_a_controller_supports(level: int, code: int) -> None:
    world = World()
    world.level(METADATA_VERSION, 25)
    register(world, 2, newest=26)
    update = FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=level, upgrade_type=1)
    answer = world.ask(UpdateFeaturesRequest(feature_updates=[update]), 2)
    assert answer.error_code == code
    assert not code or "Controller 2 only supports versions 7-26" in answer.error_message
