"""The remotes of a simulated cluster: its object store and its coordinator.

Not here: what they do (`objects.py`, `coordinator.py`), the brokers that call them (`diskless.py`).
"""

from __future__ import annotations

from collections.abc import Callable

from anabranch.sim.coordinator import SimCoordinator
from anabranch.sim.objects import SimObjects
from anabranch.sim.world import World


class Remotes:
    """The store and the coordinator of a cluster. `interval_ms` is that of its brokers."""

    def __init__(self, world: World, cluster_id: str) -> None:
        self.objects = SimObjects(world)
        self.coordinator = SimCoordinator(world, cluster_id)
        self.interval_ms = 0
        self.after_put: dict[str, Callable[[], None]] = {}
        """Broker's name -> what happens once when its next object is in the store."""
        self.met: set[str] = set()
        """What came about of faults that wait for something."""
