"""Telling the controller in which folder each replica lies, on real connections.

What: sends what `core/broker/directory_assignments.py` wants told, gives it the answers, and wakes
it when it is to be told again. Nothing is decided here.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping

from anabranch.core.api.context import Broker
from anabranch.core.broker.directory_assignments import DirectoryAssignments, Tell
from anabranch.core.broker.hosting.effects import TellHosted, TellUnusable
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.types import NEVER_MS
from anabranch.server.clocks import steady_ms
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("folders")


class AssignmentShell:
    """What one broker has to tell, and the request that is under way."""

    def __init__(
        self, broker: Broker, channel: ControllerChannel, directories: Mapping[str, bytes]
    ) -> None:
        self.machine = DirectoryAssignments(broker, directories)
        self._channel = channel.another("folders")
        self._task: asyncio.Task[None] | None = None
        self._timer: asyncio.Handle | None = None
        self._is_stopped = False

    def tell(self, effect: TellHosted | TellUnusable) -> None:
        """A replica was opened or made, or some may not be able to serve."""
        self.machine.tell(effect)
        self._wake()

    def follow(self, image: MetadataImage, delta: MetadataDelta | None) -> None:
        """A new image, which is not acted on yet."""
        self.machine.follow(image, delta)
        self._wake()

    async def stop(self) -> None:
        """Let go of what is under way."""
        self._is_stopped = True
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def _wake(self) -> None:
        """Look soon, not now: what is noted in one go is told in one request."""
        if self._timer is None and not self._is_stopped:
            self._timer = asyncio.get_running_loop().call_soon(self._perform)

    def _perform(self) -> None:
        self._timer, now_ms = None, steady_ms()
        if self._is_stopped:
            return
        for tell in self.machine.take_effects(now_ms):
            self._task = asyncio.get_running_loop().create_task(self._send(tell))
        due_ms = self.machine.next_tick_ms
        if due_ms != NEVER_MS:
            seconds = max(0, due_ms - now_ms) / 1000
            self._timer = asyncio.get_running_loop().call_later(seconds, self._perform)

    async def _send(self, tell: Tell) -> None:
        answer = None
        try:
            answer = await self._channel.send(tell.request)
        except Exception as fault:
            tell_unexpected(fault, "recording the folders of replicas")
            why = str(fault) or type(fault).__name__
            LOG.warning("the folders of replicas were not recorded", why=why)
        for place, code in self.machine.answered(tell, answer, steady_ms()):
            LOG.warning("the folder of a replica was not recorded", partition=place, code=code.name)
        if self._timer is None:
            self._perform()
