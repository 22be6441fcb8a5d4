"""The driver of a mirror: wave after wave on Spark, and its duties meanwhile.

What: `run_mirror` keeps all flows of a configuration going until it is told to stop. Slots are
spread over as many tasks as Spark has cores, so that no slot waits for a core; a wave that fails is
told, and the next one begins where the target's positions say. Rules kept: at the start, what
cannot work at all is raised (clusters that cannot be reached, both ends the same); later on, faults
are told and tried again.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Coroutine, Iterable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from anabranch.core.mirror.config import Config
from anabranch.core.mirror.figures import Movements
from anabranch.pipelines.mirror.driver_flow import FlowState, Replaced, SameCluster
from anabranch.pipelines.mirror.duties import TROUBLE, Duties, Heart
from anabranch.pipelines.mirror.task import run_wave
from anabranch.pipelines.mirror.work import SlotAnswer, SlotWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_SECONDS = 0.25
PAUSE_SECONDS = 1.0
"""Before the next wave, after one that failed or had nothing to do."""
REOPEN_SECONDS = 5.0
MOST_TOLD = 1000
"""Sentences that are remembered, so that none is told each wave again."""
Tell = Callable[[str], None]


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


@dataclass
class Totals:
    """What a mirror has done since it began."""

    waves: int = 0
    failed_waves: int = 0
    cut_waves: int = 0
    """Ended by the signal to stop; what they did is not counted."""
    records: int = 0
    size_bytes: int = 0
    rounds: int = 0
    latency_ms: float = 0.0
    opened: dict[str, int] = field(default_factory=dict)
    whole: int = 0

    def add(self, answer: SlotAnswer) -> None:
        """A slot has ended."""
        self.records += answer.records
        self.size_bytes += answer.size_bytes
        self.rounds += answer.rounds
        self.latency_ms += answer.latency_ms
        self.whole += answer.whole
        for why, count in answer.opened.items():
            self.opened[why] = self.opened.get(why, 0) + count


async def run_mirror(
    spark: SparkSession, config: Config, *, tell: Tell, stop: asyncio.Event,
    most_waves: int | None = None, wave_seconds: float | None = None,
    progress: Callable[[Totals], None] = lambda _: None,
    watch: Callable[[Driver], Coroutine[Any, Any, None]] | None = None,
) -> Totals:  # fmt: skip
    """Mirror until `stop` is set, or for `most_waves` waves.

    `progress` is called after each wave; `watch` is given the driver, and runs as long as it.
    Raises SameCluster, ApiError and ConnectionLost for what cannot work at all, and Replaced once
    other mirrors have taken all flows over.
    """
    async with AsyncExitStack() as stack:
        driver = Driver(spark, config, tell)
        stack.push_async_callback(driver.close)
        await driver.open()
        if watch is not None:
            driver.attach(watch(driver))
        seconds = wave_seconds or min(flow.number("wave.seconds") for flow in config.flows)
        await driver.run(stop, most_waves, seconds, progress)
        return driver.totals


class Driver:
    """The state of a running mirror."""

    def __init__(self, spark: SparkSession, config: Config, tell: Tell) -> None:
        self.totals = Totals()
        self.movements = Movements()
        self.flows = [FlowState(each, tell) for each in config.flows]
        self.duties: dict[str, Duties] = {}
        """Those of the flows that were opened, by name."""
        self.lived_at: dict[str, float] = {}
        """Flow -> the time (of the wall) of the newest wave in which it could be mirrored, or in
        which there was nothing to mirror; at first when the mirror began."""
        self.stopped: dict[str, int] = {}
        """Flow -> partitions that stood still in the newest wave."""
        self._replaced: set[str] = set()
        """Flows that another mirror has planned since."""
        self._duty_tasks: dict[str, asyncio.Task[None]] = {}
        self._spark = spark
        self._tell = tell
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._planned: set[str] = set()
        self._background: list[asyncio.Task[None]] = []
        self._hearts = [Heart(each, tell, _now_ms) for each in config.pairs]
        self._told: set[str] = set()

    async def open(self) -> None:
        """Connect to the clusters of all flows, and create what is missing there. One flow that
        works is enough to go on; else the first one's fault is raised."""
        faults = {each: fault for each in self.flows if (fault := await self._opened(each))}
        if len(faults) == len(self.flows):
            raise faults[self.flows[0]]
        for each, fault in faults.items():
            self._say(str(fault))
            self._background.append(asyncio.create_task(self._open_later(each)))

    async def _open_later(self, flow: FlowState) -> None:
        """Try again to open a flow until it works, while the others go on."""
        while fault := await self._opened(flow):
            self._say(str(fault))
            await asyncio.sleep(REOPEN_SECONDS)
        self._say(f"{flow.flow.name} works now.")

    async def _opened(self, flow: FlowState) -> Exception | None:
        """Open a flow and begin its duties; why that cannot be."""
        duties = Duties(flow, self._tell, _now_ms)
        try:
            await flow.open()
            await duties.open()
            await duties.tick(time.monotonic())
        except (*TROUBLE, SameCluster) as fault:
            flow.is_open = False
            return fault
        self.duties[flow.flow.name] = duties
        task = asyncio.create_task(self._keep(duties))
        self._duty_tasks[flow.flow.name] = task
        self._background.append(task)
        return None

    async def _keep(self, duties: Duties | Heart) -> None:
        """Do duties for as long as the driver lives: what waits for a cluster holds up no wave."""
        while True:
            await duties.tick(time.monotonic())
            await asyncio.sleep(TICK_SECONDS)

    def attach(self, work: Coroutine[Any, Any, None]) -> None:
        """Have something done beside the waves, until the mirror ends."""
        self._background.append(asyncio.create_task(work))

    async def close(self) -> None:
        """Disconnect."""
        for task in self._background:
            task.cancel()
        await asyncio.gather(*self._background, return_exceptions=True)
        for flow in self.flows:
            await flow.close()
        for heart in self._hearts:
            await heart.close()

    async def run(
        self, stop: asyncio.Event, most_waves: int | None, seconds: float,
        progress: Callable[[Totals], None],
    ) -> None:  # fmt: skip
        """Wave after wave."""
        self._background += [asyncio.create_task(self._keep(each)) for each in self._hearts]
        self._lived(each.flow.name for each in self.flows)
        while not stop.is_set() and (most_waves is None or self.totals.waves < most_waves):
            tasks = await self._plan()
            if not tasks:
                self._lived(self._planned)
                await self._attend(asyncio.create_task(asyncio.sleep(PAUSE_SECONDS)), stop)
                continue
            work = asyncio.to_thread(run_wave, self._spark, tasks, seconds)
            wave = asyncio.create_task(work)
            began = time.monotonic()
            await self._attend(wave, stop)
            if stop.is_set() and not wave.done():
                await self._cut(wave)
                break
            lived = self._take(wave, time.monotonic() - began)
            progress(self.totals)
            if len(self._replaced) == len(self.flows):
                raise Replaced("Another mirror has these flows now, so this one ends.")
            if not lived:
                await self._attend(asyncio.create_task(asyncio.sleep(PAUSE_SECONDS)), stop)
        await self._follow()

    async def _cut(self, wave: asyncio.Task[list[SlotAnswer]]) -> None:
        """End a wave at once; what Spark logs of its tasks' ends is no fault of theirs."""
        self.totals.cut_waves += 1
        self._spark.sparkContext.setLogLevel("OFF")
        self._spark.sparkContext.cancelAllJobs()
        with suppress(Exception):  # Spark tells that the job was cancelled
            await wave

    async def _plan(self) -> list[list[SlotWork]]:
        works: list[SlotWork] = []
        self._planned.clear()
        for each in self.flows:
            if not each.is_open:
                continue
            wanted = each.flow.number("tasks.max")
            slots = min(wanted, self._cores) if wanted else self._cores
            try:
                works += await each.plan(slots)
                self._planned.add(each.flow.name)
            except TROUBLE as trouble:
                name = each.flow.name
                self._say(f"{name}: the next wave cannot be planned: {each.told(trouble)}")
        tasks: list[list[SlotWork]] = [[] for _ in range(min(self._cores, len(works)))]
        for number, work in enumerate(works):
            tasks[number % len(tasks)].append(work)
        return tasks

    async def _attend(self, wave: asyncio.Task[object], stop: asyncio.Event) -> None:
        """Wait until the wave has ended or the mirror shall stop."""
        stopping = asyncio.create_task(stop.wait())
        try:
            waiting: list[asyncio.Task[object]] = [wave, stopping]
            waiting += self._background
            while not wave.done() and not stop.is_set():
                await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
                for task in [each for each in self._background if each.done()]:
                    self._background.remove(task)
                    waiting.remove(task)
                    task.result()  # a bug of ours ends the mirror, and is told
        finally:
            stopping.cancel()

    async def _follow(self) -> None:
        """At the end: checkpoints and syncs of what was mirrored last."""
        for each in self.duties.values():
            with suppress(*TROUBLE):
                await each.follow()

    def _lived(self, flows: Iterable[str]) -> None:
        self.lived_at |= dict.fromkeys(flows, time.time())

    def _take(self, wave: asyncio.Task[list[SlotAnswer]], seconds: float) -> bool:
        """Count what a wave did; whether a slot of it came so far that it could mirror."""
        self.totals.waves += 1
        try:
            answers = wave.result()
        except Exception as fault:  # whatever Spark raises: the next wave tries again
            self.totals.failed_waves += 1
            self._say(f"A wave failed, and the next one goes on: {_first_line(fault)}")
            return False
        ends = {each.flow.name: (each.flow.source, each.flow.target) for each in self.flows}
        self.movements.wave_ended(
            ((*ends[answer.flow], each) for answer in answers for each in answer.moved), seconds
        )
        idle = self._planned - {each.flow for each in answers}
        self._lived(idle | {each.flow for each in answers if each.is_live})
        self.stopped = dict.fromkeys(ends, 0)
        for answer in answers:
            self.totals.add(answer)
            self.stopped[answer.flow] += len(answer.faults)
            for sentence in (*answer.notes, *answer.faults.values()):
                self._say(sentence)
        for name in sorted({each.flow for each in answers if each.is_superseded}):
            self._leave(name)
        return any(each.is_live for each in answers)

    def _leave(self, name: str) -> None:
        """Leave a flow to the mirror that planned it since: each plan of ours would fence its
        producers."""
        flow = next(each for each in self.flows if each.flow.name == name)
        flow.is_open = False
        self._replaced.add(name)
        self.duties.pop(name, None)
        if task := self._duty_tasks.pop(name, None):
            self._background.remove(task)
            task.cancel()
        self._say(
            f"{name}: another mirror has this flow now, and this one leaves it. Only one of them "
            "should run; whichever is started last has the flow."
        )

    def _say(self, sentence: str) -> None:
        """Tell something once, until it is no longer so."""
        if sentence not in self._told:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told.add(sentence)
            self._tell(sentence)


def _first_line(fault: Exception) -> str:
    return str(fault).strip().split("\n")[0] or type(fault).__name__
