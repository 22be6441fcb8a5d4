"""A rehearsal on real processes: the same events, and what came of each, a row like the rehearsed.

What: three or more nodes run as processes of this machine; each event is done to them, and when
what is seen is what the rehearsal foretold, the next one follows. Why waiting for that and not for
a time: a machine is as fast as it is. What was seen is written down, whatever it is: where it is
not what was foretold and does not change any more (`Patience`), another order of its events is
looked for in the simulation, and without one the row says so by being another.

Rule kept: the rows are made from what is seen alone. Not here: their printer (`outcome.py` of
`sim/rehearsal`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable

from anabranch.client.admin import create_topic
from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError
from anabranch.sim.rehearsal.model import Action, Event, Rehearsal
from anabranch.sim.rehearsal.orders import Foretold, as_noticed
from anabranch.sim.rehearsal.outcome import BEGIN, Outcome, Row, moments, title
from anabranch.sim.rehearsal.producer import REQUEST_TIMEOUT_MS, Sent
from anabranch.sim.rehearsal.transcript import answer
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


def performed(
    plan: Rehearsal, foretold: Foretold, *, patience_seconds: float | None = None
) -> Outcome:
    """Perform a plan on processes; `foretold` is what came of it in the simulation, and ends with
    the outcome that was met. A row may stay the same for `patience_seconds` before it counts as
    another than foretold, by default for SESSIONS_OF_PATIENCE.

    Raises ClusterError for a plan that processes cannot perform, or where a node does not start.
    """
    refuse(plan)
    machines = Machines(plan)
    if patience_seconds is None:
        patience_seconds = SESSIONS_OF_PATIENCE * machines.session_seconds
    try:
        machines.begin()
        return asyncio.run(_Stage(plan, foretold, machines, patience_seconds).run())
    except (ApiError, ConnectionLost, OSError) as fault:
        raise ClusterError(f"The cluster did not do what was asked of it: {fault}") from fault
    finally:
        machines.end()


def _changes(rows: Iterable[Row]) -> list[str]:
    return [each for row in rows for each in row.changes]


class _Stage:
    """One run."""

    def __init__(
        self, plan: Rehearsal, foretold: Foretold, machines: Machines, patience_seconds: float
    ) -> None:
        self.plan = plan
        self.foretold = foretold
        self.patience_seconds = patience_seconds
        self.machines = machines
        self.looking = PartitionProbe(plan, machines)
        self.asking = RehearsalClients(self.looking)
        self.acting = EventPerformer(machines, self.looking)
        self.rows: list[Row] = []
        self._answers: list[asyncio.Task[None]] = []
        self._give_up: dict[asyncio.Task[None], int] = {}
        """Until when, in the rehearsal's time, clients wait."""
        self._sends: list[tuple[Row, Sent]] = []

    async def run(self) -> Outcome:
        """Perform it all."""
        try:
            await self._create_topics()
            self._next(BEGIN)
            await self._rest()
            found = moments(self.plan)
            ends_us = [*(events[0].at_us for events in found[1:]), self.plan.length_us]
            for events, end_us in zip(found, ends_us, strict=True):
                await self._perform(events, end_us)
            await self.acting.end(self.patience_seconds)
            await self._end_answers()
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
        row = self._next("")
        await self._lose_patience(events[0].at_us)
        for event in events:
            brokers = () if event.who is None else await self.acting.who(event.who)
            meant.append((event, brokers))
            row.what = title(meant)
            rows = self.foretold.met.rows[len(self.rows) - 1 :]
            brokers = as_noticed(brokers, _changes(rows))
            if event.action in (Action.SEND, Action.READ):
                task = asyncio.ensure_future(self._ask(event, row))
                self._answers.append(task)
                self._give_up[task] = event.at_us + REQUEST_TIMEOUT_MS * 1_000
            else:
                if event.action is Action.PAUSE:
                    for each in brokers:
                        await self.asking.connect(each, self._sends_after(event))
                self.acting.told = row.told.append
                await self.acting.do(event, brokers)
        if self.acting.is_busy:
            await self._wait_for_answers()
        self.acting.now_us = end_us
        await self._rest()
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

    async def _ask(self, event: Event, row: Row) -> None:
        if event.action is Action.READ:
            row.told.append(await self.asking.read())
            return
        assert event.partition is not None
        to = None if event.to is None else (await self.acting.who(event.to))[0]
        place = (event.topic, event.partition)
        sent = self.asking.batch(place, event.records, event.acks)
        if place == self.plan.watch:
            self._sends.append((row, sent))
        await self.asking.send(sent, to)

    def _next(self, what: str) -> Row:
        row = Row(what)
        self.rows.append(row)
        self.looking.follow()
        self.looking.changes, self.looking.cuts = row.changes, row.cuts
        return row

    async def _rest(self) -> None:
        """Look until the row is what was foretold. Once nothing changes any more, it may be what
        another order of the same moment gives."""
        loop, row = asyncio.get_running_loop(), self.rows[-1]
        patience = Patience(self.patience_seconds, loop.time())
        while True:
            self.acting.check()
            row.state = await self.looking.state() or row.state
            if row.state is not None:
                if row.at_rest == self.foretold.met.rows[len(self.rows) - 1].at_rest:
                    return
                moving = loop.time() if self.machines.starting else 0
                if patience.is_over((row.at_rest, moving), loop.time()):
                    await asyncio.to_thread(self.foretold.search, self.rows)
                    return
            await asyncio.sleep(LOOK_SECONDS)

    async def _end_answers(self) -> None:
        """Whoever has no answer by now gets none."""
        await self._wait_for_answers()
        for each in self._answers:
            each.cancel()
        for row, sent in self._sends:
            row.told.append(answer(sent))
