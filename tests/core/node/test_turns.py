"""Who is served next, and how long the others wait: clients of any cost, in any order."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.node.turns import NEW, QUIET_NS, SHORT_NS, SLICE_NS, TURN_NS, Turns, learn

MS = 1_000_000
LIGHT_NS = MS // 10
GARBAGE_NS = 20 * MS
NEVER_NS = 10**15


class Client:
    """Requests of some costs in turn. One that pipelines has the next one ready, others pause."""

    def __init__(self, name, cost_ns, pause_ns=0, is_broker=False):
        self.name = name
        self.costs_ns = (cost_ns,) if isinstance(cost_ns, int) else cost_ns
        self.pause_ns = pause_ns
        self.is_broker = is_broker
        self.length = NEW
        self.is_in_line = False
        self.sends_ns = 0
        self.used_ns = 0
        self.waits = []

    @property
    def pipelines(self):
        return not self.pause_ns


class Loop:
    """A loop as a node runs it, in a time of its own: look at the sockets, then take a turn."""

    def __init__(self, clients, rng):
        self.turns = Turns()
        self.clients = list(clients)
        self.rng = rng
        self.now_ns = 10 * QUIET_NS
        self.turn_lengths = []
        self.served_in_turns = []
        self.picked = []
        self.chance = 0.0
        """Of a slice that takes longer for no reason of its client's."""

    def run(self, until_ns):
        while self.now_ns < until_ns:
            self._look()
            self._turn()

    def _look(self):
        arrived = [
            each for each in self.clients if not each.is_in_line and each.sends_ns <= self.now_ns
        ]
        if not arrived and self.turns.is_open:
            self.now_ns = min(each.sends_ns for each in self.clients)
            return
        self.rng.shuffle(arrived)
        begun_ns = self.now_ns
        for each in arrived:
            if self.turns.is_open:
                self.turns.begun(self.now_ns)
                learn(each, self._serve(each))
                self.turns.is_over(self.now_ns)
                if each.pipelines:
                    self.turns.line_up(each)
            else:
                self.turns.line_up(each)
        self.turn_lengths.append(self.now_ns - begun_ns)

    def _turn(self):
        self.turns.start(self.now_ns)
        begun_ns, served = self.now_ns, []
        while (picked := self.turns.pick(self.now_ns)) is not None:
            self.turns.served(picked, self._serve(picked))
            assert not picked.is_in_line
            served.append(picked)
            self.picked.append(picked)
            if picked.pipelines:
                self.turns.line_up(picked)
        self.turns.end(self.now_ns)
        self.turn_lengths.append(self.now_ns - begun_ns)
        self.served_in_turns.append(served)

    def _serve(self, client):
        """A request, or as many as fit into a slice where more of them are there."""
        begun_ns = self.now_ns
        while True:
            self.now_ns += client.costs_ns[len(client.waits) % len(client.costs_ns)]
            if not client.pipelines or self.now_ns - begun_ns >= SLICE_NS:
                break
        if self.chance and self.rng.random() < self.chance:
            self.now_ns += GARBAGE_NS
        client.used_ns += self.now_ns - begun_ns
        client.waits.append(self.now_ns - client.sends_ns)
        client.sends_ns = self.now_ns + client.pause_ns
        return self.now_ns - begun_ns


costs = st.integers(MS // 10, 20 * MS)
pauses = st.sampled_from([0, 0, MS, 7 * MS, 20 * MS])
crowds = st.lists(st.tuples(costs, pauses), min_size=1, max_size=60)


def longest_turn_ns(crowd):
    """Its time is over after a request that begins just before, and each line is served once."""
    return TURN_NS + 3 * max(SLICE_NS, *(cost for cost, _ in crowd)) + LIGHT_NS


@settings(max_examples=50)
@given(crowds, st.randoms(use_true_random=False))
def test_a_client_with_short_requests_waits_for_a_turn_or_two_not_for_the_crowd(crowd, rng):
    light = Client("light", LIGHT_NS, pause_ns=20 * MS)
    loop = Loop([light, *(Client(f"{i}", *each) for i, each in enumerate(crowd))], rng)
    loop.run(800 * MS)
    served = light.waits[2:]  # it is not new any more
    assert served
    alike_ns = sum(SHORT_NS for cost, _ in crowd if cost <= SHORT_NS)
    assert max(served) <= (2 + alike_ns // TURN_NS) * longest_turn_ns(crowd)


@settings(max_examples=50)
@given(crowds, st.randoms(use_true_random=False))
def test_a_turn_lasts_for_its_time_or_one_request_of_each_line(crowd, rng):
    loop = Loop([Client(f"{i}", *each) for i, each in enumerate(crowd)], rng)
    loop.run(300 * MS)
    assert max(loop.turn_lengths) <= longest_turn_ns(crowd)


@settings(max_examples=50)
@given(st.lists(costs, min_size=2, max_size=40), st.randoms(use_true_random=False))
def test_those_that_always_want_more_are_served_in_turn(crowd, rng):
    clients = [Client(f"{i}", cost) for i, cost in enumerate(crowd)]
    loop = Loop(clients, rng)
    loop.run(2000 * MS)
    slices = [loop.picked.count(each) for each in clients]
    assert max(slices) - min(slices) <= 3


@pytest.mark.parametrize("seed", range(5))
def test_a_slice_that_was_long_by_chance_sends_no_client_to_the_end_of_the_line(seed):
    light = Client("light", LIGHT_NS, pause_ns=20 * MS)
    loop = Loop([light, *(Client(f"{i}", 8 * MS) for i in range(100))], Random(seed))
    loop.chance = 0.02
    loop.run(5000 * MS)
    assert max(light.waits[2:]) < 200 * MS


@pytest.mark.parametrize("seed", range(5))
def test_who_sends_a_short_request_after_each_long_one_is_not_among_the_first(seed):
    light = Client("light", LIGHT_NS, pause_ns=20 * MS)
    others = [Client(f"{i}", (8 * MS, LIGHT_NS), pause_ns=MS) for i in range(100)]
    loop = Loop([light, *others], Random(seed))
    loop.run(5000 * MS)
    assert max(light.waits[30:]) < 100 * MS


@pytest.mark.parametrize("seed", range(5))
def test_new_connections_do_not_starve_those_that_are_there(seed):
    """As from 20 clients that open another connection for each request."""
    heavy = Client("heavy", 8 * MS)
    light = Client("light", LIGHT_NS, pause_ns=20 * MS)
    loop = Loop([heavy, light], Random(seed))
    for number in range(400):
        old = [each for each in loop.clients[2:] if not each.waits]
        new = [Client(f"{number}-{i}", 5 * MS, pause_ns=NEVER_NS) for i in range(20 - len(old))]
        loop.clients = [heavy, light, *old, *new]
        loop.run(loop.now_ns + MS)
    assert heavy.used_ns > loop.now_ns // 4
    assert max(light.waits[2:]) < 100 * MS


@pytest.mark.parametrize("seed", range(20))
def test_brokers_come_before_clients_which_are_served_in_each_turn(seed):
    rng = Random(seed)
    brokers = rng.randint(1, 5)
    crowd = [(rng.randint(MS // 10, 20 * MS), 0) for _ in range(rng.randint(1, 60))]
    clients = [Client(f"{i}", cost) for i, (cost, _) in enumerate(crowd)]
    heartbeat = Client("heartbeat", LIGHT_NS, pause_ns=50 * MS, is_broker=True)
    fetchers = [Client(f"f{i}", MS, is_broker=True) for i in range(brokers)]
    loop = Loop([*clients, *fetchers, heartbeat], rng)
    loop.run(800 * MS)
    assert max(heartbeat.waits[1:]) <= (2 + brokers) * longest_turn_ns(crowd)
    for served in loop.served_in_turns[2:]:
        ranks = [each.is_broker for each in served]
        assert ranks == sorted(ranks, reverse=True)
        assert not all(ranks)
        assert any(ranks)


def test_what_comes_to_a_quiet_loop_is_run_at_once():
    turns = Turns()
    for now_ns in range(10 * QUIET_NS, 10_000 * QUIET_NS, 2 * QUIET_NS):
        assert turns.is_open
        turns.begun(now_ns)
        assert not turns.is_over(now_ns + QUIET_NS // 2)


def test_a_busy_loop_looks_at_its_sockets_when_the_turn_is_over():
    turns = Turns()
    now_ns = 10 * QUIET_NS
    turns.begun(now_ns)
    while not turns.is_over(now_ns):
        now_ns += QUIET_NS // 2
        turns.begun(now_ns)
    assert TURN_NS < now_ns - 10 * QUIET_NS <= TURN_NS + QUIET_NS
    assert not turns.is_open
    turns.start(now_ns)
    assert turns.pick(now_ns) is None
    turns.end(now_ns)
    assert turns.is_open
