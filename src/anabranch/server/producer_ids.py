"""Producer ids of one broker on real connections: sends what the machine asks for.

What: asks the active controller for blocks of ids, until one is granted, and wakes who waits for an
id. Not here: when a block is asked for, and which id is next (`core/broker/producer_ids.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.api.context import PRODUCER_IDS
from anabranch.core.broker.producer_ids import ASK_AGAIN_MS, ProducerIds
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

if TYPE_CHECKING:
    from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

LOG = logger("producer-ids")


class Channel(Protocol):
    """What sends a request to the active controller."""

    async def send(self, message: Any, version: int | None = None) -> Any:
        """The controller's answer."""


class ProducerIdShell:
    """The requests of one broker for blocks of ids. `broker` gives its id and epoch."""

    def __init__(
        self,
        channel: Channel,
        broker: Callable[[], tuple[int, int]],
        wake: Callable[[str], None],
    ) -> None:
        self.machine = ProducerIds(broker, self._send)
        self._channel = channel
        self._wake = wake
        self._asking: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    def _send(self, request: AllocateProducerIdsRequest) -> None:
        self._asking = asyncio.get_running_loop().create_task(self._ask(request))

    async def _ask(self, request: AllocateProducerIdsRequest) -> None:
        answer = None
        try:
            answer = await self._channel.send(request)
        except Exception as fault:
            tell_unexpected(fault, "asking for producer ids")
            LOG.debug("no block of producer ids yet", why=str(fault))
        if self.machine.answered(answer):
            self._wake(PRODUCER_IDS)
            return
        await asyncio.sleep(ASK_AGAIN_MS / 1000)
        self.machine.ask()
