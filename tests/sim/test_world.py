"""The simulated world keeps its rules: order, processes, links, the store's contract, power cuts."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from anabranch.sim.network import LinkFault, Network
from anabranch.sim.processes import Process, State
from anabranch.sim.store import AWAY, Committed, Deposed, Lease, SimStore, StoredBatch, Unknown
from anabranch.sim.world import World

SECOND = 1_000_000


def running(name: str) -> Process:
    process = Process(name)
    process.state = State.RUNNING
    return process


def test_events_happen_in_the_order_of_time_and_then_of_planning() -> None:
    world, seen = World(1), []
    world.after(20, seen.append, "c")
    world.after(10, seen.append, "a")
    world.after(10, seen.append, "b")
    world.after(15, seen.append, "never").cancel()
    world.run(100)
    assert seen == ["a", "b", "c"]
    assert world.now_us == 100
    assert not world.step()


def test_a_stream_of_chance_depends_on_the_seed_and_its_name_alone() -> None:
    one, other = World(1), World(1)
    one.random("x").random()
    assert one.random("y").random() == other.random("y").random()
    assert World(2).random("y").random() != World(1).random("y").random()


def test_events_of_a_paused_process_wait_and_those_of_a_dead_one_never_happen() -> None:
    world, seen, process = World(1), [], running("p")
    world.after_in(process, 10, seen.append, "waits")
    process.held = []
    world.run(50)
    assert seen == []
    world.release(process)
    world.run(51)
    assert seen == ["waits"]
    world.after_in(process, 10, seen.append, "dies")
    process.life += 1
    world.run(100)
    assert seen == ["waits"]


def network() -> tuple[World, Network, Process, list[Any]]:
    world = World(3)
    return world, Network(world), running("b"), []


def test_a_healthy_link_keeps_the_order() -> None:
    world, net, process, seen = network()
    for number in range(50):
        net.send("a", "b", process, seen.append, number)
    world.run(SECOND)
    assert seen == list(range(50))


def test_a_link_may_lose_double_and_mix_what_it_carries() -> None:
    world, net, process, seen = network()
    net.set("a", "b", LinkFault(loss=0.2, duplicate=0.2, delay_us=10_000, reorder=True))
    for number in range(200):
        net.send("a", "b", process, seen.append, number)
    world.run(SECOND)
    assert len(set(seen)) < 200
    assert len(seen) > len(set(seen))
    assert seen != sorted(seen)


def test_a_cut_is_one_way_and_a_clog_gives_back_what_it_holds() -> None:
    world, net, process, seen = network()
    net.cut("a", "b")
    net.send("a", "b", process, seen.append, "lost")
    net.send("b", "a", process, seen.append, "other way")
    net.heal()
    net.set("a", "b", LinkFault(clogged=True))
    net.send("a", "b", process, seen.append, "late")
    world.run(SECOND)
    assert seen == ["other way"]
    net.set("a", "b", None)
    world.run(2 * SECOND)
    assert seen == ["other way", "late"]


class Caller:
    """A process that asks a store and keeps the answers."""

    def __init__(self) -> None:
        self.world = World(5)
        self.store = SimStore(self.world)
        self.process = running("node-1")
        self.answers: list[Any] = []

    def last(self) -> Any:
        self.world.run(self.world.now_us + 10 * SECOND)
        return self.answers[-1]

    def take(self) -> Any:
        seen = self.store.lease(self.process)
        self.store.take_lease(self.process, seen, 1, "one", self.answers.append)
        return self.last()

    def append(self, lease: Lease, first: int) -> Any:
        batch = StoredBatch(first, first + 1, lease.epoch, b"batch")
        self.store.append(self.process, lease, first, [batch], self.answers.append)
        return self.last()


def test_an_append_needs_the_newest_lease_and_the_end_of_the_log() -> None:
    caller = Caller()
    first = caller.take()
    assert caller.append(first, 0) == Committed(1)
    assert isinstance(caller.append(first, 0), Deposed)
    second = caller.take()
    assert second.epoch > first.epoch
    assert isinstance(caller.append(first, 1), Deposed)
    assert caller.append(second, 1) == Committed(2)


def test_a_lease_that_was_stolen_is_not_renewed() -> None:
    caller = Caller()
    lease = caller.take()
    caller.store.steal_lease()
    caller.store.renew_lease(caller.process, lease, caller.answers.append)
    assert caller.last() is None
    assert isinstance(caller.append(lease, 0), Deposed)


def test_an_unknown_outcome_may_be_either() -> None:
    caller = Caller()
    lease = caller.take()
    ends = set()
    for _ in range(20):
        caller.store.faults.unknown = 1
        before = caller.store.end_offset
        assert isinstance(caller.append(lease, before), Unknown)
        ends.add(caller.store.end_offset - before)
    assert ends == {0, 1}


def test_a_store_that_is_away_says_so_and_a_stale_reader_sees_less() -> None:
    caller = Caller()
    lease = caller.take()
    caller.append(lease, 0)
    caller.append(lease, 1)
    caller.store.faults.stale = 1
    caller.store.read(caller.process, caller.answers.append)
    assert len(caller.last().batches) == 1
    caller.store.faults.cut_off.add("node-1")
    assert caller.store.lease(caller.process) is AWAY
    caller.store.read(caller.process, caller.answers.append)
    assert caller.last() is AWAY
    assert isinstance(caller.append(lease, 2), Unknown)


def test_no_order_of_hashes_reaches_a_run() -> None:
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); "
        "from test_cluster import lose_the_leader; print(lose_the_leader(21).digest)"
    )
    here = str(Path(__file__).parent)
    digests = {
        subprocess.run(
            [sys.executable, "-c", code, here],
            env={**os.environ, "PYTHONHASHSEED": seed},
            capture_output=True,
            text=True,
            check=True,
        ).stdout
        for seed in ("1", "2")
    }
    assert len(digests) == 1
