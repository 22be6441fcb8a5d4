"""Groups and subscriptions to clients' metrics are configured, and the quorum is described."""

from __future__ import annotations

from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.describe_quorum import (
    DescribeQuorumRequest,
    QuorumPartitionData,
    QuorumTopicData,
)
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

TOPIC, BROKER, CLIENT_METRICS, GROUP, LOGGER = 2, 4, 16, 32, 8
SET, DELETE, APPEND = 0, 1, 2


def alter(world, kind, name, setting, value, operation=SET):
    config = AlterableConfig(name=setting, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=kind, resource_name=name, configs=[config])
    (answer,) = world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return answer.error_code, answer.error_message


def test_a_subscription_is_kept_until_its_last_setting_goes():
    world = World()
    assert alter(world, CLIENT_METRICS, "w", "metrics", "a") == (0, None)
    assert alter(world, CLIENT_METRICS, "w", "metrics", "b", APPEND) == (0, None)
    assert dict(world.image.config(CLIENT_METRICS, "w")) == {"metrics": "a,b"}
    assert alter(world, CLIENT_METRICS, "w", "metrics", None, DELETE) == (0, None)
    assert (CLIENT_METRICS, "w") not in world.image.configs


def test_a_topic_s_list_is_appended_to_what_the_brokers_give_it():
    world = World(settings={"log.cleanup.policy": "compact"})
    world.start(1)
    world.create("t", [1])
    assert alter(world, TOPIC, "t", "cleanup.policy", "delete", APPEND) == (0, None)
    assert dict(world.image.config(TOPIC, "t")) == {"cleanup.policy": "compact,delete"}


def test_a_broker_s_settings_are_kept_by_its_number():
    """A broker looks for "1" alone: what is kept of "01" would have no effect."""
    world = World()
    world.start(1)
    for name, value in (("01", "5"), ("+1", "6")):
        assert alter(world, BROKER, name, "log.retention.ms", value) == (0, None)
        assert dict(world.image.config(BROKER, "1")) == {"log.retention.ms": value}
    assert (BROKER, "01") not in world.image.configs


def test_a_group_needs_not_exist_to_have_settings():
    world = World()
    assert alter(world, GROUP, "g", "consumer.session.timeout.ms", "50000") == (0, None)
    assert dict(world.image.config(GROUP, "g")) == {"consumer.session.timeout.ms": "50000"}


def test_what_has_no_name_or_no_meaning_is_refused():
    world = World()
    code, words = alter(world, CLIENT_METRICS, "", "interval.ms", "1000")
    assert code == ErrorCode.INVALID_REQUEST
    assert words == "Default client metrics resources are not allowed."
    assert alter(world, GROUP, "", "share.isolation.level", "x")[0] == ErrorCode.INVALID_REQUEST
    assert alter(world, GROUP, "g", "no.such", "1")[0] == ErrorCode.INVALID_CONFIG
    assert alter(world, LOGGER, "1", "root", "DEBUG")[0] == ErrorCode.INVALID_REQUEST


def describe(world, topic, index, version=2):
    part = QuorumPartitionData(partition_index=index)
    request = DescribeQuorumRequest(topics=[QuorumTopicData(topic_name=topic, partitions=[part])])
    return world.ask(request, version)


def test_the_active_controller_is_leader_and_voter_and_other_brokers_observe():
    world = World()
    world.start(1)
    world.start(2)
    answer = describe(world, "__cluster_metadata", 0)
    (found,) = answer.topics[0].partitions
    assert (found.leader_id, found.leader_epoch) == (1, world.controller.epoch)
    assert [each.replica_id for each in found.current_voters] == [1]
    assert found.current_voters[0].log_end_offset == found.high_watermark
    assert [each.replica_id for each in found.observers] == [2]
    assert answer.nodes[0].node_id == 1


def test_no_other_topic_has_a_quorum():
    (found,) = describe(World(), "t", 0).topics[0].partitions
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_a_controller_in_waiting_describes_nothing():
    world = World()
    world.controller.resign()
    assert describe(world, "__cluster_metadata", 0).error_code == ErrorCode.NOT_CONTROLLER
