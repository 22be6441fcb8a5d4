"""A broker's registration on real connections: what the machine asks for is sent.

What: performs the effects of `core/broker/registration`, gives it the answers, and wakes it when
something is due. Why apart: what is said to the controller, when, and what follows from an answer
is decided there alone. Rule kept: an error that nothing foresaw stops the process; it would be
fenced for ever else, and say nothing.
"""

from __future__ import annotations

import asyncio
import uuid
from collections.abc import Callable
from typing import Any

from anabranch.core.broker.registration import registration as machine
from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    ControllerFound,
    Effect,
    Event,
    FoldersChanged,
    GiveUp,
    Left,
    LogsOpen,
    MetadataMoved,
    Registered,
    Serve,
    ShutDown,
    Start,
    Unanswered,
)
from anabranch.core.broker.registration.requests import BrokerView, Identity
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.incarnations import FolderNotes
from anabranch.core.types import UNKNOWN_BROKER_EPOCH
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger
from anabranch.server.machine_driver import Timed, say
from anabranch.server.own_faults import tell_unexpected

LOG = logger("registration")


class Registration:
    """One broker incarnation's session. `on_registered` is told each broker epoch."""

    def __init__(
        self,
        channel: ControllerChannel,
        identity: Identity,
        standing: BrokerView,
        times: machine.Times,
        *,
        notes: FolderNotes | None = None,
        previous_broker_epoch: int = UNKNOWN_BROKER_EPOCH,
        on_registered: Callable[[int], None] = lambda epoch: None,
        on_stop: Callable[[str], None] = LOG.error,
    ) -> None:
        self.machine = machine.Registration(
            identity,
            standing,
            times,
            notes=notes,
            previous_broker_epoch=previous_broker_epoch,
            unreachable=lambda: self._channel.obstacle,
        )
        self._channel = channel.another("heartbeat")
        self._on_registered = on_registered
        self._on_stop = on_stop
        self._asking: set[asyncio.Task[None]] = set()
        loop = asyncio.get_running_loop()
        self._registered: asyncio.Future[int] = loop.create_future()
        self._serves = asyncio.Event()
        self._left = asyncio.Event()
        self._timed = Timed(self.machine, self._do, self._failed)

    @property
    def broker_epoch(self) -> int:
        """The epoch of this registration, -1 before there is one."""
        return self.machine.broker_epoch

    async def register(self) -> int:
        """Register and begin to heartbeat; the broker epoch. Raises ApiError when refused, or when
        it took longer than `initial.broker.registration.timeout.ms`."""
        self._timed.step(Start())
        return await self._registered

    async def unfenced(self) -> None:
        """Ask to be let in, now that everything hosted here is open; return when this broker's own
        metadata shows it unfenced."""
        self._timed.step(LogsOpen())
        await self._serves.wait()

    async def shutdown(self) -> None:
        """Controlled shutdown: returns when the controller has let go, or does not answer."""
        self._timed.step(ShutDown())
        if not self.machine.is_ended:
            await self._left.wait()
        self._timed.stop()
        asking = tuple(self._asking)
        for task in asking:
            task.cancel()
        await asyncio.gather(*asking, return_exceptions=True)
        await self._channel.close()

    # News for the machine.

    def metadata_moved(self) -> None:
        """The broker acts on newer metadata."""
        self._timed.step(MetadataMoved())

    def folders_changed(self) -> None:
        """A log folder failed, became full, or has room again."""
        self._timed.step(FoldersChanged())

    def controller_found(self) -> None:
        """Another controller may be active: it has not heard of this broker yet, and notices by the
        next heartbeat's connection if this process ends."""
        self._timed.step(ControllerFound())

    # What the machine wants done.

    def _do(self, effect: Effect) -> None:
        if isinstance(effect, Ask):
            task = asyncio.get_running_loop().create_task(self._ask(effect))
            self._asking.add(task)
            task.add_done_callback(self._asking.discard)
        elif isinstance(effect, Registered):
            LOG.info("registered", broker=self.machine.identity.node_id, epoch=effect.broker_epoch)
            self._on_registered(effect.broker_epoch)
            if not self._registered.done():
                self._registered.set_result(effect.broker_epoch)
        elif isinstance(effect, Serve):
            self._serves.set()
        elif isinstance(effect, Left):
            if effect.why:
                LOG.warning("stopped without the controller's permission", why=effect.why)
            self._left.set()
        elif isinstance(effect, GiveUp):
            self._give_up(effect)
        else:
            say(LOG, effect)

    async def _ask(self, ask: Ask) -> None:
        event: Event
        try:
            event = Answered(
                ask, await self._channel.send(ask.request, patience_ms=ask.patience_ms)
            )
        except ApiError as fault:
            if fault.code != ErrorCode.NOT_CONTROLLER:
                self._failed(fault)
                return
            event = Unanswered(ask, fault.message)
        except Exception as fault:
            tell_unexpected(fault, "registering")
            self._failed(fault)
            return
        self._timed.step(event)

    def _give_up(self, effect: GiveUp) -> None:
        self._left.set()
        if self._registered.done():
            self._on_stop(effect.sentence)
        else:
            self._registered.set_exception(ApiError(effect.code, effect.sentence))

    def _failed(self, fault: Exception) -> None:
        self._left.set()
        if isinstance(fault, ApiError):
            self._give_up(GiveUp(fault.code, fault.message))
            return
        sentence = f"heartbeats failed: {type(fault).__name__}: {fault}"
        self._give_up(GiveUp(ErrorCode.UNKNOWN_SERVER_ERROR, sentence))


def new_identity(**known: Any) -> Identity:
    """Who this process is: each has an incarnation id of its own."""
    return Identity(incarnation_id=uuid.uuid4().bytes, **known)
