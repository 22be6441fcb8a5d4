"""From phase to phase: how the controller has a classic topic become diskless."""

from __future__ import annotations

import pytest
from tests.core.controller.test_diskless_topics import SET, alter, configs_of
from tests.core.controller.world import World

from anabranch.core.controller.diskless.migrations import MOST_SEALING_MS
from anabranch.core.diskless.migration import PHASE, Step, phase_of
from anabranch.core.diskless.topics import BEGINS, begins_of
from anabranch.core.errors import ErrorCode
from anabranch.core.tiering.seals import Progress
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)

ON = {"diskless.storage.system.enable": "true", "remote.log.storage.system.enable": "true"}
PARTITIONS = 2


def made(settings=ON, **configs):
    """A world with the classic topic "t" of two partitions on two brokers."""
    world = World(settings=settings)
    world.start(1, 2)
    topic = CreatableTopic(
        name="t", num_partitions=PARTITIONS, replication_factor=2,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in {"remote_storage_enable": "true", **configs}.items()
        ],
    )  # fmt: skip
    (answer,) = world.ask(CreateTopicsRequest(topics=[topic])).topics
    assert answer.error_code == 0, answer.error_message
    return world


def begin(world):
    return alter(world, "t", "diskless.enable", "true")


def phase(world):
    return phase_of(configs_of(world, "t").get(PHASE, ""))


def hear(world, ready, sealed, migration=None):
    topic = world.image.topic("t")
    number = phase(world).migration if migration is None else migration
    migrations = world.controller.duties.migrations
    ends = tuple((each, each * 10) for each in range(sealed))
    migrations.heard(topic.topic_id, number, Progress(ready, sealed, ends))
    return world.pass_time(200)


def test_a_topic_goes_from_phase_to_phase_and_is_diskless_with_new_epochs():
    world = made()
    before = {at: each.leader_epoch for at, each in world.image.topic("t").partitions.items()}
    assert begin(world) == (0, "")
    assert phase(world).step is Step.PREPARING
    assert "diskless.enable" not in configs_of(world, "t")
    assert hear(world, 1, 0) == []
    assert hear(world, 2, 0) == ["MIGRATION_STEPPED"]
    assert phase(world).step is Step.SEALING
    assert hear(world, 2, 1) == []
    assert "MIGRATION_STEPPED" in hear(world, 2, 2)
    configs = configs_of(world, "t")
    assert configs["diskless.enable"] == "true"
    assert configs["remote.storage.enable"] == "true"  # its segments are not to be removed
    assert PHASE not in configs
    assert begins_of(world.image, "t") == (0, 10)
    topic = world.image.topic("t")
    for at, each in topic.partitions.items():
        assert each.leader_epoch == before[at] + 1
        assert each.isr == each.replicas
        assert (topic.topic_id, at) in world.controller.state.diskless.keys
        assert all((topic.topic_id, at) not in held for held in
                   world.controller.state.in_isr.values())  # fmt: skip
    assert world.replayed() == world.image
    code, words = alter(world, "t", "diskless.enable", "false")
    assert code == ErrorCode.INVALID_CONFIG
    assert "cannot be changed" in words
    assert alter(world, "t", "retention.ms", "1000") == (0, "")
    code, words = alter(world, "t", BEGINS, "0,0", SET)
    assert code == ErrorCode.INVALID_CONFIG
    assert begins_of(world.image, "t") == (0, 10)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("cleanup.policy", "compact"),
        ("cleanup.policy", "compact,delete"),
        ("local.retention.ms", "604800001"),
        ("remote.log.copy.disable", "true"),
    ],
)
def test_what_contradicts_a_remote_log_is_no_matter_once_the_topic_is_diskless(setting, value):
    """Brokers copy nothing of it any more; a job may compact it."""
    world = made()
    begin(world)
    hear(world, 2, 0)
    hear(world, 2, 2)
    assert configs_of(world, "t")["diskless.enable"] == "true"
    assert alter(world, "t", setting, value, SET) == (0, "")
    assert alter(world, "t", "remote.storage.enable", "false", SET)[0] == ErrorCode.INVALID_CONFIG
    assert alter(world, "t", "retention.ms", "1000") == (0, "")


@pytest.mark.parametrize("setting", [PHASE, BEGINS])
def test_what_the_controller_writes_is_refused_in_a_new_topic(setting):
    world = made()
    topic = CreatableTopic(
        name="new", num_partitions=1, replication_factor=2,
        configs=[CreatableTopicConfig(name=setting, value="7")],
    )  # fmt: skip
    (answer,) = world.ask(CreateTopicsRequest(topics=[topic])).topics
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "written by the controller" in answer.error_message


def test_what_was_heard_of_another_migration_does_not_count():
    world = made()
    begin(world)
    first = phase(world).migration
    assert hear(world, 2, 2, migration=first - 1) == []
    assert alter(world, "t", "diskless.enable", "false") == (0, "")
    assert phase(world) is None
    begin(world)
    assert phase(world).migration > first
    assert hear(world, 2, 2, migration=first) == []
    assert phase(world).step is Step.PREPARING


def test_sealing_that_lasts_too_long_is_given_up_under_a_new_number():
    world = made()
    begin(world)
    hear(world, 2, 0)
    sealing = phase(world)
    assert "MIGRATION_STEPPED" not in world.pass_time(MOST_SEALING_MS - 2_000)
    assert phase(world) == sealing
    assert "MIGRATION_STEPPED" in world.pass_time(4_000)
    assert phase(world).step is Step.PREPARING
    assert phase(world).migration > sealing.migration
    assert hear(world, 2, 2, migration=sealing.migration) == []
    assert "diskless.enable" not in configs_of(world, "t")


def test_a_partition_that_was_added_is_waited_for():
    world = made()
    begin(world)
    hear(world, 2, 0)
    world.controller.duties.migrations.heard(
        world.image.topic("t").topic_id, phase(world).migration, Progress(2, 1)
    )
    world.pass_time(200)
    assert "diskless.enable" not in configs_of(world, "t")


@pytest.mark.parametrize(
    ("settings", "configs", "why"),
    [
        ({"remote.log.storage.system.enable": "true"}, {}, "diskless.storage.system.enable is"),
        (ON, {"remote_storage_enable": "false"}, "without remote.storage.enable=true"),
        (ON, {"remote_log_copy_disable": "true"}, "remote.log.copy.disable=true"),
        (ON, {"unclean_leader_election_enable": "true"}, "unclean.leader.election.enable=true"),
        (
            ON,
            {"remote_storage_enable": "false", "cleanup_policy": "compact"},
            "compacted topics have no remote log",
        ),
    ],
)
def test_a_topic_that_may_not_is_refused_with_the_reason(settings, configs, why):
    world = made(settings, **configs)
    code, words = begin(world)
    assert code == ErrorCode.INVALID_CONFIG
    assert why in words
    assert phase(world) is None


def test_a_topic_with_a_replica_that_is_not_in_sync_is_refused():
    world = made()
    world.pass_time(20_000)  # nobody sends heartbeats: one of them has left the in-sync replicas
    code, words = begin(world)
    assert code == ErrorCode.INVALID_CONFIG
    assert "t-0 has" in words


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        (PHASE, "sealing:1"),
        ("cleanup.policy", "compact"),
        ("remote.log.copy.disable", "true"),
        ("unclean.leader.election.enable", "true"),
    ],
)
def test_what_a_migration_needs_stays_until_it_ends(setting, value):
    world = made()
    begin(world)
    before = configs_of(world, "t")
    code, _ = alter(world, "t", setting, value, SET)
    assert code == ErrorCode.INVALID_CONFIG
    assert configs_of(world, "t") == before
    assert alter(world, "t", "retention.ms", "1000") == (0, "")
    assert phase(world) is not None
    assert begin(world) == (0, "")  # again, it goes on
    assert phase(world) == phase_of(before[PHASE])


def test_a_text_that_is_no_phase_is_none():
    for text in ("", "sealing", "sealing:", "sealing:-1", "sealing:x", "other:1", ":1"):
        assert phase_of(text) is None
    assert str(phase_of("sealing:17")) == "sealing:17"
