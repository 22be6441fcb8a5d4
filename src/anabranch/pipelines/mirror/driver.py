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
from collections.abc import Callable
from contextlib import AsyncExitStack, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from anabranch.core.mirror.config import Config
from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.duties import TROUBLE, Duties, Heart
from anabranch.pipelines.mirror.task import run_wave
from anabranch.pipelines.mirror.work import SlotAnswer, SlotWork

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TICK_SECONDS = 0.25
PAUSE_SECONDS = 1.0
"""Before the next wave, after one that failed or had nothing to do."""
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
) -> Totals:  # fmt: skip
    """Mirror until `stop` is set, or for `most_waves` waves.

    Raises SameCluster, ApiError and ConnectionLost for what cannot work at all.
    """
    async with AsyncExitStack() as stack:
        driver = Driver(spark, config, tell)
        stack.push_async_callback(driver.close)
        await driver.open()
        seconds = wave_seconds or min(flow.number("wave.seconds") for flow in config.flows)
        await driver.run(stop, most_waves, seconds)
        return driver.totals


class Driver:
    """The state of a running mirror."""

    def __init__(self, spark: SparkSession, config: Config, tell: Tell) -> None:
        self.totals = Totals()
        self._spark = spark
        self._tell = tell
        self._cores = max(1, spark.sparkContext.defaultParallelism)
        self._flows = [FlowState(each, tell) for each in config.flows]
        self._duties = [Duties(each, tell, _now_ms) for each in self._flows]
        self._hearts = [Heart(each, tell, _now_ms) for each in config.pairs]
        self._told: set[str] = set()

    async def open(self) -> None:
        """Connect to all clusters, and create what is missing there."""
        for flow, duties in zip(self._flows, self._duties, strict=True):
            await flow.open()
            await duties.open()

    async def close(self) -> None:
        """Disconnect."""
        for flow in self._flows:
            await flow.close()
        for heart in self._hearts:
            await heart.close()

    async def run(self, stop: asyncio.Event, most_waves: int | None, seconds: float) -> None:
        """Wave after wave."""
        await self._tick()
        while not stop.is_set() and (most_waves is None or self.totals.waves < most_waves):
            tasks = await self._plan()
            if not tasks:
                await self._attend(asyncio.create_task(asyncio.sleep(PAUSE_SECONDS)), stop)
                continue
            work = asyncio.to_thread(run_wave, self._spark, tasks, seconds)
            wave = asyncio.create_task(work)
            await self._attend(wave, stop)
            if stop.is_set() and not wave.done():
                self._spark.sparkContext.cancelAllJobs()
                with suppress(Exception):  # Spark tells that the job was cancelled
                    await wave
                return
            self._take(wave)
        await self._follow()

    async def _plan(self) -> list[list[SlotWork]]:
        works: list[SlotWork] = []
        for each in self._flows:
            wanted = each.flow.number("tasks.max")
            slots = min(wanted, self._cores) if wanted else self._cores
            try:
                works += await each.plan(slots)
            except TROUBLE as fault:
                self._say(f"{each.flow.name}: the next wave cannot be planned: {fault}")
        tasks: list[list[SlotWork]] = [[] for _ in range(min(self._cores, len(works)))]
        for number, work in enumerate(works):
            tasks[number % len(tasks)].append(work)
        return tasks

    async def _attend(self, wave: asyncio.Task[object], stop: asyncio.Event) -> None:
        """Do the duties until the wave has ended or the mirror shall stop."""
        stopping = asyncio.create_task(stop.wait())
        try:
            while not wave.done() and not stop.is_set():
                await self._tick()
                await asyncio.wait(
                    [wave, stopping], timeout=TICK_SECONDS, return_when=asyncio.FIRST_COMPLETED
                )
        finally:
            stopping.cancel()

    async def _tick(self) -> None:
        now = time.monotonic()
        for duties in self._duties:
            await duties.tick(now)
        for heart in self._hearts:
            await heart.tick(now)

    async def _follow(self) -> None:
        """At the end: checkpoints and syncs of what was mirrored last."""
        for each in self._duties:
            with suppress(*TROUBLE):
                await each.follow()

    def _take(self, wave: asyncio.Task[list[SlotAnswer]]) -> None:
        self.totals.waves += 1
        try:
            answers = wave.result()
        except Exception as fault:  # whatever Spark raises: the next wave tries again
            self.totals.failed_waves += 1
            self._say(f"A wave failed, and the next one goes on: {_first_line(fault)}")
            return
        for answer in answers:
            self.totals.add(answer)
            for sentence in (*answer.notes, *answer.faults.values()):
                self._say(sentence)

    def _say(self, sentence: str) -> None:
        """Tell something once, until it is no longer so."""
        if sentence not in self._told:
            if len(self._told) >= MOST_TOLD:
                self._told.clear()
            self._told.add(sentence)
            self._tell(sentence)


def _first_line(fault: Exception) -> str:
    return str(fault).strip().split("\n")[0] or type(fault).__name__
