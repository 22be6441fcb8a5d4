"""Whatever happens to a partition, a clean leader has all that was acknowledged.

The model: four brokers with a log each, and a controller that decides. A record reaches every
in-sync replica, and is acknowledged when these are enough. A replica that joins has copied its
leader's log first; a wiped one has nothing. A step that makes no sense where it comes is refused
and changes nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from random import Random
from typing import Any

import pytest
from tests.core.controller.test_in_sync import PREFERRED, UNCLEAN, elect
from tests.core.controller.test_reassignment import alter, move
from tests.core.controller.test_resources import alter as alter_config
from tests.core.controller.world import World

from anabranch.core.controller.brokers.hints import Answer
from anabranch.core.metadata.directories import emptied
from anabranch.core.metadata.image import RECOVERED, RECOVERING, PartitionImage

BROKERS = (1, 2, 3, 4)
TOPIC = 2
TARGETS = ((1, 2, 3), (3, 1), (2,), (4,), (4, 2), (1, 4, 3))
SESSION_MS = 9_000


class History:
    """One partition t-0, first on brokers 1, 2 and 3, and everything that happens to it."""

    def __init__(self, *, elr: bool, unclean: bool, minimum: int) -> None:
        self.world, self.elr, self.unclean = World(), elr, unclean
        if not elr:
            self.world.level("eligible.leader.replicas.version", 0)
        self.world.start(*BROKERS)
        allowed = str(unclean).lower()
        self.world.create(
            "t",
            [1, 2, 3],
            unclean_leader_election_enable=allowed,
            min_insync_replicas=str(minimum),
        )
        self.minimum = minimum
        self.logs: dict[int, tuple[int, ...]] = dict.fromkeys(BROKERS, ())
        self.acknowledged: tuple[int, ...] = ()
        self.written = 0
        self.incarnations = dict.fromkeys(BROKERS, 1)
        self.epoch = 1
        self.heard_ms = dict.fromkeys(BROKERS, self.world.now_ms)
        self.hinted: set[int] = set()
        """Fenced by a hint, and not heard since."""
        self.world.pass_time(1)

    @property
    def state(self) -> PartitionImage:
        return self.world.partition("t")

    def is_active(self, broker_id: int) -> bool:
        return self.world.image.brokers[broker_id].active

    def beat(self, broker: int, **changes: Any) -> None:
        self.heard_ms[broker] = self.world.now_ms
        self.hinted.discard(broker)
        self.world.beat(broker, **changes)

    # Steps. Each takes a broker and a number.

    def produce(self, _broker: int, _number: int) -> None:
        state = self.state
        if state.leader < 0:
            return
        self.written += 1
        log = (*self.logs[state.leader], self.written)
        for each in (state.leader, *state.isr):
            self.logs[each] = log
        if len(state.isr) >= min(self.minimum, state.replication_factor):
            self.acknowledged = log

    def join(self, broker: int, _number: int) -> None:
        state = self.state
        if state.leader < 0 or broker not in state.replicas or broker in state.isr:
            return
        if self.is_active(broker):
            self.logs[broker] = self.logs[state.leader]
            alter(self.world, *state.isr, broker)

    def lag(self, broker: int, _number: int) -> None:
        state = self.state
        if state.leader >= 0 and broker in state.isr and broker != state.leader:
            alter(self.world, *(each for each in state.isr if each != broker))

    def stop(self, broker: int, _number: int) -> None:
        self.beat(broker, want_fence=True)

    def vanish(self, broker: int, _number: int) -> None:
        """Its connection closes, and its port refuses: dead or not, that is a hint."""
        world = self.world
        world.controller.connection_closed(broker, world.image.brokers[broker].epoch, world.now_ms)
        for probe in world.controller.take_probes():
            world.now_ms += 1
            codes = world.commit_result(
                world.controller.probed(probe, Answer.REFUSED, world.now_ms)
            )
            if codes:
                self.hinted.add(broker)

    def silent(self, broker: int, _number: int) -> None:
        """A session passes without this broker, and without those that are fenced."""
        for _ in range(SESSION_MS // 1000 + 2):
            for each in BROKERS:
                if each != broker and self.is_active(each):
                    self.beat(each)
            self.world.pass_time(1000)
            self.check()

    def back(self, broker: int, _number: int) -> None:
        self.beat(broker)

    def restart(self, broker: int, number: int) -> None:
        """In order, or (number odd) by a crash, which may have lost the tail of its log."""
        if self.is_active(broker):
            self.stop(broker, number)
        previous = self.world.image.brokers[broker].epoch
        kept = self.logs[broker][: number // 2] if number % 2 and self.elr else self.logs[broker]
        self._register(broker, kept, -1 if number % 2 else previous)

    def wipe(self, broker: int, number: int) -> None:
        """It comes back with an empty disk, as if after a stop in order or a crash."""
        if self.is_active(broker):
            self.stop(broker, number)
        previous = self.world.image.brokers[broker].epoch
        folder = bytes([broker, 100 + self.incarnations[broker] % 100]) * 8
        self._register(broker, (), -1 if number % 2 else previous, log_dirs=[folder])

    def _register(self, broker: int, kept: tuple[int, ...], previous: int, **changes: Any) -> None:
        self.incarnations[broker] += 1
        known = {"log_dirs": list(self.world.image.brokers[broker].log_dirs)} | changes
        answer = self.world.register(
            broker,
            incarnation=self.incarnations[broker],
            previous_broker_epoch=previous,
            **known,
        )
        if answer.error_code == 0:  # else its last process may be there still
            self.logs[broker] = kept
            self.heard_ms[broker] = self.world.now_ms
            self.hinted.discard(broker)

    def place(self, _broker: int, number: int) -> None:
        move(self.world, *TARGETS[number % len(TARGETS)])

    def cancel(self, _broker: int, _number: int) -> None:
        move(self.world, cancel=True)

    def prefer(self, _broker: int, _number: int) -> None:
        elect(self.world, PREFERRED, 0)

    def demand(self, _broker: int, _number: int) -> None:
        """Somebody asks for an unclean election: whatever may be lost is given up."""
        elect(self.world, UNCLEAN, 0)

    def require(self, _broker: int, number: int) -> None:
        self.minimum = number % 3 + 1
        alter_config(self.world, TOPIC, "t", "min.insync.replicas", str(self.minimum))

    def change_controllers(self, _broker: int, _number: int) -> None:
        self.epoch += 1
        controller = self.world.controller
        controller.begin_term(self.epoch, self.world.image, controller.log, self.world.now_ms)

    # What has to hold.

    def step(self, name: str, broker: int, number: int) -> None:
        self.before, self.demanded = self.state, name == "demand"
        getattr(self, name)(broker, number)
        self.check()
        if self.state.leader >= 0 and self.state.recovery_state == RECOVERING:
            alter(self.world, *self.state.isr)

    def check(self) -> None:
        """A clean leader has everything; nobody good is passed over; hints give nothing up."""
        before, state, world = self.before, self.state, self.world
        if state.leader >= 0 and state.leader_epoch != before.leader_epoch:
            uncleanly = state.isr == (state.leader,) and state.recovery_state == RECOVERING
            if uncleanly:
                self._check_unclean(before)
            else:
                log = self.logs[state.leader]
                assert log[: len(self.acknowledged)] == self.acknowledged, "a clean leader lacks"
        if state.leader < 0:
            wiped = emptied(world.image, state)
            good = [each for each in state.isr if self.is_active(each) and each not in wiped]
            assert not good, f"nobody leads, and {good} could"
        if not self.elr:
            assert state.isr
        for each in (*state.isr, *state.elr):
            assert each in state.replicas
            log = self.logs[each]
            if each not in emptied(world.image, state):
                assert log[: len(self.acknowledged)] == self.acknowledged, f"{each} counts, lacks"
        self.before = state

    def _check_unclean(self, before: PartitionImage) -> None:
        state = self.state
        last_known = before.last_known_elr == (state.leader,)
        may = self.unclean or self.demanded or last_known
        assert may, "an unclean election that nothing allows"
        if not self.demanded:
            suspected = {each for each in self.hinted if self._may_be_there(each)}
            assert suspected.isdisjoint({*before.isr, *before.elr}), "a hint elects uncleanly"
            arrives = state.leader in state.adding or state.leader not in before.replicas
            assert last_known or not arrives, "a replica that comes is no copy yet"
        log = self.logs[state.leader]
        if log[: len(self.acknowledged)] != self.acknowledged:
            self.acknowledged = log

    def _may_be_there(self, broker: int) -> bool:
        return self.world.now_ms - self.heard_ms[broker] <= SESSION_MS


Step = tuple[str, int, int]
STEPS = (
    "produce", "join", "join", "lag", "stop", "vanish", "silent", "back", "back", "restart",
    "wipe", "place", "place", "cancel", "prefer", "demand", "require", "change_controllers",
)  # fmt: skip
WALKS = 150
LONGEST = 60


def run(steps: Iterable[Step], *, elr: bool, unclean: bool, minimum: int) -> History:
    history = History(elr=elr, unclean=unclean, minimum=minimum)
    for name, broker, number in steps:
        history.step(name, broker, number)
    replayed = history.world.replayed().topics_by_id
    assert replayed == history.world.image.topics_by_id
    return history


EITHER = pytest.mark.parametrize("elr", [True, False], ids=["elr", "no elr"])


@EITHER
@pytest.mark.parametrize("unclean", [True, False], ids=["unclean", "clean"])
def test_whatever_happens_a_clean_leader_has_what_was_acknowledged(
    elr: bool, unclean: bool
) -> None:
    for seed in range(WALKS):
        random = Random(seed)
        steps = [
            (random.choice(STEPS), random.choice(BROKERS), random.randrange(12))
            for _ in range(LONGEST)
        ]
        run(steps, elr=elr, unclean=unclean, minimum=seed % 3 + 1)


# Histories that went wrong once, one for each rule.


@EITHER
def test_a_wiped_replica_that_was_filled_again_leads_when_a_move_leaves_it_alone(elr: bool) -> None:
    steps = [("produce", 1, 0), ("wipe", 2, 0), ("back", 2, 0), ("place", 1, 2), ("join", 2, 0)]
    state = run(steps, elr=elr, unclean=False, minimum=1).state
    assert (state.replicas, state.isr, state.leader) == ((2,), (2,), 2)
    assert state.directories == (bytes([2, 101]) * 8,)


@EITHER
def test_a_replica_that_comes_does_not_lead_while_those_that_have_the_records_are_down(
    elr: bool,
) -> None:
    down = [("produce", 1, 0), ("stop", 3, 0), ("stop", 2, 0), ("stop", 1, 0), ("place", 1, 3)]
    later = [("stop", 4, 0), ("back", 4, 0), ("silent", 1, 0)]
    assert run([*down, *later], elr=elr, unclean=True, minimum=1).state.leader == -1
    assert run([*down, *later, ("back", 1, 0)], elr=elr, unclean=True, minimum=1).state.leader == 1
    asked = run([*down, ("demand", 1, 0)], elr=elr, unclean=False, minimum=1).state
    assert (asked.leader, asked.recovery_state) == (4, RECOVERED), "an operator may decide so"


ONLY_THE_NEW_ONE: list[Step] = [
    ("place", 1, 4), ("stop", 2, 0), ("join", 4, 0), ("stop", 1, 0), ("stop", 3, 0),
    ("produce", 1, 0), ("cancel", 1, 0),
]  # fmt: skip
"""Of 2, 1 and 3, which were there before, none is in sync when the move is taken back."""


@EITHER
def test_a_move_is_not_taken_back_to_replicas_that_are_all_dead(elr: bool) -> None:
    state = run(ONLY_THE_NEW_ONE, elr=elr, unclean=True, minimum=1).state
    assert (state.leader, state.isr, state.adding) == (4, (4,), (4,))


@EITHER
@pytest.mark.parametrize("back", [2, 3], ids=["first", "last"])
def test_a_move_taken_back_to_a_replica_out_of_sync_is_an_unclean_election(
    elr: bool, back: int
) -> None:
    steps: list[Step] = [*ONLY_THE_NEW_ONE[:-1], ("back", back, 0), ("cancel", 1, 0)]
    history = run(steps, elr=elr, unclean=True, minimum=1)
    assert (history.state.leader, history.state.isr, history.acknowledged) == (back, (back,), ())
    assert history.world.sentences("LEADER_ELECTED_UNCLEANLY") == [
        f"broker {back} leads t-0 and may lack acknowledged records (its move was cancelled)"
    ]
    refused = run(steps, elr=elr, unclean=False, minimum=1).state
    assert (refused.leader, refused.adding) == (4, (4,))


def test_a_move_is_taken_back_to_who_is_eligible() -> None:
    """Below the minimum nothing was acknowledged that it lacks."""
    steps: list[Step] = [*ONLY_THE_NEW_ONE[:-1], ("back", 3, 0), ("cancel", 1, 0)]
    state = run(steps, elr=True, unclean=False, minimum=3).state
    assert (state.leader, state.isr, state.recovery_state) == (3, (3,), RECOVERED)
    assert state.elr == (1,)
