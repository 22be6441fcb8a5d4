"""Topics while brokers are missing: KIP-409 as document 001 has it (K1, K2, K3, K4, K5)."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.test_reassignment import alter, listed, move
from tests.core.controller.world import World, speaking

from anabranch.core.api.metadata_view import View, partition_view
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.metadata.snapshot import snapshot_records
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest

ON = {"enable.under.replicated.topic.creation": "true"}


def create(
    world: World, name: str = "t", *, partitions: int = 1, factor: int = 3, **configs: str
) -> Any:
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in {"min_insync_replicas": "2", **configs}.items()
        ],
    )
    return world.ask(CreateTopicsRequest(topics=[topic]), 7).topics[0]


def grow(world: World, count: int) -> Any:
    topic = CreatePartitionsTopic(name="t", count=count, assignments=None)
    return world.ask(CreatePartitionsRequest(topics=[topic])).results[0]


def cluster(*broker_ids: int, **settings: str) -> World:
    world = World(settings={**ON, **settings})
    world.start(*broker_ids)
    return world


def shape(world: World, index: int = 0) -> tuple[int, int, int, int]:
    """Replicas there are, of them on the way, missing, replication factor."""
    state = world.partition("t", index)
    return len(state.replicas), len(state.adding), state.missing, state.replication_factor


def test_off_it_is_as_in_kafka() -> None:
    world = World()
    world.start(1, 2)
    answer = create(world)
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert answer.error_message == (
        "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be "
        "reached because only 2 broker(s) are registered."
    )


def test_on_a_topic_is_created_and_answered_with_what_was_asked_for() -> None:
    world = cluster(1, 2)
    answer = create(world, partitions=2)
    assert (answer.error_code, answer.replication_factor) == (ErrorCode.NONE, 3)
    state = world.partition("t")
    assert (sorted(state.replicas), state.missing) == ([1, 2], 1)
    assert sorted(state.isr) == [1, 2]
    assert (
        "1 replica of each to be placed on the next broker" in world.sentences("TOPIC_CREATED")[0]
    )


def test_missing_replicas_are_negative_ids_at_the_end_of_answers_alone() -> None:
    world = cluster(1, 2)
    create(world, factor=5)
    state = world.partition("t")
    seen = partition_view(world.image, 0, state, View("PLAINTEXT"))
    assert seen.replica_nodes == [*state.replicas, -1, -2, -3]
    assert seen.offline_replicas == [-1, -2, -3]
    assert seen.leader_id in (1, 2)
    assert all(each > 0 for each in (*state.replicas, *state.isr))


def test_it_needs_as_many_active_brokers_as_acks_all() -> None:
    world = cluster(1)
    answer = create(world)
    assert answer.error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert "1 active broker(s) are too few" in answer.error_message
    assert "min.insync.replicas needs 2" in answer.error_message
    assert create(world, "one", min_insync_replicas="1").error_code == ErrorCode.NONE
    assert create(world, "two", factor=1).error_code == ErrorCode.NONE


def test_known_brokers_that_are_down_come_before_missing_ones() -> None:
    world = cluster(1, 2, 3)
    world.beat(3, want_fence=True)
    assert create(world, factor=4).error_code == ErrorCode.NONE
    state = world.partition("t")
    assert (sorted(state.replicas), state.missing, sorted(state.isr)) == ([1, 2, 3], 1, [1, 2])


def test_a_broker_that_is_leaving_in_order_fails_no_creation() -> None:
    world = cluster(1, 2, 3)
    create(world, "led", partitions=3)
    world.beat(3, want_shut_down=True)
    assert world.image.brokers[3].in_controlled_shutdown
    assert create(world).error_code == ErrorCode.NONE
    state = world.partition("t")
    assert (sorted(state.replicas), state.missing, sorted(state.isr)) == ([1, 2, 3], 0, [1, 2])


def test_a_broker_that_joins_gets_the_missing_replicas_paced() -> None:
    world = cluster(1, 2)
    create(world, partitions=150)
    world.start(3)
    world.pass_time(600)
    assert len(world.controller.state.moving) == 100
    assert shape(world) == (3, 1, 0, 3)
    assert 3 not in world.partition("t").isr
    world.pass_time(2_000)
    assert len(world.controller.state.moving) == 100, "more begin when some are done"
    for index in range(150):
        if world.partition("t", index).adding:
            alter(world, *world.partition("t", index).isr, 3, index=index)
    assert shape(world) == (3, 0, 0, 3)
    world.pass_time(600)
    assert len(world.controller.state.short) == 0
    assert all(world.partition("t", index).leader != 3 for index in range(150))


def filled_by_one_that_went_down(partitions: int) -> World:
    """Broker 3 was to fill what brokers 1 and 2 lack, and is down; broker 4 has just come."""
    world = cluster(1, 2)
    create(world, partitions=partitions)
    world.start(3)
    world.pass_time(600)
    world.beat(3, want_fence=True)
    world.start(4)
    return world


def test_moves_that_wait_for_a_broker_that_is_down_hold_no_filling_up() -> None:
    world = filled_by_one_that_went_down(partitions=150)
    world.pass_time(600)
    assert len(world.controller.state.short) == 0
    assert sum(world.partition("t", index).adding == (4,) for index in range(150)) == 50


def test_a_filling_ends_although_another_replica_is_down() -> None:
    world = cluster(1, 2)
    create(world, min_insync_replicas="1")
    world.beat(2, want_fence=True)
    world.start(3)
    world.pass_time(600)
    assert shape(world) == (3, 1, 0, 3)
    alter(world, 1, 3)
    assert (shape(world), world.partition("t").isr) == ((3, 0, 0, 3), (1, 3))
    assert world.sentences("REASSIGNMENT_DONE")[-1].endswith(
        ", of which 1, 3 are in sync, and none left"
    )


def test_a_filling_of_a_broker_that_was_unregistered_is_given_to_another() -> None:
    world = filled_by_one_that_went_down(partitions=3)
    world.pass_time(2_000)
    assert world.partition("t").adding == (3,), "it may come back"
    world.ask(UnregisterBrokerRequest(broker_id=3))
    world.pass_time(1_200)
    assert [world.partition("t", index).adding for index in range(3)] == [(4,)] * 3
    assert shape(world) == (3, 1, 0, 3)


def test_one_broker_fills_one_of_several_missing_replicas() -> None:
    world = cluster(1, 2)
    create(world, factor=4)
    world.start(3)
    world.pass_time(600)
    assert shape(world) == (3, 1, 1, 4)
    alter(world, *world.partition("t").isr, 3)
    world.pass_time(600)
    assert shape(world) == (3, 0, 1, 4)
    world.start(4)
    world.pass_time(600)
    alter(world, *world.partition("t").isr, 4)
    assert shape(world) == (4, 0, 0, 4)


def test_a_second_broker_that_is_there_fills_when_the_first_has_copied() -> None:
    world = cluster(1, 2)
    create(world, factor=4)
    world.start(3, 4)
    world.pass_time(600)
    assert world.partition("t").adding == (3,)
    world.pass_time(2_000)
    alter(world, *world.partition("t").isr, 3)
    world.pass_time(600)
    assert (world.partition("t").adding, shape(world)) == ((4,), (4, 1, 0, 4))


def test_a_filling_goes_on_when_the_setting_is_off_again() -> None:
    world = cluster(1, 2)
    create(world)
    world.controller.config = world.controller.static_config.with_dynamic(
        {"enable.under.replicated.topic.creation": "false"}, {}
    )
    world.start(3)
    world.pass_time(600)
    assert shape(world) == (3, 1, 0, 3)


def test_new_partitions_have_the_factor_that_the_topic_should_have() -> None:
    world = cluster(1, 2)
    create(world)
    assert grow(world, 3).error_code == ErrorCode.NONE
    assert [shape(world, index) for index in range(3)] == [(2, 0, 1, 3)] * 3


def test_new_partitions_have_it_also_while_replicas_move() -> None:
    world = cluster(1, 2, 3, 4, 5)
    create(world)
    row = world.partition("t").replicas
    others = [each for each in (1, 2, 3, 4, 5) if each not in row]
    move(world, row[0], *others)
    assert len(world.partition("t").replicas) == 5
    assert grow(world, 2).error_code == ErrorCode.NONE
    assert shape(world, 1) == (3, 0, 0, 3)


def test_rack_drift_is_said() -> None:
    world = World(settings=ON)
    for broker_id, rack in ((1, "a"), (2, "b"), (3, "a")):
        if broker_id == 3:
            create(world)
        world.register(broker_id, rack=rack)
        world.beat(broker_id)
    world.pass_time(600)
    (said,) = world.sentences("MISSING_REPLICA_FILLED")
    assert said == (
        "broker 3 gets a replica of t-0 that no broker had, although rack a has one already: a "
        "rack violation"
    )


def test_a_free_rack_comes_first() -> None:
    world = World(settings=ON)
    for broker_id, rack in ((1, "a"), (2, "b")):
        world.register(broker_id, rack=rack)
        world.beat(broker_id)
    create(world)
    for broker_id, rack in ((3, "a"), (4, "c")):
        world.register(broker_id, rack=rack)
        world.beat(broker_id)
    world.pass_time(600)
    assert world.partition("t").adding == (4,)


def test_a_move_gives_missing_replicas_up_and_missing_again_when_taken_back() -> None:
    world = cluster(1, 2)
    create(world)
    world.start(3, 4)
    assert move(world, 3, 4, allow_replication_factor_change=False).error_code == (
        ErrorCode.INVALID_REPLICATION_FACTOR
    )
    assert move(world, 3, 4).error_code == ErrorCode.NONE
    state = world.partition("t")
    assert (state.missing, state.suspended, state.replication_factor) == (0, 1, 3)
    assert listed(world)
    assert move(world, cancel=True).error_code == ErrorCode.NONE
    state = world.partition("t")
    assert (sorted(state.replicas), state.missing, state.suspended) == ([1, 2], 1, 0)


def test_the_factor_counts_a_replica_that_is_being_filled_once() -> None:
    world = cluster(1, 2)
    create(world)
    world.start(3, 4)
    world.pass_time(600)
    assert shape(world) == (3, 1, 0, 3)
    asked = move(world, 1, 2, 4, allow_replication_factor_change=False)
    assert asked.error_code == ErrorCode.NONE, asked.error_message


def test_a_move_instead_of_a_filling_is_taken_back_to_what_was_there_before_both() -> None:
    world = cluster(1, 2)
    create(world)
    world.start(3, 4)
    world.pass_time(600)
    assert world.partition("t").adding == (3,)
    move(world, 1, 2, 4)
    assert world.partition("t").replication_factor == 3
    move(world, cancel=True)
    state = world.partition("t")
    assert (sorted(state.replicas), state.missing, state.suspended) == ([1, 2], 1, 0)


def test_fewer_replicas_than_there_are_leave_none_to_be_missed() -> None:
    world = cluster(1, 2, 3)
    create(world, factor=4)
    assert (world.partition("t").missing, world.partition("t").suspended) == (1, 0)
    leader, follower, _ = world.partition("t").replicas
    move(world, leader, follower)
    state = world.partition("t")
    assert (state.replicas, state.missing, state.suspended) == ((leader, follower), 0, 0)
    assert state.replication_factor == 2


def test_giving_missing_replicas_up_is_done_at_once_and_said() -> None:
    world = cluster(1, 2)
    create(world)
    row = world.partition("t").replicas
    move(world, *row)
    assert shape(world) == (2, 0, 0, 2)
    names = ", ".join(map(str, row))
    assert world.sentences("REASSIGNMENT_DONE") == [
        f"t-0 stays on {names}: it has no missing replicas now"
    ]


def test_what_is_missing_again_is_filled_although_others_could_not_be() -> None:
    world = cluster(1, 2)
    create(world)
    create(world, "large", factor=6)
    world.start(3)
    move(world, 1, 2, 3)
    world.pass_time(600)
    alter(world, 1, 2, 3, name="large")
    world.pass_time(1_200)
    state = world.controller.state
    assert [state.topic_name(key) for key in state.short] == ["large"]
    assert not world.partition("large").adding, "nobody is left for it"
    move(world, cancel=True)
    world.pass_time(600)
    assert world.partition("t").adding == (3,)


def test_a_move_that_is_done_has_exactly_the_replicas_that_were_asked_for() -> None:
    world = cluster(1, 2)
    create(world)
    world.start(3)
    move(world, 1, 3)
    alter(world, 1, 2, 3)
    assert shape(world) == (2, 0, 0, 2)
    world.pass_time(2_000)
    assert world.partition("t").adding == ()


def test_the_least_that_must_be_in_sync_counts_missing_replicas() -> None:
    world = cluster(1, 2)
    create(world)
    world.beat(2, want_fence=True)
    state = world.partition("t")
    assert (state.isr, state.elr) == ((1,), (2,)), "one of three in sync is less than two"


def test_snapshot_and_log_have_them() -> None:
    world = cluster(1, 2)
    create(world)
    world.start(3)
    move(world, 1, 3)
    assert world.replayed() == world.image
    again, _ = replay_batch(
        MetadataImage.empty(), tuple(snapshot_records(world.image)), world.image.offset, 1
    )
    assert again.partition("t", 0) == world.partition("t")


def test_a_cluster_with_a_node_that_could_not_read_it_does_as_kafka() -> None:
    world = World(settings=ON)
    world.start(1)
    world.register(2, features=speaking(1))
    world.beat(2)
    assert create(world).error_code == ErrorCode.INVALID_REPLICATION_FACTOR
    assert world.image.topic("t") is None


@pytest.mark.parametrize("placer", ["computed", "spread", "striped"])
def test_the_placer_may_be_chosen_for_a_topic(placer: str) -> None:
    world = World(seed=3)
    world.start(1, 2, 3, 4, 5)
    answer = create(world, partitions=6, replica_placer_class_name=placer)
    assert answer.error_code == ErrorCode.NONE
    if placer == "computed":
        assert world.partition("t", 5).replicas == (1, 3, 4)
        assert world.image.placement_cursor == 6
        create(world, "next", replica_placer_class_name=placer)
        assert world.image.partition("next", 0).replicas == (2, 4, 5)  # type: ignore[union-attr]
    else:
        assert world.image.placement_cursor == 0
    assert grow(world, 8).error_code == ErrorCode.NONE


def test_an_unknown_placer_is_refused_by_name() -> None:
    world = World()
    world.start(1)
    answer = create(world, factor=1, replica_placer_class_name="clever")
    assert answer.error_code == ErrorCode.INVALID_CONFIG
    assert "replica.placer.class.name" in answer.error_message
    assert "computed" in answer.error_message
