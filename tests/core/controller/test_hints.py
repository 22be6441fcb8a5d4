"""Prompt fencing, by the sentences of the architecture: a hint, rate-capped, never by itself an
unclean election."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.controller.test_plans import carry
from tests.core.controller.test_reassignment import move
from tests.core.controller.world import World

from anabranch.core.controller.brokers.hints import (
    HINT_WINDOW_MS,
    MOST_HINTS,
    PROBE_AFTER_MS,
    REDIAL_MS,
    Answer,
    Probe,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.broker_registration import Listener
from anabranch.core.wire.metadata_records import MissingReplicasRecord, PartitionChangeRecord

UNCLEAN = {"unclean_leader_election_enable": "true"}


@pytest.fixture(params=[True, False], ids=["elr", "no elr"])
def elr(request: pytest.FixtureRequest) -> bool:
    return bool(request.param)


def started(*brokers: int, elr: bool = True) -> World:
    world = World()
    if not elr:
        world.level("eligible.leader.replicas.version", 0)
    world.start(*brokers)
    world.pass_time(1)
    return world


def close(world: World, broker_id: int) -> Probe | None:
    """The connection of the broker's present incarnation closes; what is to be dialled."""
    epoch = world.image.brokers[broker_id].epoch
    world.controller.connection_closed(broker_id, epoch, world.now_ms)
    probes = world.controller.take_probes()
    assert len(probes) < 2
    return probes[0] if probes else None


def hint(world: World, broker_id: int, answer: Answer = Answer.REFUSED) -> list[str]:
    """Connection closed, dialled, answered a millisecond later: the codes of what follows."""
    probe = close(world, broker_id)
    assert probe is not None
    world.now_ms += 1
    return world.commit_result(world.controller.probed(probe, answer, world.now_ms))


@pytest.mark.parametrize("answer", [Answer.REFUSED, Answer.ANOTHER])
def test_a_refusal_or_another_incarnation_fences_exactly_that_broker(answer: Answer) -> None:
    world = started(1, 2)
    world.create("t", [1, 2], [2, 1])
    assert hint(world, 1, answer)[0] == "BROKER_PROCESS_GONE"
    assert world.image.brokers[1].fenced and not world.image.brokers[2].fenced
    assert [world.partition("t", index).leader for index in (0, 1)] == [2, 2]
    assert world.sentences("ISR_CHANGED")[0] == (
        "broker 1 left the ISR of t-0: its process is gone"
    )
    assert world.sentences("LEADER_ELECTED") == [
        "broker 2 leads t-0 (broker 1: its process is gone)"
    ]
    assert world.replayed() == world.image


@pytest.mark.parametrize("answer", [Answer.SAME, Answer.SILENCE])
def test_silence_and_the_same_incarnation_are_no_hints(answer: Answer) -> None:
    world = started(1)
    assert hint(world, 1, answer) == [] and not world.image.brokers[1].fenced


def test_a_probe_names_the_incarnation_and_lasts_300_ms() -> None:
    world = started(1)
    probe, broker = close(world, 1), world.image.brokers[1]
    contact = world.controller.sessions.contact_number(1, broker.epoch)
    where, asked_ms = broker.endpoints["PLAINTEXT"], world.now_ms
    assert probe == Probe(
        1, broker.epoch, broker.incarnation_id, where, contact, asked_ms, asked_ms + 300
    )
    world.now_ms += REDIAL_MS + 1
    assert probe is not None
    assert world.controller.probed(probe, Answer.REFUSED, world.now_ms) is None
    assert not world.image.brokers[1].fenced


def test_a_hint_about_an_old_epoch_is_ignored() -> None:
    world = started(1)
    old = world.image.brokers[1].epoch
    probe = close(world, 1)
    world.register(1, incarnation=2)
    world.beat(1)
    assert probe is not None
    world.now_ms += 1
    assert world.controller.probed(probe, Answer.ANOTHER, world.now_ms) is None
    world.controller.connection_closed(1, old, world.now_ms)
    assert world.controller.take_probes() == ()
    assert not world.image.brokers[1].fenced


def test_a_hint_is_ignored_when_the_broker_was_heard_from_since() -> None:
    world = started(1)
    probe = close(world, 1)
    world.now_ms += 1
    world.beat(1)
    assert probe is not None
    assert world.controller.probed(probe, Answer.REFUSED, world.now_ms) is None


def test_a_heartbeat_since_the_dial_began_outweighs_the_hint_however_quickly_it_came() -> None:
    """Not by the clock: both may fall into one millisecond, and one before the dial counts not."""
    world = started(1, 2)
    world.beat(1)
    world.beat(2)
    before, after = close(world, 1), close(world, 2)
    assert before is not None and after is not None
    world.beat(2)
    probed = world.controller.probed
    assert probed(after, Answer.REFUSED, world.now_ms) is None
    assert probed(before, Answer.REFUSED, world.now_ms) is not None


NAMES = ("CLIENTS", "EXTERNAL", "INTERNAL", "PLAINTEXT")


@given(st.lists(st.sets(st.sampled_from(NAMES), min_size=1), min_size=1, max_size=4), st.data())
def test_no_living_broker_is_fenced_however_its_connections_break(
    brokers: list[set[str]], data: st.DataObject
) -> None:
    """Every listener refuses but the one on which brokers reach each other."""
    world = World()
    world.controller.inter_broker_listener = data.draw(st.sampled_from(("", *NAMES)))
    world.controller.begin_term(2, world.image, world.controller.log, world.now_ms)
    among_brokers = world.controller.inter_broker_listener
    for broker_id, names in enumerate(brokers, 1):
        listeners = [
            Listener(name=name, host=name if name == among_brokers else "refuses", port=broker_id)
            for name in data.draw(st.permutations(sorted(names)))
        ]
        if len(names) == 1:  # there is no other on which it could be reached
            listeners[0].host = among_brokers
        world.register(broker_id, listeners=listeners)
        world.beat(broker_id)
    for broker_id in data.draw(st.lists(st.sampled_from(sorted(world.image.brokers)))):
        probe = close(world, broker_id)
        if probe is not None:
            found = Answer.REFUSED if probe.endpoint.host == "refuses" else Answer.SAME
            world.commit_result(world.controller.probed(probe, found, world.now_ms))
    assert not any(broker.fenced for broker in world.image.brokers.values())


def test_a_broker_that_is_reached_where_this_node_was_not_told_is_left_to_its_session() -> None:
    world = World()
    both = [Listener(name=name, host="h", port=1) for name in ("INTERNAL", "EXTERNAL")]
    world.register(1, listeners=both)
    world.beat(1)
    assert close(world, 1) is None


def test_a_broker_is_asked_once_at_a_time_and_a_probe_is_answered_once() -> None:
    world = started(1)
    probe = close(world, 1)
    assert close(world, 1) is None
    assert probe is not None
    world.now_ms += 1
    assert world.controller.probed(probe, Answer.SAME, world.now_ms) is None
    assert world.controller.probed(probe, Answer.REFUSED, world.now_ms) is None
    assert close(world, 1) is not None


def test_who_is_fenced_or_unknown_is_not_asked() -> None:
    world = started(1)
    world.beat(1, want_fence=True)
    assert close(world, 1) is None
    world.controller.connection_closed(9, 9, world.now_ms)
    assert world.controller.take_probes() == ()


def test_hints_are_capped_a_broker() -> None:
    world = started(1, 2)
    first_ms = world.now_ms
    for _ in range(MOST_HINTS):
        assert hint(world, 1) != []
        world.beat(1)
    assert hint(world, 1) == [] and not world.image.brokers[1].fenced
    assert hint(world, 2) != [], "another broker has a count of its own"
    world.now_ms = first_ms + HINT_WINDOW_MS + 2
    world.beat(1)
    assert hint(world, 1) != []


def test_a_false_hint_costs_nothing_but_a_heartbeat(elr: bool) -> None:
    world = started(1, elr=elr)
    world.create("t", [1])
    before = world.partition("t")
    hint(world, 1)
    assert world.partition("t").leader == -1
    world.beat(1)
    after = world.partition("t")
    assert (after.leader, after.isr, after.recovery_state) == (1, before.isr, 0)


def alone_in_sync(elr: bool) -> World:
    """t-0 is on 1 and 2, only 1 is in sync, and the topic allows unclean elections."""
    world = started(1, 2, elr=elr)
    world.create("t", [1, 2], **UNCLEAN)
    world.beat(2, want_fence=True)
    world.beat(2)
    assert (world.partition("t").leader, world.partition("t").isr) == (1, (1,))
    return world


def test_a_hint_alone_never_permits_an_unclean_election(elr: bool) -> None:
    world = alone_in_sync(elr)
    codes = hint(world, 1)
    assert world.partition("t").leader == -1
    assert "UNCLEAN_ELECTION_WAITS" in codes and "LEADER_ELECTED_UNCLEANLY" not in codes


def test_what_comes_after_a_hint_elects_uncleanly_only_when_silence_agrees(elr: bool) -> None:
    """Neither a returning broker nor the periodic election uses what only a hint said."""
    world = alone_in_sync(elr)
    heard_ms = world.now_ms
    hint(world, 1)
    world.controller.duties.unclean_ms = world.now_ms + 50
    world.beat(2, want_fence=True)
    world.beat(2)
    world.pass_time(heard_ms + 9_000 - world.now_ms - 1)
    world.beat(2)
    assert world.partition("t").leader == -1
    codes = world.pass_time(200)
    assert "BROKER_SILENCE_CONFIRMED" in codes and "LEADER_ELECTED_UNCLEANLY" in codes
    state = world.partition("t")
    assert (state.leader, state.isr, state.recovery_state) == (2, (2,), 1)


def moved(world: World) -> None:
    assert move(world, 2, 3).error_code == ErrorCode.NONE


def planned(world: World) -> None:
    carry(world, {0: (2, 3)})


def filled(world: World) -> None:
    missing = MissingReplicasRecord(
        topic_id=world.image.topic("t").topic_id,  # type: ignore[union-attr]
        partition_id=0,
        missing=1,
    )
    world.commit([missing])


@pytest.mark.parametrize("change", [moved, planned, filled])
def test_no_move_that_begins_after_a_hint_elects_uncleanly(
    elr: bool, change: Callable[[World], None]
) -> None:
    world = alone_in_sync(elr)
    world.start(3)
    hint(world, 1)
    change(world)
    codes = world.pass_time(600)
    begun = () if change is planned else (3,)  # a plan waits for whoever has the records
    assert world.partition("t").adding == begun, codes
    assert world.partition("t").leader == -1
    world.beat(1)
    assert world.partition("t").leader == 1
    world.pass_time(600)
    assert world.partition("t").adding == (3,)


def test_no_move_is_taken_back_at_the_price_of_what_only_a_hint_gave_up(elr: bool) -> None:
    world = started(1, 2, elr=elr)
    world.create("t", [1], **UNCLEAN)
    move(world, 2)
    epoch = world.image.brokers[1].epoch
    world.beat(1, want_fence=True)
    state = world.partition("t")
    record = PartitionChangeRecord(
        topic_id=world.image.topic("t").topic_id,  # type: ignore[union-attr]
        partition_id=0, isr=[2], leader=2, eligible_leader_replicas=[], last_known_elr=[],
    )  # fmt: skip
    assert (epoch, state.adding) == (world.image.brokers[1].epoch, (2,))
    world.commit([record])
    world.beat(1)
    hint(world, 2)
    assert move(world, cancel=True).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


def test_the_end_of_a_session_elects_uncleanly_at_once(elr: bool) -> None:
    world = alone_in_sync(elr)
    world.now_ms += 8_000
    world.beat(2)
    assert "LEADER_ELECTED_UNCLEANLY" in world.pass_time(1_200)
    assert world.partition("t").leader == 2


def test_silence_of_a_topic_that_stays_clean_elects_nobody(elr: bool) -> None:
    world = started(1, 2, elr=elr)
    world.create("t", [1, 2])
    world.beat(2, want_fence=True)
    world.beat(2)
    hint(world, 1)
    world.pass_time(8_000)
    world.beat(2)
    assert world.pass_time(8_000) == [] and world.partition("t").leader == -1


def test_a_new_controller_cannot_know_why_a_broker_is_fenced(elr: bool) -> None:
    """So it waits for a whole session before what the broker had is given up."""
    world = alone_in_sync(elr)
    hint(world, 1)
    controller = world.controller
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    world.beat(2, want_fence=True)
    world.beat(2)
    assert world.partition("t").leader == -1
    world.pass_time(8_000)
    world.beat(2)
    assert "LEADER_ELECTED_UNCLEANLY" in world.pass_time(1_200)


def test_a_restarted_process_that_lost_its_state_permits_what_its_own_word_permits() -> None:
    """The new registration is a fact, not a hint."""
    world = alone_in_sync(elr=True)
    hint(world, 1)
    world.register(1, incarnation=2)
    state = world.partition("t")
    assert (state.leader, state.recovery_state) == (2, 1)


def test_who_came_back_is_suspected_no_longer(elr: bool) -> None:
    """What happens to it later happens by its own word."""
    world = alone_in_sync(elr)
    hint(world, 1)
    world.beat(1)
    world.beat(2, want_fence=True)
    world.beat(1, want_fence=True)
    assert world.partition("t").leader == -1
    world.beat(2)
    state = world.partition("t")
    assert (state.leader, state.recovery_state) == (2, 1)


def test_what_the_controller_forgives_is_no_word_of_the_broker() -> None:
    world = started(1)
    controller = world.controller
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    world.pass_time(PROBE_AFTER_MS)
    (probe,) = controller.take_probes()
    world.now_ms += 200
    controller.sessions.forgive(150, world.now_ms)
    assert controller.probed(probe, Answer.REFUSED, world.now_ms) is not None


def test_a_new_controller_probes_every_unfenced_broker_that_it_has_not_heard_from() -> None:
    world = started(1, 2, 3, 4)
    world.beat(4, want_fence=True)
    controller = world.controller
    controller.begin_term(2, world.image, controller.log, world.now_ms)
    assert controller.next_tick_ms == world.now_ms and controller.tick(world.now_ms) is None
    assert controller.take_probes() == ()
    world.now_ms += 40
    world.beat(2)
    world.pass_time(PROBE_AFTER_MS - 41)
    assert controller.take_probes() == ()
    world.pass_time(1)
    probes = controller.take_probes()
    assert [probe.broker_id for probe in probes] == [1, 3]
    world.now_ms += 1
    world.beat(3)
    for probe in probes:
        world.commit_result(controller.probed(probe, Answer.REFUSED, world.now_ms))
    assert [world.image.brokers[each].fenced for each in (1, 2, 3, 4)] == [True, False, False, True]
    world.pass_time(1_000)
    assert controller.take_probes() == ()


def test_who_is_not_in_office_takes_no_hint() -> None:
    world = started(1)
    probe = close(world, 1)
    epoch = world.image.brokers[1].epoch
    world.controller.resign()
    assert probe is not None
    assert world.controller.probed(probe, Answer.REFUSED, world.now_ms) is None
    world.controller.connection_closed(1, epoch, world.now_ms)
    assert world.controller.take_probes() == ()
