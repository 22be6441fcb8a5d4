"""The shell around the group coordinator: its timer, and the work that it does in slices.

What: one timer of the loop for all deadlines of groups; slices of a few milliseconds of what takes
longer than a step may, with cold bytes warmed in a thread; the rounds of expiry. Rule kept: the
coordinator is told the time, and what follows from it is settled like any other step. Not here:
what groups decide.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from anabranch.core.api.context import Broker
from anabranch.core.coordination.groups import offsets
from anabranch.core.coordination.sliced import Sliced, begun
from anabranch.core.errors import StorageFault
from anabranch.server.clocks import wall_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.restarts import restarted

LOG = logger("groups")

SLICE_S = 0.005
"""What work in slices may take from the loop before others have their turn."""


class GroupShell:
    """Time and disk for `broker.groups`. `step` begins a step, `settle` ends it."""

    def __init__(
        self, broker: Broker, step: Callable[[], None], settle: Callable[[], None]
    ) -> None:
        self._broker = broker
        self._step = step
        self._settle = settle
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = 0
        self._loading: asyncio.Task[None] | None = None
        self._expiring: asyncio.Task[None] | None = None

    def start(self) -> None:
        """Begin to look for expired offsets."""
        self._expiring = asyncio.get_running_loop().create_task(
            restarted(self._expire, "the expiry of offsets", LOG)
        )

    def stop(self) -> None:
        """No more timers, no more reading."""
        for each in (self._timer, self._loading, self._expiring):
            if each is not None:
                each.cancel()

    def load(self) -> None:
        """Do what waits to be done in slices, unless that is under way."""
        if self._loading is None or self._loading.done():
            self._loading = asyncio.get_running_loop().create_task(self._load())

    def arm(self) -> None:
        """Ring at the coordinators' next deadline; called when it may be an earlier one."""
        due_ms = self._broker.groups.timers.next_due_ms()
        if due_ms is None or (self._timer is not None and due_ms >= self._due_ms):
            return
        if self._timer is not None:
            self._timer.cancel()
        self._due_ms = due_ms
        seconds = max(0, due_ms - self._broker.steady_ms) / 1000
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self._step()
        self._broker.groups.tick(wall_ms())
        self._settle()

    async def _load(self) -> None:
        while self._broker.mailbox.to_load:
            work = begun(self._broker.mailbox)
            try:
                await self._work(work)
            except Exception as fault:  # whatever it is: what waits behind it has its turn
                tell_unexpected(fault, "work of a coordinator")
                LOG.error(
                    "a coordinator's partition cannot be loaded",
                    partition=work.place,
                    why=str(fault),
                )
                if isinstance(fault, StorageFault):
                    work.failed(fault)
            self._step()
            if work.end(wall_ms()) and work.skipped_records:
                LOG.warning(
                    "records that this version does not know were skipped",
                    partition=work.place, records=work.skipped_records,
                )  # fmt: skip
            self._settle()

    async def _work(self, work: Sliced) -> None:
        until = time.perf_counter() + SLICE_S
        for cold in work.steps(wall_ms()):
            if cold is not None:
                await asyncio.to_thread(cold.warm)
            elif time.perf_counter() >= until:
                await asyncio.sleep(0)
                until = time.perf_counter() + SLICE_S

    async def _expire(self) -> None:
        while True:
            interval_ms = self._broker.config.offsets_retention_check_interval_ms
            await asyncio.sleep(interval_ms / 1000)
            self._step()
            offsets.expire(self._broker.groups, wall_ms())
            self._settle()
