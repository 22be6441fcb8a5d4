"""The simulated network: messages between named places, late, lost, doubled, or not at all.

What: `send` brings a message over the link from one place to another. A link is one-way; by default
it keeps the order of what it carries, as a TCP connection does, and takes a fraction of a
millisecond. Faults are set a link or everywhere: loss, doubling, more delay, delay that changes the
order, a cut, a clog (what is sent stays in the link until it is free again).

Rule kept: all chance is from the stream `network`, drawn only where a fault needs it, so that a
healthy network costs little. Not here: requests, answers and their timeouts (`rpc.py`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from anabranch.sim.processes import Timer
from anabranch.sim.world import ANY_LIFE

if TYPE_CHECKING:
    from anabranch.sim.processes import Process
    from anabranch.sim.world import World

LATENCY_US = (150, 450)
"""How long a healthy link takes: a hop within one data centre."""


@dataclass(slots=True)
class LinkFault:
    """What is wrong with a link. Chances are between 0 and 1, times in microseconds."""

    loss: float = 0.0
    duplicate: float = 0.0
    delay_us: int = 0
    """At most so much more than a healthy link takes, drawn a message."""
    reorder: bool = False
    """A message may overtake those that were sent before it."""
    cut: bool = False
    clogged: bool = False


HEALTHY = LinkFault()


class _Link:
    """One way from a place to another."""

    __slots__ = ("distance_us", "fault", "free_us", "stuck")

    def __init__(self) -> None:
        self.distance_us = 0
        """How much longer it takes than a hop within one data centre."""
        self.fault: LinkFault | None = None
        self.free_us = 0
        """When the last message arrives: the next one must not overtake it."""
        self.stuck: list[tuple[Process, Callable[..., None], tuple[Any, ...]]] = []


class Network:
    """All links, by (source, target)."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.everywhere = HEALTHY
        """What is wrong with every link that has no fault of its own."""
        self.latency_us = LATENCY_US
        self.sent = 0
        self.lost = 0
        self._links: dict[tuple[str, str], _Link] = {}
        self._random = world.random("network")

    def send(
        self,
        source: str,
        target: str,
        process: Process,
        action: Callable[..., None],
        *args: Any,
    ) -> None:
        """Have `action` happen to `process` when the message arrives, if it does."""
        link = self._links.get((source, target)) or self._link(source, target)
        fault = link.fault or self.everywhere
        self.sent += 1
        if fault is HEALTHY:
            world = self.world
            low, high = self.latency_us
            due_us = world.now_us + low + int(self._random.random() * (high - low))
            due_us += link.distance_us
            if due_us < link.free_us:
                due_us = link.free_us
            link.free_us = due_us
            world.plan(Timer(action, args, process, ANY_LIFE), due_us)
            return
        if fault.cut or (fault.loss and self._random.random() < fault.loss):
            self.lost += 1
            return
        if fault.clogged:
            link.stuck.append((process, action, args))
            return
        self._carry(link, fault, process, action, args)
        if fault.duplicate and self._random.random() < fault.duplicate:
            self._carry(link, fault, process, action, args)

    def reaches(self, source: str, target: str) -> bool:
        """Whether anything that is sent now would arrive."""
        fault = self._link(source, target).fault or self.everywhere
        return not fault.cut and not fault.clogged

    def _link(self, source: str, target: str) -> _Link:
        link = self._links.get((source, target))
        if link is None:
            link = self._links[source, target] = _Link()
        return link

    def _carry(
        self,
        link: _Link,
        fault: LinkFault,
        process: Process,
        action: Callable[..., None],
        args: tuple[Any, ...],
    ) -> None:
        low, high = self.latency_us
        due_us = self.world.now_us + low + int(self._random.random() * (high - low))
        due_us += link.distance_us
        if fault.delay_us:
            due_us += int(self._random.random() * fault.delay_us)
        if not fault.reorder:
            due_us = link.free_us = max(due_us, link.free_us)
        self.world.plan(Timer(action, args, process, ANY_LIFE), due_us)

    def set_distance(self, source: str, target: str, distance_us: int) -> None:
        """Put two places apart, as in two data centres; one way. It is no fault, and stays."""
        self._link(source, target).distance_us = distance_us

    # Faults.

    def set(self, source: str, target: str, fault: LinkFault | None) -> None:
        """Give one way a fault of its own; None takes it away."""
        link = self._link(source, target)
        link.fault = fault
        if fault is None or not fault.clogged:
            stuck, link.stuck = link.stuck, []
            for process, action, args in stuck:
                self._carry(link, fault or self.everywhere, process, action, args)

    def cut(self, source: str, target: str) -> None:
        """Nothing that is sent this way arrives."""
        self.set(source, target, LinkFault(cut=True))

    def split(self, one: list[str], other: list[str]) -> None:
        """Cut two groups of places off from each other, both ways."""
        for source in one:
            for target in other:
                self.cut(source, target)
                self.cut(target, source)

    def heal(self) -> None:
        """Every link is healthy again; what is stuck goes on."""
        self.everywhere = HEALTHY
        for (source, target), link in list(self._links.items()):
            if link.fault is not None:
                self.set(source, target, None)
