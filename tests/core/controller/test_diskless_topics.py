"""Which topics may be diskless: decided at creation, written out, and never changed."""

from __future__ import annotations

import pytest
from tests.core.controller.world import World

from anabranch.core.controller.diskless.rows import ListTopics, LogRows, TakeControl
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataDelta
from anabranch.core.wire.messages.alter_configs import (
    AlterableConfig as Replaced,
)
from anabranch.core.wire.messages.alter_configs import (
    AlterConfigsRequest,
)
from anabranch.core.wire.messages.alter_configs import (
    AlterConfigsResource as Resource,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.core.wire.metadata_records import ConfigRecord

ON = {"diskless.storage.system.enable": "true"}
BY_DEFAULT = {**ON, "log.diskless.enable": "true"}
SET, DELETE = 0, 1


def world_with(settings):
    world = World(settings=settings)
    world.start(1)
    return world


def create(world, name, **configs):
    topic = CreatableTopic(
        name=name,
        num_partitions=1,
        replication_factor=-1,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )
    (answer,) = world.ask(CreateTopicsRequest(topics=[topic])).topics
    return answer.error_code, answer.error_message or ""


def configs_of(world, name):
    return dict(world.image.config(RESOURCE_TOPIC, name))


def alter(world, name, setting, value, operation=SET):
    config = AlterableConfig(name=setting, config_operation=operation, value=value)
    resource = AlterConfigsResource(resource_type=2, resource_name=name, configs=[config])
    (answer,) = world.ask(IncrementalAlterConfigsRequest(resources=[resource])).responses
    return answer.error_code, answer.error_message or ""


def test_without_a_storage_system_creation_is_refused_and_the_setting_is_named():
    world = world_with({})
    code, words = create(world, "t", diskless_enable="true")
    assert code == ErrorCode.INVALID_CONFIG
    assert "diskless.storage.system.enable is false" in words
    assert world.image.topic("t") is None
    assert create(world, "t", diskless_enable="false") == (0, "")


@pytest.mark.parametrize(
    ("settings", "name", "configs", "diskless"),
    [
        (ON, "t", {}, None),
        (ON, "t", {"diskless_enable": "true"}, "true"),
        (ON, "t", {"diskless_enable": " TRUE"}, "true"),
        (BY_DEFAULT, "t", {}, "true"),
        (BY_DEFAULT, "t", {"diskless_enable": "false"}, "false"),
        (BY_DEFAULT, "t", {"cleanup_policy": "compact"}, None),
        (BY_DEFAULT, "t", {"cleanup_policy": "compact,delete"}, None),
        ({**BY_DEFAULT, "log.cleanup.policy": "compact"}, "t", {}, None),
        (BY_DEFAULT, "__consumer_offsets", {}, None),
        (ON, "t", {"diskless_enable": "true", "cleanup_policy": "compact"}, "true"),
        (ON, "t", {"diskless_enable": "true", "cleanup_policy": "compact,delete"}, "true"),
    ],
)
def test_the_kind_of_a_topic_is_written_at_its_creation(settings, name, configs, diskless):
    world = world_with(settings)
    assert create(world, name, **configs) == (0, "")
    assert configs_of(world, name).get("diskless.enable") == diskless


@pytest.mark.parametrize(
    ("name", "configs", "said"),
    [
        ("t", {"remote_storage_enable": "true"}, "remote.storage.enable=true"),
        ("__consumer_offsets", {}, "is internal"),
    ],
)
def test_what_a_diskless_topic_cannot_have_is_refused_with_a_reason(name, configs, said):
    world = world_with({**ON, "remote.log.storage.system.enable": "true"})
    code, words = create(world, name, diskless_enable="true", **configs)
    assert code == ErrorCode.INVALID_CONFIG
    assert said in words
    assert world.image.topic(name) is None


def test_a_topic_stays_what_it_was_created_as():
    world = world_with(ON)
    create(world, "classic")
    create(world, "diskless", diskless_enable="true")
    for name, value, operation in (
        ("classic", "true", SET),
        ("diskless", "false", SET),
        ("diskless", None, DELETE),
    ):
        before = configs_of(world, name)
        code, words = alter(world, name, "diskless.enable", value, operation)
        assert code == ErrorCode.INVALID_CONFIG
        assert name in words
        assert configs_of(world, name) == before
    assert alter(world, "diskless", "cleanup.policy", "compact") == (0, "")
    assert alter(world, "diskless", "retention.ms", "1000") == (0, "")
    assert alter(world, "diskless", "diskless.enable", "true") == (0, "")
    assert alter(world, "classic", "diskless.enable", "false") == (0, "")


def test_a_tool_that_replaces_all_settings_leaves_the_kind_alone():
    world = world_with(ON)
    create(world, "t", diskless_enable="true", retention_ms="5")
    wanted = [Replaced(name="max.message.bytes", value="1000")]
    resource = Resource(resource_type=2, resource_name="t", configs=wanted)
    (answer,) = world.ask(AlterConfigsRequest(resources=[resource])).responses
    assert answer.error_code == 0
    assert configs_of(world, "t") == {"diskless.enable": "true", "max.message.bytes": "1000"}


SPELLINGS = ("true", "TRUE", "True", " true", "true ", "\ttRuE")


def replace(world, name, setting, value):
    resource = Resource(
        resource_type=2, resource_name=name, configs=[Replaced(name=setting, value=value)]
    )
    (answer,) = world.ask(AlterConfigsRequest(resources=[resource])).responses
    return answer.error_code, answer.error_message or ""


@pytest.mark.parametrize("change", [alter, replace])
@pytest.mark.parametrize("text", SPELLINGS)
def test_another_spelling_of_true_leaves_the_kind_and_the_rows_alone(text, change):
    world = world_with(ON)
    create(world, "t", diskless_enable="true")
    before = configs_of(world, "t")
    assert change(world, "t", "diskless.enable", text) == (0, "")
    assert configs_of(world, "t") == before == {"diskless.enable": "true"}
    rows_survive_a_new_term(world.image)


@pytest.mark.parametrize("text", SPELLINGS)
def test_a_log_that_has_another_spelling_of_true_keeps_the_rows(text):
    """Written by an earlier checkout; such a topic can be changed like any other."""
    world = world_with(ON)
    create(world, "t", diskless_enable="true")
    world.commit(
        [ConfigRecord(resource_type=2, resource_name="t", name="diskless.enable", value=text)]
    )
    rows_survive_a_new_term(world.image)
    for value in ("false", "no"):
        assert alter(world, "t", "diskless.enable", value)[0] == ErrorCode.INVALID_CONFIG
    assert alter(world, "t", "retention.ms", "5") == (0, "")
    assert configs_of(world, "t") == {"diskless.enable": "true", "retention.ms": "5"}
    rows_survive_a_new_term(world.image)


def rows_survive_a_new_term(image):
    topic = image.topic("t")
    rows = LogRows()
    rows.began(2, image.next_offset)
    rows.follow(image, MetadataDelta())
    asked = []
    for given in (None, [(topic.topic_id, len(topic.partitions))], None, None):
        effects = rows.take_effects(0)
        asked += effects
        for effect in effects:
            rows.answered(effect, given, 0)
    assert [type(each) for each in asked] == [TakeControl, ListTopics]
