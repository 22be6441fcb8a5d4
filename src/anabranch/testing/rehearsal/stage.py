"""A rehearsal on real processes: the same events, and a row for each like the rehearsed one.

What: three or more nodes run as processes of this machine; each event is done to them, and when
the watched partition has come to rest as it did in the simulation, the next one follows. Why
waiting for that and not for a time: a machine is as fast as it is. Where it comes to rest otherwise
and nothing changes any more (`Patience`), the row says what was seen.

Rule kept: the rows are made from what is seen alone. Not here: how rows are compared (`outcome.py`
of `sim/rehearsal`).
"""

from __future__ import annotations

import asyncio

from anabranch.client.admin import create_topic
from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError
from anabranch.sim.rehearsal.answers import Condition
from anabranch.sim.rehearsal.model import Action, Event, Rehearsal
from anabranch.sim.rehearsal.outcome import (
    BEGIN,
    NOTHING,
    READS,
    Outcome,
    Row,
    is_at_rest,
    moments,
    title,
)
from anabranch.sim.rehearsal.producer import REQUEST_TIMEOUT_MS
from anabranch.sim.rehearsal.units import SECOND_US
from anabranch.testing.nodes import ClusterError
from anabranch.testing.rehearsal.actions import EventPerformer, refuse
from anabranch.testing.rehearsal.clients import RehearsalClients
from anabranch.testing.rehearsal.machines import Machines
from anabranch.testing.rehearsal.patience import Patience
from anabranch.testing.rehearsal.probe import PartitionProbe

SESSIONS_OF_PATIENCE = 2.5
"""More than a lease and a session that run out, one after the other."""
LOOK_SECONDS = 0.05
LEASE_SECONDS = 10.0
"""A little more than the lease of a controller that died."""
ANSWER_SECONDS = 1.0
"""How long an event's answer is waited for before the next event: some never come."""
LACKS = {NOTHING: Condition.OFFLINE, READS: Condition.READ_ONLY}


def performed(
    plan: Rehearsal, rehearsed: Outcome, *, patience_seconds: float | None = None
) -> Outcome:
    """Perform a plan on processes; `rehearsed` is its outcome in the simulation. A row may stay the
    same for `patience_seconds` before it counts as another one, by default for
    SESSIONS_OF_PATIENCE.

    Raises ClusterError for a plan that processes cannot perform, or where a node does not start.
    """
    refuse(plan)
    machines = Machines(plan)
    if patience_seconds is None:
        patience_seconds = SESSIONS_OF_PATIENCE * machines.session_seconds
    try:
        machines.begin()
        return asyncio.run(_Stage(plan, rehearsed, machines, patience_seconds).run())
    except (ApiError, ConnectionLost, OSError) as fault:
        raise ClusterError(f"The cluster did not do what was asked of it: {fault}") from fault
    finally:
        machines.end()


class _Stage:
    """One run."""

    def __init__(
        self, plan: Rehearsal, rehearsed: Outcome, machines: Machines, patience_seconds: float
    ) -> None:
        self.plan = plan
        self.rehearsed = rehearsed
        self.patience_seconds = patience_seconds
        self.machines = machines
        self.looking = PartitionProbe(plan, machines)
        self.asking = RehearsalClients(self.looking)
        self.acting = EventPerformer(machines, self.looking)
        self.rows: list[Row] = []
        self._answers: list[asyncio.Task[None]] = []
        self._give_up: dict[asyncio.Task[None], int] = {}
        """Until when, in the rehearsal's time, clients wait."""

    async def run(self) -> Outcome:
        """Perform it all."""
        try:
            await self._create_topics()
            self.rows.append(Row(BEGIN))
            await self._rest(asyncio.get_running_loop().time())
            found = moments(self.plan)
            ends_us = [*(events[0].at_us for events in found[1:]), self.plan.length_us]
            for events, end_us in zip(found, ends_us, strict=True):
                await self._perform(events, end_us)
            await self.acting.end(self.patience_seconds)
            await self._wait_for_answers()
            return Outcome(self.plan, self.rows, await self.asking.lost())
        finally:
            for each in self._answers:
                each.cancel()
            await self.asking.close()
            await self.looking.close()

    async def _create_topics(self) -> None:
        async with Cluster(self.machines.bootstrap) as cluster:
            for topic in self.plan.topics:
                if topic.is_diskless:
                    count = len(topic.replicas)
                    await create_topic(
                        cluster, topic.name, partitions=count, configs=topic.settings
                    )
                    continue
                await create_topic(
                    cluster, topic.name, assignment=topic.replicas, configs=topic.settings
                )

    async def _perform(self, events: list[Event], end_us: int) -> None:
        """Perform the events of one moment, and wait until they have come to rest. While no broker
        runs, only time shows that the lease of the last controller is over."""
        meant: list[tuple[Event, tuple[int, ...]]] = []
        row = Row("")
        self.rows.append(row)
        await self._lose_patience(events[0].at_us)
        begin = asyncio.get_running_loop().time()
        for event in events:
            brokers = () if event.who is None else await self.acting.who(event.who)
            meant.append((event, brokers))
            row.what = title(meant)
            if event.action is Action.SEND:
                task = asyncio.ensure_future(self._send(event))
                self._answers.append(task)
                self._give_up[task] = event.at_us + REQUEST_TIMEOUT_MS * 1_000
            elif event.action is not Action.READ:
                if event.action is Action.PAUSE:
                    for each in brokers:
                        await self.asking.connect(each, self._sends_after(event))
                await self.acting.do(event, brokers)
        if self.acting.is_busy:
            await self._wait_for_answers()
        self.acting.now_us = end_us
        await self._rest(begin)
        await self._wait_for_answers()
        if not self.machines.up:
            pause_seconds = (end_us - events[0].at_us) / SECOND_US
            await asyncio.sleep(min(pause_seconds, LEASE_SECONDS))

    async def _wait_for_answers(self) -> None:
        if self._answers:
            await asyncio.wait(self._answers, timeout=ANSWER_SECONDS)

    def _sends_after(self, event: Event) -> int:
        return sum(
            each.action is Action.SEND and each.at_us > event.at_us for each in self.plan.events
        )

    async def _lose_patience(self, now_us: int) -> None:
        """Clients that have waited for long enough by the time of the rehearsal give up."""
        late = [task for task, until_us in self._give_up.items() if until_us <= now_us]
        for task in late:
            del self._give_up[task]
            task.cancel()
        if late:
            await asyncio.wait(late)
            self._answers = [task for task in self._answers if task not in late]

    async def _send(self, event: Event) -> None:
        assert event.partition is not None
        to = None if event.to is None else (await self.acting.who(event.to))[0]
        sent = self.asking.batch((event.topic, event.partition), event.records, event.acks)
        await self.asking.send(sent, to)

    async def _rest(self, looked: float) -> None:
        """Look until the row is what was rehearsed, or nothing changes any more. The time since
        `looked` counts as what is seen first."""
        loop, row = asyncio.get_running_loop(), self.rows[-1]
        patience = Patience(self.patience_seconds, loop.time())
        while True:
            self.acting.check()
            row.state = state = await self.looking.state() or row.state
            before, looked = looked, loop.time()
            row.count(LACKS.get(state.serves), round((looked - before) * SECOND_US))
            if is_at_rest(self.rehearsed, len(self.rows) - 1, state):
                return
            moving = loop.time() if self.machines.starting else 0
            if patience.is_over((state, moving), loop.time()):
                return
            await asyncio.sleep(LOOK_SECONDS)
