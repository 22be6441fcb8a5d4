"""A node's controller makes itself known: it registers with the active one, if that is not known.

What: looks at each new image of the metadata; when this incarnation is not in it, the active
controller is told, until it is. Why: every node can then name all controllers, and no feature is
raised to a level that one of them lacks. Rules kept: a controller that lacks a level which the
cluster uses stops with one sentence; one whose id another process takes says so, and does not
contend with it for every change. Source: KIP-919. Not here: what is decided
(`core/controller/brokers/controllers.py`).
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable, Mapping

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.features import (
    CONTROLLERS_SINCE,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
    Feature,
    Listener,
)
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger

LOG = logger("controller")
RETRY_S = 0.5
TWIN_PAUSE_S = 30.0
"""Pause after another process registered under the own id: two would replace each other at once."""


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
        self._node_id = node_id
        self._endpoints = endpoints
        self._on_stop = on_stop
        self._image = MetadataImage.empty()
        self._was_known = False
        self._task: asyncio.Task[None] | None = None

    def follow(self, image: MetadataImage) -> None:
        """A new image: register if it asks for that."""
        self._image = image
        known = image.controllers.get(self._node_id)
        if known is not None and known.incarnation_id == self.incarnation_id:
            self._was_known = True
        if self._is_due() and (self._task is None or self._task.done()):
            self._task = asyncio.get_running_loop().create_task(self._register())

    async def stop(self) -> None:
        """Let go of what is under way."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        await self._channel.close()

    def _is_due(self) -> bool:
        if self._image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
            return False
        known = self._image.controllers.get(self._node_id)
        return known is None or known.incarnation_id != self.incarnation_id

    async def _register(self) -> None:
        while self._is_due():
            if self._was_known and self._node_id in self._image.controllers:
                LOG.error("another process is this controller; run one process a node.id")
                self._was_known = False
                await asyncio.sleep(TWIN_PAUSE_S)
                continue
            try:
                answer: ControllerRegistrationResponse = await self._channel.send(self._request())
            except ApiError as fault:
                LOG.warning("the controller is not registered", why=fault.message)
            else:
                if answer.error_code:
                    self._refused(ErrorCode(answer.error_code), answer.error_message or "")
                    return
            await asyncio.sleep(RETRY_S)

    def _refused(self, code: ErrorCode, why: str) -> None:
        if code == ErrorCode.UNSUPPORTED_VERSION and self._is_due():
            self._on_stop(
                f"controller {self._node_id} is too old for this cluster: {why} Install a version "
                "that supports it"
            )
            return
        LOG.warning("the controller is not registered", code=code.name, why=why)

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port)
                for name, (host, port) in self._endpoints.items()
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
        )
