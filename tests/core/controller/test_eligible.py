"""R6: eligible leader replicas as Kafka 4.1 has them (KIP-966), event by event."""

from __future__ import annotations

import pytest
from tests.core.controller.test_in_sync import UNCLEAN, alter, elect
from tests.core.controller.test_resources import alter as alter_config
from tests.core.controller.world import World

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import ELR_VERSION
from anabranch.core.metadata.image import PartitionImage
from anabranch.core.wire.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1
MINIMUM = "min.insync.replicas"


@pytest.fixture
def world() -> World:
    """t-0 is on 1, 2 and 3 with a minimum of 2 in sync."""
    made = World()
    made.start(1, 2, 3)
    made.create("t", [1, 2, 3], min_insync_replicas="2")
    return made


def sets(state: PartitionImage) -> tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]:
    return state.isr, state.elr, state.last_known_elr


@pytest.mark.parametrize("value", [" 2", "02", "+2"])
def test_the_same_minimum_in_another_spelling_clears_nothing(world: World, value: str) -> None:
    alter(world, 1)
    assert alter_config(world, TOPIC, "t", MINIMUM, value) == (0, None)
    assert world.image.config(TOPIC, "t")[MINIMUM] == value
    assert sets(world.partition("t")) == ((1,), (2, 3), ())
    assert alter_config(world, TOPIC, "t", MINIMUM, "3") == (0, None)
    assert sets(world.partition("t")) == ((1,), (), ())


def test_new_clusters_have_it_on(world: World) -> None:
    assert world.image.features[ELR_VERSION] == 1
    assert world.image.config(BROKER, "")[MINIMUM] == "1"


def test_a_leader_that_shrinks_and_expands_the_isr_fills_and_empties_the_set(world: World) -> None:
    alter(world, 1)
    assert sets(world.partition("t")) == ((1,), (2, 3), ())
    alter(world, 1, 3)
    assert sets(world.partition("t")) == ((1, 3), (), ())


def test_fencing_moves_replicas_to_the_set_and_the_isr_may_become_empty(world: World) -> None:
    for broker_id in (3, 2, 1):
        world.beat(broker_id, want_fence=True)
    state = world.partition("t")
    assert sets(state) == ((), (1, 2), (1,)) and state.leader == -1
    assert world.replayed() == world.image


def test_an_eligible_replica_that_returns_is_elected_cleanly(world: World) -> None:
    for broker_id in (3, 2, 1):
        world.beat(broker_id, want_fence=True)
    world.beat(3)
    assert world.partition("t").leader == -1, "3 left while the ISR was large enough"
    world.beat(2)
    state = world.partition("t")
    assert (state.leader, state.recovery_state) == (2, 0)
    assert sets(state) == ((2,), (1,), ())
    assert world.sentences("LEADER_ELECTED")[-1] == "broker 2 leads t-0 (broker 2: it is back)"


def test_a_broker_that_crashed_leaves_the_set_when_it_registers(world: World) -> None:
    for broker_id in (3, 2):
        world.beat(broker_id, want_fence=True)
    assert world.partition("t").elr == (2,)
    world.register(2, incarnation=2)
    assert sets(world.partition("t")) == ((1,), (), ())
    assert world.sentences("ELR_LEFT") == [
        "broker 2 is no longer eligible to lead t-0: it was restarted after an unclean stop"
    ]


def test_a_broker_that_stopped_in_order_stays_eligible(world: World) -> None:
    for broker_id in (3, 2):
        world.beat(broker_id, want_fence=True)
    epoch = world.image.brokers[2].epoch
    world.register(2, incarnation=2, previous_broker_epoch=epoch)
    assert sets(world.partition("t")) == ((1,), (2,), ())


def test_without_elr_a_crash_is_as_a_stop(world: World) -> None:
    world.level(ELR_VERSION, 0)
    for broker_id in (3, 2):
        world.beat(broker_id, want_fence=True)
    world.register(1, incarnation=2)
    assert sets(world.partition("t")) == ((1,), (), ()) and world.partition("t").leader == -1
    world.beat(1)
    assert world.partition("t").leader == 1


def test_after_a_crash_of_all_the_last_known_leader_leads_and_counts_as_unclean(
    world: World,
) -> None:
    for broker_id in (3, 2, 1):
        world.register(broker_id, incarnation=2)
    assert sets(world.partition("t")) == ((), (), (1,))
    world.beat(2)
    world.beat(3)
    assert world.partition("t").leader == -1
    world.beat(1)
    state = world.partition("t")
    assert (state.leader, state.isr, state.recovery_state) == (1, (1,), 1)


def test_an_unregistered_broker_leaves_isr_and_set(world: World) -> None:
    for broker_id in (3, 2):
        world.beat(broker_id, want_fence=True)
    world.ask(UnregisterBrokerRequest(broker_id=2))
    world.ask(UnregisterBrokerRequest(broker_id=1))
    assert sets(world.partition("t")) == ((), (), (1,))


def test_a_deleted_topic_leaves_nothing_in_the_indexes(world: World) -> None:
    world.beat(3, want_fence=True)
    world.beat(2, want_fence=True)
    world.ask(DeleteTopicsRequest(topics=[DeleteTopicState(name="t")]))
    state = world.controller.state
    assert not any(state.in_isr.values()) and not any(state.in_elr.values())
    assert world.register(2, incarnation=2).error_code == 0


# The effective minimum, and changes of it.


@pytest.mark.parametrize(
    ("topic", "cluster", "eligible"),
    [("1", "3", ()), ("9", "1", (3,)), (None, "3", (3,)), (None, "2", ())],
)
def test_the_effective_minimum_is_the_topics_else_the_clusters_at_most_the_replicas(
    topic: str | None, cluster: str, eligible: tuple[int, ...]
) -> None:
    world = World()
    world.start(1, 2, 3)
    assert alter_config(world, BROKER, "", MINIMUM, cluster) == (0, None)
    world.create("t", [1, 2, 3], **({} if topic is None else {"min_insync_replicas": topic}))
    world.beat(3, want_fence=True)
    assert sets(world.partition("t")) == ((1, 2), eligible, ())


@pytest.mark.parametrize(("kind", "name"), [(TOPIC, "t"), (BROKER, "")])
@pytest.mark.parametrize("value", ["1", "3"])
def test_a_changed_minimum_clears_the_sets(world: World, kind: int, name: str, value: str) -> None:
    alter(world, 1)
    epoch = world.partition("t").partition_epoch
    assert alter_config(world, kind, name, MINIMUM, value) == (0, None)
    changed = not (kind == BROKER and value == "1")
    state = world.partition("t")
    assert state.elr == (() if changed else (2, 3))
    assert state.partition_epoch == epoch + changed
    assert state.leader_epoch == 0
    assert bool(world.sentences("ELR_CLEARED")) is changed
    assert world.replayed() == world.image


def test_clearing_changes_no_partition_that_had_no_set(world: World) -> None:
    before = world.partition("t")
    alter_config(world, TOPIC, "t", MINIMUM, "1")
    assert world.partition("t") == before


def test_a_topic_clears_its_own_sets_alone(world: World) -> None:
    world.create("u", [1, 2, 3], min_insync_replicas="2")
    world.beat(3, want_fence=True)
    world.beat(2, want_fence=True)
    alter_config(world, TOPIC, "t", MINIMUM, "1")
    assert (world.partition("t").elr, world.partition("u").elr) == ((), (2,))


def test_lowering_the_minimum_in_an_outage_does_not_make_it_last(world: World) -> None:
    """Where nobody is in sync nothing is acknowledged, so the set is still true: it is kept."""
    for broker_id in (3, 2, 1):
        world.beat(broker_id, want_fence=True)
    alter_config(world, TOPIC, "t", MINIMUM, "1")
    assert sets(world.partition("t")) == ((), (1, 2), (1,))
    alter_config(world, BROKER, "", MINIMUM, "2")
    world.beat(2)
    state = world.partition("t")
    assert (state.leader, state.recovery_state, state.isr) == (2, 0, (2,))
    assert world.replayed() == world.image


def test_a_single_brokers_minimum_cannot_be_changed(world: World) -> None:
    assert alter_config(world, BROKER, "1", MINIMUM, "2") == (
        ErrorCode.INVALID_CONFIG,
        "Broker-level min.insync.replicas cannot be altered while ELR is enabled.",
    )
    world.level(ELR_VERSION, 0)
    assert alter_config(world, BROKER, "1", MINIMUM, "2") == (0, None)


def test_the_clusters_minimum_cannot_be_removed(world: World) -> None:
    refused = (
        ErrorCode.INVALID_CONFIG,
        "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.",
    )
    assert alter_config(world, BROKER, "", MINIMUM, None, DELETE) == refused
    resource = AlterConfigsResource(
        resource_type=BROKER, resource_name="",
        configs=[AlterableConfig(name="log.cleaner.threads", value="1")],
    )  # fmt: skip
    (answer,) = world.ask(AlterConfigsRequest(resources=[resource])).responses
    assert (answer.error_code, answer.error_message) == refused
    world.level(ELR_VERSION, 0)
    assert alter_config(world, BROKER, "", MINIMUM, None, DELETE) == (0, None)


# Brokers that come back with another folder than the one that the partition names (KIP-858).

EMPTY = bytes([222]) * 16
OTHER_KIND = pytest.mark.parametrize("elr", [1, 0], ids=["elr", "no elr"])


def alone_and_wiped(elr: int, **configs: str) -> World:
    """t-0 is on 1 and 2, led by 1 alone; 1 comes back with an empty disk, 2 is down."""
    world = World()
    world.level(ELR_VERSION, elr)
    world.start(1, 2)
    world.create("t", [1, 2], **configs)
    world.beat(2, want_fence=True)
    come_back_empty(world, 1)
    return world


def come_back_empty(world: World, broker_id: int) -> None:
    world.beat(broker_id, want_fence=True)
    assert world.register(broker_id, incarnation=2, log_dirs=[EMPTY]).error_code == 0
    world.beat(broker_id)


@OTHER_KIND
def test_a_wiped_replica_does_not_lead_for_having_led(elr: int) -> None:
    world = alone_and_wiped(elr)
    assert world.partition("t").leader == -1
    world.beat(2)
    assert world.partition("t").leader == -1, "2 left while 1 went on alone"


@OTHER_KIND
def test_an_unclean_election_prefers_who_was_not_wiped(elr: int) -> None:
    world = alone_and_wiped(elr)
    world.beat(2)
    assert elect(world, UNCLEAN, 0) == [("t", 0, 0)]
    assert (world.partition("t").leader, world.partition("t").recovery_state) == (2, 1)


@OTHER_KIND
def test_a_wiped_replica_leads_uncleanly_when_there_is_nobody_else(elr: int) -> None:
    world = alone_and_wiped(elr, unclean_leader_election_enable="true")
    state = world.partition("t")
    assert (state.leader, state.isr, state.recovery_state) == (1, (1,), 1)
    assert state.directories[0] == EMPTY, "that is where it lies now"
    world.beat(1, want_fence=True)
    world.beat(1)
    assert world.partition("t").leader == 1
    assert world.replayed() == world.image


def test_a_wiped_replica_that_is_in_sync_again_lies_where_it_is(world: World) -> None:
    come_back_empty(world, 3)
    before = world.partition("t").directories
    assert alter(world, 1, 2, 3).error_code == 0
    state = world.partition("t")
    assert state.directories == (*before[:2], EMPTY) and state.isr == (1, 2, 3)
    world.beat(1, want_fence=True)
    world.beat(2, want_fence=True)
    assert world.partition("t").leader == 3


def test_a_folder_that_the_broker_chose_itself_says_nothing(world: World) -> None:
    world.register(4, log_dirs=[bytes([201]) * 16, bytes([202]) * 16])
    world.beat(4)
    world.create("u", [4])
    assert world.partition("u").directories == (bytes(16),)
    come_back_empty(world, 4)
    assert world.partition("u").leader == 4
