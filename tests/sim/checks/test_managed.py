"""Which moves of diskless replicas the checks allow."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from anabranch.sim.checks.managed import SLOWEST_COMMIT_MS, ManagedChecks
from anabranch.sim.checks.model import Broker, Partition
from anabranch.sim.checks.violation import Violation

KEY = (b"t" * 16, 0)
THRESHOLD_MS = 3_000
RACKS = {1: "a", 2: "a", 3: "a", 4: "b"}


class Scene:
    """Three brokers in one rack and one in another, and a clock."""

    def __init__(self) -> None:
        self.now_ms = 0
        self.brokers = {each: Broker(1, fenced=False, leaving=False) for each in RACKS}
        self.partitions: dict[Any, Partition] = {}
        model: Any = SimpleNamespace(
            brokers=self.brokers,
            partitions=self.partitions,
            place=lambda _key: "t-0",
            is_diskless=lambda _key: True,
        )
        self.checks = ManagedChecks(model)
        self.checks.racks, self.checks.threshold_ms = RACKS, THRESHOLD_MS
        self.checks.now_ms = lambda: self.now_ms

    def fence(self, broker_id: int) -> None:
        """The store committed that a broker is away."""
        self.brokers[broker_id] = Broker(1, fenced=True, leaving=False)
        self.checks.brokers_changed()

    def move(self, before: tuple[int, ...], now: tuple[int, ...]) -> None:
        """The store committed that replicas moved."""
        self.checks.look(KEY, partition(before, 0), partition(now, 1))


def partition(replicas: tuple[int, ...], epoch: int) -> Partition:
    return Partition(replicas, replicas, (), (), 4, epoch, epoch, recovering=False)


@pytest.mark.parametrize("after_ms", [THRESHOLD_MS - 1, THRESHOLD_MS])
def test_who_is_away_is_replaced_after_the_threshold(after_ms: int) -> None:
    scene = Scene()
    scene.fence(1)
    scene.now_ms += after_ms
    if after_ms == THRESHOLD_MS:
        scene.move((1, 4), (1, 4, 2))
        return
    with pytest.raises(Violation, match=r"^R1: Replica 2 replaces one"):
        scene.move((1, 4), (1, 4, 2))


def test_r1_one_of_two_that_are_away_is_replaced_before_the_other_is_given_up() -> None:
    scene = Scene()
    scene.fence(1)
    scene.now_ms += THRESHOLD_MS
    scene.fence(2)
    with pytest.raises(Violation, match=r"^R1: Replica 3 replaces one"):
        scene.move((1, 2, 4), (1, 2, 4, 3))


@pytest.mark.parametrize("slow_ms", [1_000, SLOWEST_COMMIT_MS + 1])
def test_the_threshold_counts_from_the_decision_that_a_slow_store_commits(slow_ms: int) -> None:
    scene = Scene()
    scene.checks.goes_away(1)
    scene.now_ms += slow_ms
    scene.fence(1)
    scene.now_ms += THRESHOLD_MS - slow_ms if slow_ms < THRESHOLD_MS else 0
    if slow_ms < THRESHOLD_MS:
        scene.move((1, 4), (1, 4, 2))
        return
    with pytest.raises(Violation, match=r"^R1: Replica 2 replaces one"):
        scene.move((1, 4), (1, 4, 2))


@pytest.mark.parametrize("first", [1, 4])
def test_r1_a_replica_that_comes_leads_its_share(first: int) -> None:
    scene = Scene()
    before = partition((1,), 0)
    now = partition((first, 5 - first), 1)
    scene.partitions.update({(b"t" * 16, index): before for index in range(3)})
    scene.partitions[KEY] = now
    scene.checks.begins({KEY: before})
    if first == 4:
        scene.checks.look(KEY, before, now)
        return
    with pytest.raises(Violation, match=r"^R1: Broker 1 is the first of 3 lists"):
        scene.checks.look(KEY, before, now)
