"""Following the active controller over its listener: performs what `core.metadata.following` wants.

What: sends its questions, one at a time, and hands back what came; writes snapshots of the copy in
a thread; hands images to those who follow them. Nothing here decides.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from anabranch.core.errors import ApiError, ProtocolError, StorageFault
from anabranch.core.log.files import DiskFull
from anabranch.core.metadata.following.copy import MetadataCopy, image_parts
from anabranch.core.metadata.following.effects import (
    Act,
    Begin,
    Event,
    Publish,
    Question,
    Registered,
    SnapshotFailed,
    SnapshotWritten,
    Unanswered,
)
from anabranch.core.metadata.following.following import Following
from anabranch.core.metadata.following.performer import Performer
from anabranch.core.metadata.following.requests import PIECE_BYTES
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.settings.broker import BrokerConfig
from anabranch.server.clocks import steady_ms, wall_ms
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.gentle import in_parts
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected

LOG = logger("metadata")


class MetadataFollower(Performer):
    """Keeps a node's copy and image up with the active controller."""

    def __init__(
        self,
        copy: MetadataCopy,
        channel: ControllerChannel,
        cluster_id: str,
        node_id: int,
        config: BrokerConfig,
        on_stop: Callable[[str], None],
        *,
        is_broker: bool = True,
        piece_bytes: int = PIECE_BYTES,
    ) -> None:
        self.copy = copy
        self.on_stop = on_stop
        self.on_image: Callable[[MetadataImage, MetadataDelta], None] = _nothing
        """Called with each image: for the controller of this node."""
        self.on_act: Callable[[Act], None] = _nothing
        """Called with each image that the broker follows."""
        self.on_met: Callable[[], None] = _nothing
        """Called when an active controller answered over a new connection."""
        self.make_room: Callable[[DiskFull], bool] = lambda _fault: False
        """Called when the copy's disk is full; whether it is worth trying again."""
        self._following = Following(
            copy, cluster_id, node_id, config, steady_ms(),
            is_broker=is_broker, piece_bytes=piece_bytes,
        )  # fmt: skip
        self._channel = channel.another("metadata")
        self._question: Question | None = None
        self._leaves = False
        self._task: asyncio.Task[None] | None = None
        self._snapshot: asyncio.Task[None] | None = None

    async def start(self) -> None:
        """Publish what the copy holds and begin to follow."""
        self._step(Begin())
        self._task = asyncio.create_task(self._follow())

    async def stop(self) -> None:
        """End the loop and close the copy."""
        tasks = [task for task in (self._task, self._snapshot) if task is not None]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.close()
        try:
            self.copy.close()
        except StorageFault as fault:  # the next start reads it through, as after a kill
            LOG.error("the copy of the metadata was not closed cleanly", why=str(fault))

    def registered(self, broker_epoch: int) -> None:
        """The controller gave this process its broker epoch."""
        self._step(Registered(broker_epoch))

    async def _follow(self) -> None:
        try:
            while self._question is not None or self._following.is_waiting:
                if self._leaves:
                    self._leaves = False
                    await self._channel.rotate()
                await self._go_on()
        except Exception as fault:  # else it would go on with what it knew, and lead by it
            tell_unexpected(fault, "following the metadata")
            self.on_stop(f"following the metadata failed: {type(fault).__name__}: {fault}")

    async def _go_on(self) -> None:
        question, self._question = self._question, None
        if question is not None:
            self._step(await self._answer(question))
            return
        await asyncio.sleep(max(0, self._following.next_tick_ms - steady_ms()) / 1000)
        self._following.tick(steady_ms())
        self._perform()

    async def _answer(self, question: Question) -> Event:
        try:
            response = await self._channel.send(question.request)
        except (ApiError, ProtocolError) as fault:
            return Unanswered(str(fault))
        return question.answered(response, self._channel.generation)

    def _step(self, event: Event) -> None:
        self._following.step(event, steady_ms(), wall_ms())
        self._perform()

    # See Performer.

    def _ask(self, question: Question) -> None:
        self._question = question

    def _leave(self) -> None:
        self._leaves = True

    def _publish(self, effect: Publish) -> None:
        self.on_image(effect.image, effect.delta)

    def _act(self, effect: Act) -> None:
        self.on_act(effect)

    def _met(self) -> None:
        self.on_met()

    def _make_room(self, fault: DiskFull) -> bool:
        return self.make_room(fault)

    def _complain(self, what: str, why: str) -> None:
        LOG.warning(what, why=why)

    def _stop(self, sentence: str) -> None:
        self.on_stop(sentence)

    def _write_snapshot(self, image: MetadataImage) -> None:
        self._snapshot = asyncio.create_task(self._write(image))

    async def _write(self, image: MetadataImage) -> None:
        """In a thread: the image does not change under it."""
        try:
            parts = await in_parts(image_parts(image, wall_ms()))
            await asyncio.to_thread(self.copy.store_snapshot, image, b"".join(parts))
        except StorageFault as fault:
            self._step(SnapshotFailed(str(fault)))
        else:
            self._step(SnapshotWritten())


def _nothing(*_what: object) -> None:
    """Nobody follows."""
