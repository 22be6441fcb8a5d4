"""A node's controller registers on a real connection: what the machine asks for is sent.

What: performs the effects of `core/broker/registration/enrolment.py`, which decides when the active
controller is told of this one, and what an answer means.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping

from anabranch.core.broker.registration import enrolment as machine
from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    Effect,
    GiveUp,
    MetadataMoved,
    Unanswered,
)
from anabranch.core.errors import ApiError
from anabranch.core.metadata.image import MetadataImage
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger
from anabranch.server.machine_driver import Timed, say

LOG = logger("controller")


class Enrolment:
    """One controller's registration. `endpoints` are host and port by listener name."""

    def __init__(
        self,
        channel: ControllerChannel,
        node_id: int,
        endpoints: Mapping[str, tuple[str, int]],
        on_stop: Callable[[str], None],
    ) -> None:
        self.incarnation_id = uuid.uuid4().bytes
        self._channel = channel.another("enrolment")
        self._on_stop = on_stop
        self._image = MetadataImage.empty()
        self._asking: asyncio.Task[None] | None = None
        made = machine.Enrolment(node_id, self.incarnation_id, endpoints, lambda: self._image)
        self._timed = Timed(made, self._do, self._failed)

    def follow(self, image: MetadataImage) -> None:
        """A new image: register if it asks for that."""
        self._image = image
        self._timed.step(MetadataMoved())

    async def stop(self) -> None:
        """Let go of what is under way."""
        self._timed.stop()
        if self._asking is not None:
            self._asking.cancel()
            await asyncio.gather(self._asking, return_exceptions=True)
        await self._channel.close()

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Ask):
            self._asking = asyncio.get_running_loop().create_task(self._ask(effect))
        elif isinstance(effect, GiveUp):
            self._on_stop(effect.sentence)
        else:
            say(LOG, effect)

    async def _ask(self, ask: Ask) -> None:
        try:
            self._timed.step(Answered(ask, await self._channel.send(ask.request)))
        except ApiError as fault:
            self._timed.step(Unanswered(ask, fault.message))

    def _failed(self, fault: Exception) -> None:
        LOG.error("the controller is not registered", why=f"{type(fault).__name__}: {fault}")
