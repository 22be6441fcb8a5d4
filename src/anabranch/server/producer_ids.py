"""Producer ids of one broker: handed out one by one from blocks that the controller grants.

What: `take` gives the next id or None, and asks for the next block before the present one is used
up. Source: KIP-730. Rule kept: an id is handed out once; a block that was granted while the broker
registered anew is good, for blocks never overlap.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

from anabranch.core.api.context import PRODUCER_IDS
from anabranch.core.errors import ErrorCode
from anabranch.server.logs import logger

LOG = logger("producer-ids")
PREFETCH_LEFT = 100
"""Ids left in a block when the next one is asked for (a tenth of Kafka's block of 1,000)."""

ASK_AGAIN_SECONDS = 0.1


class Channel(Protocol):
    """What sends a request to the active controller."""

    async def send(self, message: Any, version: int | None = None) -> Any:
        """The controller's answer."""


class ProducerIds:
    """The block in use, the block behind it, and the request for the next one."""

    def __init__(
        self,
        channel: Channel,
        broker: Callable[[], tuple[int, int]],
        wake: Callable[[str], None],
    ) -> None:
        self._channel = channel
        self._broker = broker
        self._wake = wake
        self._next = 0
        self._end = 0
        self._following: tuple[int, int] | None = None
        self._asking: asyncio.Task[None] | None = None

    def take(self) -> int | None:
        """The next id; None when a block must come first (the waiter is woken then)."""
        if self._next == self._end and self._following is not None:
            self._next, self._end = self._following
            self._following = None
        if self._end - self._next <= PREFETCH_LEFT and self._following is None:
            self._ask()
        if self._next == self._end:
            return None
        self._next += 1
        return self._next - 1

    def stop(self) -> None:
        """Ask no more."""
        if self._asking is not None:
            self._asking.cancel()

    def _ask(self) -> None:
        if self._asking is None or self._asking.done():
            self._asking = asyncio.get_running_loop().create_task(self._ask_until_granted())

    async def _ask_until_granted(self) -> None:
        while self._following is None:
            try:
                self._following = await self._granted()
            except Exception as fault:
                LOG.debug("no block of producer ids yet", why=str(fault))
            if self._following is None:
                await asyncio.sleep(ASK_AGAIN_SECONDS)
        self._wake(PRODUCER_IDS)

    async def _granted(self) -> tuple[int, int] | None:
        from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest

        broker_id, broker_epoch = self._broker()
        request = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        answer = await self._channel.send(request)
        if answer.error_code != ErrorCode.NONE:
            return None
        return answer.producer_id_start, answer.producer_id_start + answer.producer_id_len
