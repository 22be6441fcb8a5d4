"""Three candidates on one store: late, lost and unknown answers, clocks that jump or stand, crashes.

What must hold in every order: an answer leaves only for what is committed, an active controller's
log is a piece of the store's, no decision is answered and missing later, a holder by whose own
clock the lease was not confirmed in time answers nothing, and no event meets a phase that does not
know it. When all is well again, one candidate is active and the others know it.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest
from tests.core.controller.tenure_world import Node, Store, failed

from anabranch.core.controller.tenure import effects, events

STEPS = 250
LEASE_MS = 6_000
FEW_BYTES = "metadata.log.max.record.bytes.between.snapshots"


class Story:
    """One order of events, drawn from a seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.store = Store()
        self.lives = 0
        self.number = 0
        self.answered: set[int] = set()
        self.nodes = [self.new_node(node_id) for node_id in (1, 2, 3)]
        self.on_their_way: list[tuple[Node, events.StoreAnswer]] = []

    def new_node(self, node_id: int) -> Node:
        self.lives += 1
        node = Node(self.store, node_id, self.lives, settings={FEW_BYTES: "600"})
        node.now_ms = self.random.randrange(10**6)
        node.step(events.Start())
        return node

    def check(self) -> None:
        stored = [bytes(each.payload) for each in self.store.batches]
        for node in self.nodes:
            self.answered |= set(node.answered)
            node.answered.clear()
            log = node.controller.log
            if node.is_active:
                own = [bytes(each) for each in log.read(log.start_offset, 1 << 30)]
                starts = [b for b in self.store.batches if b.first_offset >= log.start_offset]
                theirs = stored[len(stored) - len(starts) :]
                assert theirs[: len(own)] == own, "what is served was committed"
        self.check_answered()

    def check_answered(self) -> None:
        whole = b"".join(bytes(each.payload) for each in self.store.batches)
        for number in self.answered:
            assert f"t{number}.".encode() in whole, "what was answered is committed"

    # What may happen.

    def one(self) -> None:
        """One thing that happens."""
        doings: list[tuple[int, Callable[[Node], None]]] = [
            (30, self.carry_out), (30, self.bring), (12, self.decide), (6, self.plan), (20, self.time_goes_on),
            (3, self.lose), (2, self.jump), (2, self.crash), (2, self.hint), (1, self.give_way),
        ]  # fmt: skip
        weights = [weight for weight, _ in doings]
        (chosen,) = self.random.choices([each for _, each in doings], weights)
        chosen(self.random.choice(self.nodes))

    def carry_out(self, node: Node) -> None:
        if node.calls:
            call = node.calls.pop(self.random.randrange(len(node.calls)))
            answer = self.store.do(node, call)
            if answer is not None:
                if self.random.random() < 0.05:
                    answer = failed(call)
                self.on_their_way.append((node, answer))

    def bring(self, _node: Node) -> None:
        if self.on_their_way:
            at = self.random.randrange(len(self.on_their_way))
            node, answer = self.on_their_way.pop(at)
            if node in self.nodes:
                node.step(answer)

    def lose(self, node: Node) -> None:
        if node.calls:
            self.on_their_way.append((node, failed(node.calls.pop(0))))

    def decide(self, node: Node) -> None:
        self.number += 1
        overdue = self.is_overdue(node)
        node.decide_named(self.number)
        if overdue:
            assert self.number in node.refused

    def plan(self, node: Node) -> None:
        """A duty decides, and nobody waits."""
        if node.is_active and not self.is_overdue(node):
            self.number += 1
            node.plan(self.number, more_follow=self.random.random() < 0.7)

    def is_overdue(self, node: Node) -> bool:
        holding = node.tenure.state.holding
        return holding is None or node.now_ms - holding.confirmed_ms > LEASE_MS

    def time_goes_on(self, _node: Node) -> None:
        for node in self.nodes:
            node.now_ms += self.random.choice((1, 10, 100, 500))
            if node.now_ms >= node.tenure.next_tick_ms:
                node.tick()

    def jump(self, node: Node) -> None:
        """It was frozen: its clock is far ahead when it goes on. The others' stand still to it."""
        node.now_ms += self.random.choice((3_000, 7_000, 60_000))

    def crash(self, node: Node) -> None:
        self.nodes[self.nodes.index(node)] = self.new_node(node.node_id)

    def hint(self, node: Node) -> None:
        if self.store.held is not None:
            node.step(events.HolderGone(self.store.held.epoch))

    def give_way(self, node: Node) -> None:
        node.step(events.GiveWay("it hears nobody"))


@pytest.mark.parametrize("seed", range(60))
def test_in_every_order_only_what_is_committed_is_answered_and_served(seed: int) -> None:
    story = Story(seed)
    for _ in range(STEPS):
        story.one()
        story.check()
    for node, answer in story.on_their_way:
        if node in story.nodes:
            node.step(answer)
    for _ in range(40):
        for node in story.nodes:
            node.go(500)
        story.check()
    active = [node for node in story.nodes if node.is_active]
    assert len(active) == 1
    assert active[0].controller.log.end_offset == story.store.end_offset
    assert all(f"t{each}." in active[0].topics for each in story.answered)
    assert all(node.said(effects.Stop) == [] for node in story.nodes)
    others = [node for node in story.nodes if not node.is_active]
    assert {node.controller.active_id for node in others} == {active[0].node_id}
