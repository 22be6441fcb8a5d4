"""Who was heard from when: Kafka's BrokerHeartbeatTrackerTest and the soft half of its manager's."""

from __future__ import annotations

import pytest
from tests.core.controller.world import World

from anabranch.core.controller.brokers.membership import usable_brokers
from anabranch.core.controller.brokers.sessions import Sessions
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire.messages.broker_heartbeat import BrokerHeartbeatRequest

TIMEOUT_MS = 9_000


def sessions(*contacts: tuple[int, int, int]) -> Sessions:
    """Sessions with these (broker id, epoch, heard at)."""
    made = Sessions(TIMEOUT_MS)
    for broker_id, epoch, now_ms in contacts:
        made.heard(broker_id, epoch, now_ms)
    return made


@pytest.mark.parametrize(
    ("broker_id", "epoch", "valid"),
    [
        pytest.param(1, 10, True, id="known"),
        pytest.param(2, 10, False, id="unknown"),
        pytest.param(1, 11, False, id="another epoch"),
    ],
)
def test_a_session_belongs_to_a_broker_and_an_epoch(
    broker_id: int, epoch: int, valid: bool
) -> None:
    assert sessions((1, 10, 100)).valid(broker_id, epoch, 100) is valid


@pytest.mark.parametrize(
    ("now_ms", "valid"),
    [
        pytest.param(100, True, id="now"),
        pytest.param(101, True, id="a little later"),
        pytest.param(100 + TIMEOUT_MS, True, id="exactly at the timeout"),
        pytest.param(101 + TIMEOUT_MS, False, id="after the timeout"),
        pytest.param(50, True, id="the clock is in the past"),
    ],
)
def test_a_session_ends_strictly_after_the_timeout(now_ms: int, valid: bool) -> None:
    found = sessions((1, 10, 100))
    assert found.valid(1, 10, now_ms) is valid
    assert (found.expired(now_ms) is None) is valid


def test_a_contact_begins_the_session_anew() -> None:
    found = sessions((1, 10, 100), (1, 10, 5_000))
    assert found.expired(100 + TIMEOUT_MS + 1) is None
    assert found.expired(5_000 + TIMEOUT_MS + 1) == (1, 10)


def test_none_some_or_all_may_be_over_and_the_longest_silence_comes_first() -> None:
    found = sessions((1, 10, 300), (2, 11, 100), (3, 12, 5_000))
    over = []
    for now_ms in (9_050, 9_350, 9_350, 9_350, 20_000):
        expired = found.expired(now_ms)
        over.append(expired and expired[0])
        if expired:
            found.forget(*expired)
    assert over == [None, 2, 1, None, 3]
    assert found.expired(10**9) is None


def test_forgetting_one_epoch_leaves_another() -> None:
    found = sessions((1, 10, 100), (1, 20, 200))
    found.forget(1, 10)
    assert found.valid(1, 20, 200)


def test_an_entry_of_an_old_epoch_or_an_unknown_broker_fences_nobody() -> None:
    world = World()
    world.start(1)
    world.controller.sessions.heard(1, 3, world.now_ms - 1_000)
    world.controller.sessions.heard(77, 3, world.now_ms - 1_000)
    before = world.image
    for _ in range(10):
        world.now_ms += 1_000
        world.beat(1)
        world.pass_time(0)
    assert world.image is before
    assert list(world.controller.sessions.contact_ms) == [(1, world.image.brokers[1].epoch)]


def test_a_broker_that_is_not_registered_is_not_heard() -> None:
    world = World()
    world.start(1)
    epoch = world.image.brokers[1].epoch
    answer = world.ask(BrokerHeartbeatRequest(broker_id=2, broker_epoch=epoch))
    assert answer.error_code == ErrorCode.STALE_BROKER_EPOCH
    assert not world.controller.sessions.valid(2, epoch, world.now_ms)


def test_a_new_controller_gives_unfenced_brokers_a_whole_timeout_and_fenced_ones_none() -> None:
    world = World()
    world.start(1, 2)
    world.beat(2, want_fence=True)
    world.now_ms += 8_000
    controller = world.controller
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    epochs = {each: world.image.brokers[each].epoch for each in (1, 2)}
    assert controller.sessions.valid(1, epochs[1], world.now_ms + TIMEOUT_MS)
    assert not controller.sessions.valid(2, epochs[2], world.now_ms)
    assert world.pass_time(TIMEOUT_MS) == []
    assert world.pass_time(1) == ["BROKER_SESSION_EXPIRED"]


def test_what_the_controller_could_not_hear_is_no_silence() -> None:
    found = sessions((1, 10, 1_000))
    found.forgive(5_000, 8_000)
    assert found.contact_ms == {(1, 10): 6_000}
    found.forgive(5_000, 8_000)
    assert found.contact_ms == {(1, 10): 8_000}, "never heard in the future"


def test_the_lowest_offset_is_that_of_active_brokers() -> None:
    world = World()
    world.start(1, 2, 3)
    lowest = world.controller.sessions.lowest_active_offset
    world.beat(1, current_metadata_offset=70)
    world.beat(2, current_metadata_offset=90)
    world.beat(3, current_metadata_offset=80)
    assert lowest(world.image) == 70
    world.beat(1, current_metadata_offset=70, want_fence=True)
    assert lowest(world.image) == 80
    world.create("t", [3])
    world.beat(3, want_shut_down=True, current_metadata_offset=80)
    assert lowest(world.image) == 90
    assert lowest(MetadataImage.empty()) is None


def test_placement_is_offered_fenced_brokers_and_not_those_that_leave() -> None:
    world = World()
    world.start(1, 2, 3)
    world.create("t", [2, 3])
    world.beat(1, want_fence=True)
    world.beat(2, want_shut_down=True)
    assert [(each.broker_id, each.fenced) for each in usable_brokers(world.image)] == [
        (1, True),
        (3, False),
    ]


def test_the_offset_at_which_a_shutdown_began_is_set_once() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2])
    world.beat(1, want_shut_down=True)
    began = dict(world.controller.sessions.shutdown_offsets)
    assert began == {1: world.image.offset}
    world.create("u", [2])
    world.beat(1, want_shut_down=True)
    assert world.controller.sessions.shutdown_offsets == began
    world.beat(2)
    assert world.beat(1, want_shut_down=True).should_shut_down
    assert world.controller.sessions.shutdown_offsets == {}
