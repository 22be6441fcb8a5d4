"""A controller makes itself known, and does not contend for its id."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from tests.core.controller.world import World

from anabranch.core.broker.registration.enrolment import (
    AGAIN_MS,
    TABLE,
    TWIN_PAUSE_MS,
    Enrolment,
    Progress,
)
from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    GiveUp,
    MetadataMoved,
    Say,
    Unanswered,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.wire.messages.unregister_broker import UnregisterBrokerRequest

NODE = 7


class Process:
    """A controller's enrolment on a world whose metadata it reads at once."""

    def __init__(self, world: World, incarnation: int) -> None:
        self.world = world
        self.machine = Enrolment(
            NODE, bytes([incarnation]) * 16, {"CONTROLLER": ("h", 1)}, lambda: world.image
        )
        self.done: list[Any] = []
        self.asked: list[Ask] = []

    def look(self) -> None:
        """The metadata moved, and time with it."""
        self.machine.step(MetadataMoved(), self.world.now_ms)
        self.perform()

    def perform(self) -> None:
        while effects := self.machine.take_effects():
            for effect in effects:
                if isinstance(effect, Ask):
                    self.asked.append(effect)
                    answer = self.world.ask(effect.request)
                    self.machine.step(Answered(effect, answer), self.world.now_ms)
                else:
                    self.done.append(effect)

    def pass_time(self, ms: int) -> None:
        self.world.now_ms += ms
        if self.machine.next_tick_ms <= self.world.now_ms:
            self.machine.tick(self.world.now_ms)
            self.perform()

    @property
    def is_known(self) -> bool:
        known = self.world.image.controllers.get(NODE)
        return known is not None and known.incarnation_id == self.machine.incarnation_id


def test_every_pair_of_state_and_event_is_in_the_table():
    pairs = itertools.product(Progress, (MetadataMoved, Answered, Unanswered))
    assert all(event in TABLE[state] for state, event in pairs)


def test_a_controller_that_is_not_known_says_so_until_it_is():
    process = Process(World(), 1)
    process.look()
    assert process.is_known
    process.pass_time(AGAIN_MS)
    process.look()
    assert (len(process.asked), process.machine.state) == (1, Progress.IDLE)


def test_who_was_unregistered_is_known_again():
    process = Process(World(), 1)
    process.look()
    process.pass_time(AGAIN_MS)
    process.look()
    process.world.ask(UnregisterBrokerRequest(broker_id=NODE))
    process.look()
    assert process.is_known
    assert process.done == []


def test_two_processes_of_one_id_say_so_and_replace_each_other_seldom():
    world = World()
    first, twin = Process(world, 1), Process(world, 2)
    for _ in range(200):
        for process in (first, twin):
            process.pass_time(AGAIN_MS)
            for each in (first, twin):
                each.look()
    elapsed_ms = 2 * 200 * AGAIN_MS
    assert len(first.asked) + len(twin.asked) <= 4 + 2 * (elapsed_ms // TWIN_PAUSE_MS)
    sentence = "another process runs as this controller; run one process for each node.id"
    assert Say(sentence, "", is_error=True) in first.done


def test_nothing_is_said_at_a_level_that_has_no_room_for_it():
    process = Process(World(), 1)
    process.world.level(METADATA_VERSION, 14)
    process.look()
    assert process.asked == []


def test_a_controller_that_is_too_old_stops_with_the_reason():
    process = Process(World(), 1)
    refused = SimpleNamespace(
        error_code=int(ErrorCode.UNSUPPORTED_VERSION), error_message="It lacks a level."
    )
    process.machine.step(MetadataMoved(), 0)
    (ask,) = process.machine.take_effects()
    process.machine.step(Answered(ask, refused), 0)
    (gives_up,) = process.machine.take_effects()
    assert isinstance(gives_up, GiveUp)
    assert "controller 7 is too old for this cluster: It lacks a level." in gives_up.sentence


def test_who_gets_no_answer_asks_again_and_a_late_answer_changes_nothing():
    process = Process(World(), 1)
    process.machine.step(MetadataMoved(), 0)
    (ask,) = process.machine.take_effects()
    process.machine.step(Unanswered(ask, "away"), 0)
    assert process.machine.take_effects() == [Say("the controller is not registered", "away")]
    process.machine.step(Answered(ask, SimpleNamespace(error_code=42)), 0)
    assert process.machine.state is Progress.PAUSING
    process.pass_time(AGAIN_MS)
    assert process.is_known
