"""Registration and heartbeats, by the sentences of KIP-631."""

import pytest
from tests.core.controller.world import World

from anabranch.core.controller.brokers.lifecycle import BrokerState, next_state
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.broker_registration import Feature
from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest

F, U, C, S = (
    BrokerState.FENCED,
    BrokerState.UNFENCED,
    BrokerState.CONTROLLED_SHUTDOWN,
    BrokerState.SHUTDOWN_NOW,
)


@pytest.mark.parametrize(
    ("current", "fence", "stop", "caught_up", "leads", "seen", "expected"),
    [
        (F, False, True, False, False, False, S),
        (F, False, False, True, False, False, U),
        (F, True, False, True, False, False, F),
        (F, False, False, False, False, False, F),
        (U, True, True, True, True, True, S),
        (U, True, False, True, True, True, F),
        (U, False, True, True, True, True, C),
        (U, False, True, True, False, True, S),
        (U, False, False, True, True, True, U),
        (C, False, True, True, True, True, C),
        (C, False, True, True, False, True, S),
        (C, False, True, True, False, False, C),
    ],
)
def test_the_table_of_states(
    current: BrokerState,
    fence: bool,
    stop: bool,
    caught_up: bool,
    leads: bool,
    seen: bool,
    expected: BrokerState,
) -> None:
    following = next_state(
        current,
        want_fence=fence,
        want_shut_down=stop,
        caught_up=caught_up,
        leads=leads,
        shutdown_seen=seen,
    )
    assert following is expected


def test_a_new_registration_is_fenced_until_it_has_read_itself() -> None:
    world = World()
    answer = world.register(1)
    assert answer.error_code == 0 and world.image.brokers[1].fenced
    early = world.beat(1, current_metadata_offset=answer.broker_epoch - 1)
    assert (early.is_caught_up, early.is_fenced) == (False, True)
    assert not world.beat(1).is_fenced
    assert not world.image.brokers[1].fenced


def test_another_cluster_is_refused() -> None:
    answer = World().register(1, cluster_id="other")
    assert answer.error_code == ErrorCode.INCONSISTENT_CLUSTER_ID


def test_another_incarnation_is_refused_while_the_session_is_valid() -> None:
    world = World()
    world.start(1)
    other = {"incarnation": 2, "old_lives": True, "log_dirs": [bytes([200]) * 16]}
    assert world.register(1, **other).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.now_ms += 9_001
    assert world.register(1, **other).error_code == 0


def test_a_restarted_process_with_the_same_folders_and_address_supersedes_at_once() -> None:
    world = World()
    world.start(1)
    first = world.image.brokers[1].epoch
    answer = world.register(1, incarnation=2)
    assert answer.error_code == 0 and answer.broker_epoch > first


@pytest.mark.parametrize("directories", [[], [b"a" * 16, b"a" * 16], [bytes(16)]])
def test_bad_directories_are_refused(directories: list[bytes]) -> None:
    answer = World().register(1, log_dirs=directories)
    assert answer.error_code == ErrorCode.INVALID_REGISTRATION


def test_a_broker_without_a_finalized_level_is_refused() -> None:
    old = Feature(name="metadata.version", min_supported_version=7, max_supported_version=26)
    assert World().register(1, features=[old]).error_code == ErrorCode.UNSUPPORTED_VERSION
    assert World().register(1, features=[]).error_code == ErrorCode.INVALID_REGISTRATION


def test_a_wrong_epoch_is_stale() -> None:
    world = World()
    world.start(1)
    assert world.beat(1, broker_epoch=99).error_code == ErrorCode.STALE_BROKER_EPOCH


def test_a_silent_broker_is_fenced_and_leads_again_when_it_returns() -> None:
    world = World()
    world.start(1)
    topic = CreatableTopic(name="t", num_partitions=1, replication_factor=1)
    world.ask(CreateTopicsRequest(topics=[topic]))
    world.now_ms += 9_000
    assert world.controller.tick(world.now_ms) is None
    world.now_ms += 1
    result = world.controller.tick(world.now_ms)
    assert result is not None and result.reasons[0].code == "BROKER_SESSION_EXPIRED"
    world.commit(result.records)
    partition = world.image.partition("t", 0)
    assert partition is not None and (partition.leader, partition.elr) == (-1, (1,))
    world.beat(1)
    partition = world.image.partition("t", 0)
    assert partition is not None
    assert (partition.leader, partition.isr, partition.leader_epoch) == (1, (1,), 2)


def test_a_controlled_shutdown_moves_leaderships_first() -> None:
    world = World()
    world.start(1, 2)
    topic = CreatableTopic(name="t", num_partitions=2, replication_factor=2)
    world.ask(CreateTopicsRequest(topics=[topic]))
    assert not world.beat(1, want_shut_down=True).should_shut_down
    assert {world.image.partition("t", index).leader for index in (0, 1)} == {2}  # type: ignore[union-attr]
    assert not world.beat(1, want_shut_down=True).should_shut_down
    world.beat(2)
    assert world.beat(1, want_shut_down=True).should_shut_down
    assert world.image.brokers[1].fenced


# What else Kafka's ClusterControlManagerTest and ReplicationControlManagerTest ask for.


def test_the_same_incarnation_keeps_its_epoch_and_another_gets_a_new_one() -> None:
    world = World()
    world.start(1)
    first = world.image.brokers[1]
    again = world.register(1, rack="r")
    assert again.broker_epoch == first.epoch
    assert (world.image.brokers[1].rack, world.image.brokers[1].fenced) == ("r", False)
    another = world.register(1, incarnation=2)
    assert another.broker_epoch > first.epoch and world.image.brokers[1].fenced


def test_an_incarnation_that_never_was_unfenced_has_a_session_too() -> None:
    world = World()
    world.register(1)
    elsewhere = {"incarnation": 2, "log_dirs": [bytes([200]) * 16]}
    assert world.register(1, **elsewhere).error_code == ErrorCode.DUPLICATE_BROKER_REGISTRATION
    world.pass_time(9_001)
    assert world.register(1, **elsewhere).error_code == 0


def test_a_directory_belongs_to_one_broker() -> None:
    world = World()
    world.start(1)
    taken = world.image.brokers[1].log_dirs
    assert world.register(2, log_dirs=list(taken)).error_code == ErrorCode.INVALID_REGISTRATION


def test_a_new_replica_lies_in_the_only_directory_or_in_one_its_broker_chooses() -> None:
    world = World()
    world.start(1)
    world.register(2, log_dirs=[bytes([201]) * 16, bytes([202]) * 16])
    world.beat(2)
    world.create("t", [1, 2])
    assert world.partition("t").directories == (bytes([101]) * 16, bytes(16))


def test_fencing_one_broker_after_another_moves_leaders_and_keeps_the_last_in_sync() -> None:
    world = World()
    world.level("eligible.leader.replicas.version", 0)
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    seen = []
    for broker_id in (1, 2, 3):
        world.beat(broker_id, want_fence=True)
        state = world.partition("t")
        seen.append((state.leader, state.isr, state.leader_epoch))
    assert seen == [(2, (2, 3), 1), (3, (3,), 2), (-1, (3,), 3)]
    world.beat(1)
    assert world.partition("t").leader == -1
    world.beat(3)
    assert (world.partition("t").leader, world.partition("t").isr) == (3, (3,))


def test_a_broker_that_leaves_is_led_past_and_asked_to_wait_until_all_have_read_it() -> None:
    world = World()
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3])
    answer = world.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (False, False)
    assert world.image.brokers[1].in_controlled_shutdown
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2, 3))
    world.beat(2)
    assert not world.beat(1, want_shut_down=True).should_shut_down
    world.beat(3)
    answer = world.beat(1, want_shut_down=True)
    assert (answer.is_fenced, answer.should_shut_down) == (True, True)


def test_who_leads_nothing_stops_at_once() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [2, 1])
    answer = world.beat(1, want_shut_down=True)
    assert answer.should_shut_down and world.image.brokers[1].fenced
    assert world.partition("t").isr == (2,)


def test_an_unfenced_broker_leads_again_and_the_isr_grows_only_by_its_leader() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.beat(1, want_fence=True)
    world.beat(1)
    assert (world.partition("t").leader, world.partition("t").isr) == (2, (2,))
