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

    def __init__(
        self,
        world: World,
        cluster_id: str,
        *,
        has_remote_logs: bool = False,
        has_tiering: bool = False,
    ) -> None:
        self.has_remote_logs, self.has_tiering = has_remote_logs, has_tiering
        self.objects = SimObjects(world)
        self.coordinator = SimCoordinator(world, cluster_id)
        self.interval_ms = 0
        self.after_put: dict[str, Callable[[], None]] = {}
        """Broker's name -> what happens once when its next object is in the store."""
        self.after_calls: dict[str, tuple[int, Callable[[], None]]] = {}
        """Broker's name -> after how many calls of its rounds what happens once."""
        self.ahead_ms = 0
        """By how much the clocks that wait for the end of puts are ahead."""
        self.met: set[str] = set()
        """What came about of faults that wait for something."""
