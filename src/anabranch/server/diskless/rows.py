"""The shell around the active controller's keeping of diskless rows: its calls and its timer.

What: `began`, `resigned` and `follow` are told to the machine
(`core/controller/diskless/rows.py`); its calls are made one at a time, in tasks, once the stores
are `opened`. Not here: what is called for.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any

from anabranch.core.controller.diskless.rows import (
    CreateRows,
    Effect,
    ListRemoteTopics,
    ListTopics,
    LogRows,
    LookAtSeals,
    TakeControl,
)
from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.remote.facts import RemoteFacts
from anabranch.core.tiering.seals import Seals
from anabranch.core.types import NEVER_MS
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("diskless")


class LogRowsShell:
    """One node's keeping of rows; it does something while the node is the active controller."""

    def __init__(self, *, has_remote: bool = False) -> None:
        self.machine = LogRows(has_remote=has_remote)
        self._remote: RemoteFacts | None = None
        self._seals: Seals | None = None
        self._coordinator: Coordinator | None = None
        """None until coordinator and store were tried: a wrong one must get no rows."""
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._said = ""

    def opened(
        self,
        coordinator: Coordinator,
        remote: RemoteFacts | None = None,
        seals: Seals | None = None,
    ) -> None:
        """Coordinator and store can be used."""
        self._coordinator, self._remote, self._seals = coordinator, remote, seals
        self._go_on()

    def began(self, epoch: int, end_offset: int) -> None:
        """This node is the active controller."""
        self.machine.began(epoch, end_offset)
        self._go_on()

    def resigned(self) -> None:
        """It is not any more."""
        self.machine.resigned()

    def follow(self, image: MetadataImage, delta: MetadataDelta) -> None:
        """Committed metadata."""
        self.machine.follow(image, delta)
        self._go_on()

    async def stop(self) -> None:
        """Make no more calls."""
        self.machine.resigned()
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    def _go_on(self) -> None:
        if self._coordinator is None:
            return
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for effect in self.machine.take_effects(steady_ms()):
            self._task = asyncio.get_running_loop().create_task(self._make(effect))
        due_ms = self.machine.next_tick_ms
        if due_ms != NEVER_MS:
            seconds = max(0, due_ms - steady_ms()) / 1000 + 0.001
            self._timer = asyncio.get_running_loop().call_later(seconds, self._go_on)

    async def _make(self, effect: Effect) -> None:
        result: Any
        try:
            result = await self._call(effect)
        except StorageFault as fault:
            result = fault
        except Exception as fault:  # a call that is not ended would hold up all others
            tell_unexpected(fault, type(effect).__name__)
            LOG.error("a call failed", call=type(effect).__name__, fault=repr(fault))
            result = StorageFault(f"{type(fault).__name__}: {fault}")
        self.machine.answered(effect, result, steady_ms())
        if self.machine.trouble != self._said:
            self._said = self.machine.trouble
            if self._said:
                LOG.warning(
                    "rows of topics are not kept in the coordinator, and no topic becomes diskless",
                    why=self._said,
                )
        self._go_on()

    def _call(self, effect: Effect) -> Awaitable[Any]:
        coordinator, remote = self._coordinator, self._remote
        assert coordinator is not None
        if isinstance(effect, TakeControl):
            return coordinator.take_control(effect.epoch)
        if isinstance(effect, ListTopics):
            return coordinator.topics(effect.after, effect.limit)
        if isinstance(effect, ListRemoteTopics):
            assert remote is not None
            return remote.topics(effect.after, effect.limit)
        if isinstance(effect, CreateRows):
            return coordinator.create_logs(effect.epoch, effect.new)
        if isinstance(effect, LookAtSeals):
            assert self._seals is not None
            return self._seals.progress(effect.topic_id, effect.migration, effect.broker_ids)
        return coordinator.delete_topics(effect.epoch, effect.topic_ids)
