"""What a rehearsal's events do to processes, and what its operator asks of them.

The rule it keeps: an event means here what it means in the simulated world (`actions.py` of
`sim/rehearsal`) as far as a process allows; what it cannot do is refused before anything runs. Not
here: what clients send and read (`clients.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import replace

from anabranch.client.admin import (
    ConfigOperation,
    ResourceKind,
    alter_configs,
    create_partitions,
    create_topic,
)
from anabranch.client.cluster import Cluster
from anabranch.client.elections import Election, elect_leaders
from anabranch.sim.rehearsal.model import Action, BrokerChoice, Event, Rehearsal
from anabranch.sim.rehearsal.units import SECOND_US
from anabranch.testing.nodes import ClusterError
from anabranch.testing.rehearsal.machines import Machines
from anabranch.testing.rehearsal.moves import drained, filled
from anabranch.testing.rehearsal.probe import PartitionProbe

LOOK_SECONDS = 0.1
BROKERS_MOST = 9
CUT_SECONDS = 1.0
"""Until nothing waits at a leader that was asked before a cut: twice replica.fetch.wait.max.ms.
What it holds would be answered into the cut, and arrive when the links are whole again."""
DOWN_SECONDS = 2.0
"""The longest that a restart leaves a process down: enough to see what is without it."""


def performable(plan: Rehearsal) -> Rehearsal:
    """A plan without what processes leave out: steady producers, and bytes that are only said to
    be there. Both sides then do the same."""
    topics = tuple(replace(each, rate_per_second=0.0, retained_bytes=0) for each in plan.topics)
    return replace(plan, topics=topics)


def refuse(plan: Rehearsal) -> None:
    """Raise ClusterError for a plan that processes cannot perform."""
    if plan.brokers != tuple(range(1, len(plan.brokers) + 1)):
        raise ClusterError("On real processes brokers are 1, 2, 3 and so on: give them these ids.")
    if len(plan.brokers) > BROKERS_MOST:
        raise ClusterError(f"At most {BROKERS_MOST} brokers run as processes of one machine.")


class EventPerformer:
    """Performs events. What takes its time (a shutdown, a roll) goes on in the background."""

    def __init__(self, machines: Machines, looking: PartitionProbe) -> None:
        self.machines = machines
        self.looking = looking
        self.now_us = 0
        """What is due by then, in the rehearsal's time, may happen."""
        self._background: set[asyncio.Task[None]] = set()
        self._on_node: dict[Action, Callable[[int], None]] = {
            Action.KILL: machines.kill,
            Action.PAUSE: machines.pause,
            Action.RESUME: machines.resume,
        }
        self._slowly: dict[Action, Callable[[int], None]] = {
            Action.START: machines.start,
            Action.SHUT_DOWN: machines.shut_down,
            Action.WIPE: machines.wipe,
        }

    async def who(self, who: BrokerChoice) -> tuple[int, ...]:
        """The brokers that are meant, now."""
        if not who.role:
            return who.brokers
        if who.role == "controller":
            return (await asyncio.to_thread(self.machines.controller),)
        self.looking.follow()
        state = self.looking.image.partition(who.topic, who.partition)
        assert state is not None
        if who.role == "leader":
            return () if state.leader < 0 else (state.leader,)
        return tuple(each for each in state.replicas if each != state.leader)

    async def do(self, event: Event, brokers: tuple[int, ...]) -> None:
        """Perform one event; what an operator asks for is answered then."""
        for each in brokers:
            if event.action in self._on_node:
                await asyncio.to_thread(self._on_node[event.action], each)
            elif event.action in self._slowly:
                self._begin(asyncio.to_thread(self._slowly[event.action], each))
            elif event.action is Action.RESTART:
                self._begin(self._restart(each, event, 1))
        if event.action is Action.POWER_LOSS:
            await asyncio.to_thread(self.machines.power_loss, brokers)
        elif event.action is Action.ROLL:
            self._begin(self._roll(brokers, event))
        elif event.action is Action.CUT:
            await self._cut(event, brokers)
        elif event.action is Action.HEAL:
            self.machines.heal()
        elif event.action is Action.OUTAGE:
            await asyncio.to_thread(self.machines.outage, event.remote)
        elif event.action is Action.RESTORE:
            await asyncio.to_thread(self.machines.restore, event.remote)
        elif event.action in _OPERATED:
            if event.action is Action.ADD:
                starts = (asyncio.to_thread(self.machines.start, each) for each in brokers)
                await asyncio.gather(*starts)
            await self._operate(event, brokers)

    def _begin(self, work: Coroutine[None, None, None]) -> None:
        self._background.add(asyncio.ensure_future(work))

    @property
    def is_busy(self) -> bool:
        """Whether something goes on in the background."""
        return any(not each.done() for each in self._background)

    def check(self) -> None:
        """Raise what something in the background failed with."""
        for task in [each for each in self._background if each.done()]:
            self._background.discard(task)
            task.result()

    async def end(self, patience_seconds: float) -> None:
        """Wait for what goes on in the background; a roll that waits for replicas which do not come
        back is left there. Raises what something failed with."""
        if self._background:
            await asyncio.wait(self._background, timeout=patience_seconds)
        self.check()
        for task in self._background:
            task.cancel()

    async def _cut(self, event: Event, brokers: tuple[int, ...]) -> None:
        assert event.to is not None
        for one in brokers:
            for other in await self.who(event.to):
                if one != other:
                    self.machines.cut(other, one, one_way=event.one_way, plane=event.plane)
        await asyncio.sleep(CUT_SECONDS)

    async def _restart(self, broker: int, event: Event, turn: int) -> None:
        """Restart a broker, the `turn`th of an event. It is started when the simulated one is: a
        busy machine then has the time to see what is without it."""
        await asyncio.to_thread(self.machines.shut_down, broker)
        await asyncio.sleep(min(event.down_us / SECOND_US, DOWN_SECONDS))
        await _until(lambda: self.now_us >= event.at_us + turn * event.down_us)
        await asyncio.to_thread(self.machines.start, broker)

    async def _roll(self, brokers: tuple[int, ...], event: Event) -> None:
        for turn, each in enumerate(brokers, start=1):
            await self._restart(each, event, turn)
            await _until(self._is_whole)

    def _is_whole(self) -> bool:
        self.looking.follow()
        return all(
            len(state.isr) == len(state.replicas)
            for topic in self.looking.image.topics_by_id.values()
            for state in topic.partitions.values()
        )

    async def _operate(self, event: Event, brokers: tuple[int, ...]) -> None:
        async with Cluster(self.machines.bootstrap) as cluster:
            await _OPERATED[event.action](cluster, event, brokers)


async def _until(is_so: Callable[[], bool]) -> None:
    while True:
        if is_so():
            return
        await asyncio.sleep(LOOK_SECONDS)


async def _set(cluster: Cluster, event: Event, _brokers: tuple[int, ...]) -> None:
    changes = [(ConfigOperation.SET, *each) for each in sorted(event.settings.items())]
    await alter_configs(cluster, ResourceKind.TOPIC, event.topic, changes)


async def _elect(cluster: Cluster, event: Event, _brokers: tuple[int, ...]) -> None:
    kind = Election.PREFERRED if event.election == "preferred" else Election.UNCLEAN
    places = None if event.partition is None else {event.topic: [event.partition]}
    await elect_leaders(cluster, kind, places)


async def _create(cluster: Cluster, event: Event, _brokers: tuple[int, ...]) -> None:
    await create_topic(
        cluster, event.topic, partitions=event.partitions,
        replication_factor=event.replication, configs=event.settings,
    )  # fmt: skip


async def _grow(cluster: Cluster, event: Event, _brokers: tuple[int, ...]) -> None:
    await create_partitions(cluster, event.topic, event.partitions)


async def _drain(cluster: Cluster, _event: Event, brokers: tuple[int, ...]) -> None:
    await drained(cluster, brokers)


async def _add(cluster: Cluster, _event: Event, brokers: tuple[int, ...]) -> None:
    await filled(cluster, brokers)


_Operation = Callable[[Cluster, Event, tuple[int, ...]], Coroutine[None, None, None]]
_OPERATED: dict[Action, _Operation] = {
    Action.SET: _set,
    Action.ELECT: _elect,
    Action.CREATE: _create,
    Action.GROW: _grow,
    Action.DRAIN: _drain,
    Action.ADD: _add,
}
"""What an operator asks for."""
