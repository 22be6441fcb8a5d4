"""R7: what the controller does by the clock, and when it wants to be asked."""

from __future__ import annotations

import pytest
from tests.core.controller.world import World

from anabranch.core.controller import duties
from anabranch.core.controller.brokers.sessions import AFTER_A_HIT_MS
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionRequestPartitionData,
    AlterPartitionRequestTopicData,
)
from anabranch.core.wire.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

QUIET = {"broker.session.timeout.ms": "100000000"}
"""Nobody is fenced by silence in these tests."""
MINUTE_MS = 60_000


def world_with(**settings: str) -> World:
    texts = {name.replace("_", "."): value for name, value in settings.items()}
    return World(settings=QUIET | texts)


def move_away(world: World, broker_id: int) -> None:
    """The broker loses what it leads, comes back, and is in sync again."""
    world.beat(broker_id, want_fence=True)
    world.beat(broker_id)
    for topic in world.image.topics_by_id.values():
        for index, partition in topic.partitions.items():
            if broker_id in partition.replicas and partition.leader >= 0:
                asked = AlterPartitionRequestPartitionData(
                    partition_index=index,
                    leader_epoch=partition.leader_epoch,
                    partition_epoch=partition.partition_epoch,
                    new_isr=sorted({*partition.isr, broker_id}),
                )
                request = AlterPartitionRequest(
                    broker_id=partition.leader,
                    broker_epoch=world.image.brokers[partition.leader].epoch,
                    topics=[
                        AlterPartitionRequestTopicData(topic_id=topic.topic_id, partitions=[asked])
                    ],
                )
                assert world.ask(request, 2).topics[0].partitions[0].error_code == 0


def leaders(world: World, name: str = "t") -> list[int]:
    topic = world.image.topic(name)
    assert topic is not None
    return [topic.partitions[index].leader for index in sorted(topic.partitions)]


def test_leaderships_go_back_to_preferred_brokers_after_the_interval() -> None:
    world = world_with()
    world.start(1, 2)
    world.create("t", [1, 2], [1, 2], [2, 1])
    move_away(world, 1)
    assert leaders(world) == [2, 2, 2]
    assert world.pass_time(5 * MINUTE_MS - 10) == [] and leaders(world) == [2, 2, 2]
    assert world.pass_time(1_200) == ["LEADERS_REBALANCED"]
    assert leaders(world) == [1, 1, 2]
    assert world.pass_time(60 * MINUTE_MS) == []
    assert world.replayed() == world.image


def test_nothing_moves_when_the_balance_is_switched_off() -> None:
    world = world_with(auto_leader_rebalance_enable="false")
    world.start(1, 2)
    world.create("t", [1, 2])
    move_away(world, 1)
    assert world.pass_time(30 * MINUTE_MS) == [] and leaders(world) == [2]


def test_the_check_interval_is_a_setting() -> None:
    world = world_with(leader_imbalance_check_interval_seconds="7")
    world.start(1, 2)
    world.create("t", [1, 2])
    move_away(world, 1)
    assert world.pass_time(7_000) == ["LEADERS_REBALANCED"]


@pytest.mark.parametrize(("percentage", "moves"), [("10", False), ("9", True), ("0", True)])
def test_a_broker_is_left_alone_up_to_the_percentage(percentage: str, moves: bool) -> None:
    """One of ten preferred leaderships is elsewhere: exactly 10 per cent."""
    world = world_with(leader_imbalance_per_broker_percentage=percentage)
    world.start(1, 2)
    world.create("t", *([[1, 2]] * 9))
    world.create("u", [1, 2])
    move_away(world, 1)
    take_back(world, "t")
    assert leaders(world, "t") == [1] * 9 and leaders(world, "u") == [2]
    world.pass_time(6 * MINUTE_MS)
    assert leaders(world, "u") == ([1] if moves else [2])


def take_back(world: World, name: str) -> None:
    topic = world.image.topic(name)
    assert topic is not None
    named = [TopicPartitions(topic=name, partitions=list(topic.partitions))]
    world.ask(ElectLeadersRequest(election_type=0, topic_partitions=named))


def test_a_run_writes_at_most_its_records_and_the_rest_follows_soon(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    assert duties.MOST_RECORDS == 1000
    monkeypatch.setattr(duties, "MOST_RECORDS", 3)
    world = world_with()
    world.start(1, 2)
    world.create("t", *([[1, 2]] * 8))
    move_away(world, 1)
    due_ms = world.controller.duties.balance_ms
    world.pass_time(due_ms - world.now_ms)
    assert leaders(world).count(1) == 3
    assert world.controller.next_tick_ms == due_ms + AFTER_A_HIT_MS
    world.pass_time(AFTER_A_HIT_MS)
    assert leaders(world).count(1) == 6
    world.pass_time(AFTER_A_HIT_MS)
    assert leaders(world).count(1) == 8
    assert world.sentences("LEADERS_REBALANCED") == [
        "back to preferred brokers: 3 leaderships, more to come",
        "back to preferred brokers: 3 leaderships, more to come",
        "back to preferred brokers: 2 leaderships",
    ]


def test_a_broker_gets_back_all_it_was_promised(monkeypatch: pytest.MonkeyPatch) -> None:
    """Though after the first run it is no longer over the percentage."""
    monkeypatch.setattr(duties, "MOST_RECORDS", 3)
    world = world_with(leader_imbalance_per_broker_percentage="80")
    world.start(1, 2)
    world.create("t", *([[1, 2]] * 8))
    move_away(world, 1)
    world.pass_time(6 * MINUTE_MS)
    assert leaders(world) == [1] * 8


def test_only_who_is_in_sync_and_active_leads_again() -> None:
    world = world_with()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.beat(1, want_fence=True)
    assert world.pass_time(6 * MINUTE_MS) == []
    world.beat(1)
    assert world.pass_time(6 * MINUTE_MS) == [] and leaders(world) == [2]
    assert world.partition("t").isr == (2,)


# The periodic unclean election.


def set_unclean(world: World, resource_type: int, name: str, value: str) -> None:
    change = AlterableConfig(name="unclean.leader.election.enable", config_operation=0, value=value)
    resource = AlterConfigsResource(
        resource_type=resource_type, resource_name=name, configs=[change]
    )
    response = world.ask(IncrementalAlterConfigsRequest(resources=[resource]))
    assert response.responses[0].error_code == 0, response.responses[0].error_message


def leaderless(**settings: str) -> World:
    """t-0 is on 1 and 2; only 1 was in sync, and its session is over."""
    world = World(settings={name.replace("_", "."): value for name, value in settings.items()})
    world.start(1, 2)
    world.create("t", [1, 2])
    world.beat(2, want_fence=True)
    world.now_ms += 5_000
    world.beat(2)
    world.now_ms += 5_000
    world.beat(2)
    world.pass_time(1)
    assert world.image.brokers[1].fenced and world.partition("t").leader == -1
    return world


@pytest.mark.parametrize(
    ("resource_type", "name"), [(2, "t"), (4, ""), (4, "1")], ids=["topic", "cluster", "node"]
)
def test_allowing_unclean_elections_elects_nobody_at_once(resource_type: int, name: str) -> None:
    world = leaderless()
    set_unclean(world, resource_type, name, "true")
    assert world.partition("t").leader == -1
    keep_alive(world, 2, 4 * MINUTE_MS + 40_000)
    assert world.partition("t").leader == -1
    keep_alive(world, 2, 20_000)
    state = world.partition("t")
    assert (state.leader, state.isr, state.recovery_state) == (2, (2,), 1)
    assert world.sentences("LEADER_ELECTED_UNCLEANLY") == [
        "broker 2 leads t-0 and may lack acknowledged records (it had no leader, and "
        "unclean.leader.election.enable is true)"
    ]


def keep_alive(world: World, broker_id: int, ms: int) -> None:
    for _ in range(ms // 2_000):
        world.beat(broker_id)
        world.pass_time(2_000)


def test_the_file_allows_it_for_topics_that_say_nothing() -> None:
    world = leaderless(unclean_leader_election_interval_ms="30000")
    controller = world.controller
    controller.static_config = BrokerConfig.of({"unclean.leader.election.enable": "true"})
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    keep_alive(world, 2, 12_000)
    assert world.partition("t").leader == 2


def test_the_interval_of_unclean_elections_is_a_setting() -> None:
    world = leaderless(unclean_leader_election_interval_ms="30000")
    set_unclean(world, 2, "t", "true")
    keep_alive(world, 2, 32_000)
    assert world.partition("t").leader == 2


def test_a_topic_that_forbids_it_stays_without_a_leader() -> None:
    world = leaderless(unclean_leader_election_interval_ms="30000")
    set_unclean(world, 4, "", "true")
    set_unclean(world, 2, "t", "false")
    keep_alive(world, 2, 70_000)
    assert world.partition("t").leader == -1


# When to be asked.


def test_a_quiet_controller_wants_to_be_asked_a_few_times_a_session() -> None:
    world = World()
    world.start(1, 2, 3)
    for _ in range(30):
        for broker_id in (1, 2, 3):
            world.beat(broker_id)
        world.pass_time(2_000)
    assert world.ticks <= 60_000 // 1_125 + 5


def test_a_session_ends_when_it_ends() -> None:
    """The tick is asked for at that millisecond, not somewhere in the next eighth of a session."""
    world = World()
    world.start(1)
    assert world.pass_time(9_000) == []
    assert world.pass_time(1)[0] == "BROKER_SESSION_EXPIRED"


def test_a_tick_that_has_nothing_to_do_looks_at_no_partition() -> None:
    world = world_with()
    world.start(1, 2)
    world.create("t", *([[1, 2]] * 200))
    before = world.controller.state.steps
    assert world.pass_time(20 * MINUTE_MS) == []
    assert world.controller.state.steps == before
