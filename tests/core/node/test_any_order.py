"""Anything that may happen to connections, in any order, over links in memory.

A schedule draws requests of every kind, old versions, slow peers, pauses, budgets, mutes by a
made-up quota source, and ends at any moment. What must hold is in `Watched`: answers leave in the
order of requests, each once; what must be alone is; a mute is kept; budgets are; nothing is held
for a connection that has ended; and once all that was waited for has come, everything is answered.
"""

from __future__ import annotations

import os
import time
from random import Random

import pytest
from tests.core.node.link_kit import BUDGETS, Asked, Broken, World, frame_of, old_frame_of

from anabranch.core.node import channel as channels
from anabranch.core.node.slot import Slot
from anabranch.core.outcome import Hangup

SECONDS = float(os.environ.get("ANABRANCH_TEST_SECONDS", "0"))
FIRST_SEED = int(os.environ.get("ANABRANCH_TEST_SEED", "0"))
SCHEDULES = 150
STEPS = 60
ALONE = frozenset(("hold up", "near", "far", "both", "propose", "forward"))
KINDS = (
    *("at once",) * 8, "lent", *("wait",) * 6, "urgent", "hold up", "near", "far", "both", "propose",
    "forward", "nothing", "refuse", "fail",
)  # fmt: skip
LONGEST_MS = 400


@pytest.fixture(autouse=True)
def small_budgets(monkeypatch):
    for name, value in BUDGETS.items():
        monkeypatch.setattr(channels, name, value)


class Watched:
    """One connection, what was sent over it, and what must hold."""

    def __init__(self, world: World, random: Random) -> None:
        self.world, self.random = world, random
        self.channel, self.link, self.said = world.connect()
        self.link.on_close = self.closes
        self.sent: list[tuple[int, str]] = []
        self.ran: list[int] = []
        self.ended = False
        self.held_at_end = 0
        self.broken: list[AssertionError] = []
        self.hangs_up_at: int | None = None

    def send(self, next_number: int) -> int:
        """Some requests in one read of the socket; the number that comes after them."""
        frames = []
        for _ in range(self.random.choice((1, 1, 2, 5))):
            number, next_number = next_number, next_number + 1
            if self.random.random() < 0.05:
                frames.append(old_frame_of(number))
                self.sent.append((number, "old"))
                continue
            kind = self.random.choice(KINDS)
            if self.random.random() < 0.01:
                kind = "hang up"
                self.hangs_up_at = number if self.hangs_up_at is None else self.hangs_up_at
            asked = Asked(
                kind, self.random.choice((5, 50, 700)), self.random.choice((0, 600, 1_600)),
                self.random.randrange(LONGEST_MS),
            )  # fmt: skip
            version = self.random.choice((0, 1, 2))
            pad = self.random.choice((0, 0, 0, 300, 1_500))
            frames.append(frame_of(number, asked, version=version, pad=pad))
            self.sent.append((number, kind))
        self.world.receive(self.channel, *frames)
        return next_number

    def runs(self, number: int) -> None:
        """Look at what must hold when a request is run; a handler that raises is answered."""
        try:
            self.look_at(number)
        except AssertionError as fault:
            self.broken.append(fault)

    def look_at(self, number: int) -> None:
        channel, session = self.channel, self.channel.session
        self.ran.append(number)
        assert not self.ended, "nothing of a connection that has ended is run"
        waits = [each for each in channel._slots if each.hang_up]
        assert not waits, "nothing is run behind what ends the connection"
        requests = self.world.requests
        if not requests.is_stopping:
            assert session.muted_until_ms <= requests.steady_ms, "a mute is kept"
        assert not self.link.is_paused and not self.link.is_busy, "no answer is made for no room"
        assert channel.promised_bytes <= channels.PROMISED_HIGH_BYTES
        assert channel.held_bytes <= channels.UNSENT_HIGH_BYTES
        waiting = [each for each in channel._slots if not each.is_done]
        assert not any(each.is_alone for each in waiting), "what must be alone is"

    def closes(self) -> None:
        """Look at what must hold when the link is closed in order."""
        channel = self.channel
        if channel._closes_when_run and not self.said and channel._queue and channel._may_run:
            self.link.wrongs.append("what came before the end is run")

    def look(self) -> None:
        """Look at what must hold after each step."""
        for fault in self.broken:
            raise fault
        assert not self.link.wrongs + self.world.wrongs
        numbers = [number for number, _ in self.sent]
        kinds = dict(self.sent)
        assert self.ran == [n for n in numbers if kinds[n] != "old"][: len(self.ran)], "in order"
        answered = [number for number, _ in self.link.answers()]
        due = [number for number, kind in self.sent if kind != "nothing"]
        assert answered == due[: len(answered)], "answers leave in the order of requests"
        if self.hangs_up_at is not None:
            assert self.hangs_up_at not in answered
        channel = self.channel
        if self.ended:
            assert not channel._slots and not channel._queue
            assert channel.held_bytes == self.held_at_end, "what comes too late does nothing"
            return
        slots: list[Slot] = list(channel._slots)
        assert channel.held_bytes == sum(each.held_bytes for each in slots)
        assert channel.promised_bytes == sum(each.promised_bytes for each in slots)
        if not channel.closing and self.link.reads:
            assert channel._queued_bytes <= channels.QUEUED_HIGH_BYTES
            assert len(slots) + len(channel._queue) <= channels.UNANSWERED_REQUESTS
            assert not self.link.is_paused, "who does not take its answers is not read"

    def close(self) -> None:
        """The connection is gone."""
        self.ended = True
        self.world.step(self.channel.lost)
        self.held_at_end = self.channel.held_bytes

    def is_settled(self) -> bool:
        """Whether everything was answered that is to be."""
        if self.ended or self.channel.closing:
            return True
        due = [number for number, kind in self.sent if kind != "nothing"]
        return [number for number, _ in self.link.answers()] == due


class Schedule:
    """One world, some connections, and what happens to them."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.world = World()
        if self.random.random() < 0.3:
            self.world.requests.quotas = None
        self.all = [Watched(self.world, self.random) for _ in range(self.random.choice((1, 2, 3)))]
        self.number = 1
        self.owners: dict[int, Watched] = {}
        self.world.on_run = lambda number: self.owners[number].runs(number)

    def run(self) -> None:
        for _ in range(STEPS):
            self.happen()
            for each in self.all:
                each.look()
            living = [each.channel for each in self.all if not each.ended]
            assert self.world.memory.held_bytes >= 0
            assert {type(each) for each in self.world.unexpected_faults} <= {Broken}
            if self.world.requests.is_stopping:
                assert not len(self.world.requests.purgatory), "nobody waits while the node stops"
            waiting = sum(each.parked is not None for channel in living for each in channel._slots)
            assert len(self.world.requests.purgatory) <= waiting, "nobody waits for who has left"
        self.come_to_rest()

    def happen(self) -> None:
        world, random = self.world, self.random
        one = random.choice(self.all)
        match random.choice(("send",) * 5 + ("take",) * 4 + ("turn",) * 3 + (
            "wake", "time", *("call",) * 3, *("far",) * 3, "quota", "crowd", "room", "close", "eof",
            "stall", "refuse", "break", "stop",
        )):  # fmt: skip
            case "send" if one.link.reads and not one.ended and not one.channel.closing:
                if not one.channel.is_draining:
                    self.send(one)
            case "take":
                world.take(one.link, random.choice((1, 40, 600, 10_000)))
            case "turn":
                world.turn(random.choice((1, 3)))
            case "wake":
                world.wake()
            case "time":
                world.pass_time(random.randrange(LONGEST_MS))
            case "call":
                world.end_call(
                    random.choice((None,) * 6 + (Broken("on purpose"), Hangup("the node stops")))
                )
            case "far":
                world.end_far()
            case "quota":
                world.quota.rest_ms = random.choice((0, 0, 0, 50, 300))
            case "crowd" if not one.ended:
                world.step(lambda: world.requests.crowd.brought(one.channel, is_crowded=True))
            case "room":
                world.step(world.requests.crowd.read_on)
            case "close" if random.random() < 0.15:
                if not one.ended:
                    one.close()
            case "eof" if random.random() < 0.4:
                self.end_of_file(one)
            case "stop" if random.random() < 0.05:
                world.step(world.requests.finish_all)
            case "refuse":
                world.refusing = random.choice((0, 1))
            case "break" if random.random() < 0.1:
                one.link.fault = random.choice((ConnectionResetError(), Broken("on purpose")))
            case "stall":
                world.lines.turns.is_open = False  # the loop has no time left

    def send(self, one: Watched) -> None:
        for number in range(self.number, self.number + 5):
            self.owners[number] = one
        self.number = one.send(self.number)

    def end_of_file(self, one: Watched) -> None:
        if one.ended or one.channel.closing or one.channel.is_draining:
            return
        if not one.channel.ended() and one.link.is_busy:
            one.channel.close()
        elif not one.channel.is_draining:
            one.close()  # as the loop does

    def come_to_rest(self) -> None:
        """Everything that is waited for comes, and every peer takes its answers."""
        world = self.world
        world.quota.rest_ms = world.refusing = 0
        for _ in range(400):
            for each in self.all:
                world.take(each.link, 10_000)
            while world.calls:
                world.end_call()
            while world.far:
                world.end_far()
            world.step(world.requests.crowd.read_on)
            world.pass_time(LONGEST_MS)
            world.turn(100)
        for each in self.all:
            each.look()
            assert each.is_settled(), (each.sent, each.link.answers())
            if not each.ended and not each.channel.closing:
                assert each.link.reads, "what is answered is read again"
            assert each.channel.closing == (each.ended or bool(each.link.closed))
            if not each.ended:
                each.close()
        assert world.memory.held_bytes == 0
        assert len(world.requests.purgatory) == 0
        assert not world.requests.purgatory.by_key
        assert not world.requests.crowd._bringing


def run_schedule(seed: int) -> Schedule:
    schedule = Schedule(seed)
    try:
        schedule.run()
    except BaseException as fault:
        fault.add_note(f"ANABRANCH_TEST_SEED={seed}")
        raise
    return schedule


def test_whatever_happens_in_any_order():
    until, seed = time.monotonic() + SECONDS, FIRST_SEED
    while seed < FIRST_SEED + SCHEDULES or time.monotonic() < until:
        run_schedule(seed)
        seed += 1


def test_schedules_meet_what_they_are_for():
    """Mutes, pauses, full queues, alone, ends: each in some of them."""
    met: dict[str, int] = {}
    for seed in range(40):
        schedule = Schedule(seed)
        for _ in range(STEPS):
            schedule.happen()
            for each in schedule.all:
                name = {
                    "paused": each.link.is_paused,
                    "busy": each.link.is_busy,
                    "not read": not each.link.reads,
                    "muted": each.channel.session.muted_until_ms > schedule.world.clock_ms,
                    "blocked": each.channel._blocked_by is not None,
                    "queued": each.channel.has_queued,
                    "held up": each.channel._is_held_up,
                    "promised": each.channel.promised_bytes > channels.PROMISED_HIGH_BYTES,
                    "held": each.channel.held_bytes > channels.UNSENT_HIGH_BYTES,
                    "ended": each.ended,
                    "hung up": bool(each.said),
                    "stopping": schedule.world.requests.is_stopping,
                    "broken": each.link.closed == "at once",
                    "refused": schedule.world.refusing,
                    "lacks": bool(schedule.world.far),
                    "drains": each.channel._closes_when_run,
                }
                for what, is_so in name.items():
                    met[what] = met.get(what, 0) + is_so
    assert all(met.values()), met
