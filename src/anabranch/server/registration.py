"""A broker's life with its controller: register, heartbeat, leave.

What: registration with a fresh incarnation id, heartbeats (every `broker.heartbeat.interval.ms`, at
once to another controller, and every 10 ms from when it asks to be let in until it is), and the
controlled shutdown. Rules kept: the broker says how far it has read the metadata, so that it is let
in only when it knows of its own registration; it wants to stay fenced while it opens its logs, so
that it never leads what it cannot serve yet. When another incarnation took its place it stops. The
epoch of the last clean shutdown, if every folder says the same, is shown at registration, so that
the controller knows that nothing was lost. Source: KIP-631, KIP-966.
The states themselves are decided in `core/controller/brokers/lifecycle.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import uuid
from collections.abc import Callable, Sequence

from anabranch.core.errors import ApiError, ErrorCode, TooOld
from anabranch.core.log.incarnations import UNKNOWN_EPOCH, FolderNotes
from anabranch.core.metadata.features import SUPPORTED_FEATURES
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import check_supported
from anabranch.core.wire.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from anabranch.core.wire.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
    Feature,
    Listener,
)
from anabranch.core.wire.own_fields import FullDirectories, tagged
from anabranch.server.clocks import steady_ms
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger

LOG = logger("registration")
HEARTBEAT_MS = 2000
"""Kafka's default of broker.heartbeat.interval.ms."""
STARTING_MS = 10
RETRY_MS = 100
REGISTRATION_TIMEOUT_MS = 60_000
"""Kafka's default of initial.broker.registration.timeout.ms."""
FOLDER_FAILURE_MS = 30_000
"""Kafka's default of log.dir.failure.timeout.ms."""
SHUTDOWN_TIMEOUT_S = 10.0
"""A controller that is gone must not keep a broker from stopping."""
DUPLICATES = frozenset((ErrorCode.DUPLICATE_BROKER_REGISTRATION,))
"""Worth waiting for at start: the other one may be this node's own ghost, whose session runs out.
Later it is not: another process took this node's place."""


class Registration:
    """One broker incarnation's session."""

    def __init__(
        self,
        channel: ControllerChannel,
        *,
        node_id: int,
        cluster_id: str,
        directory_ids: Sequence[bytes],
        endpoints: Sequence[tuple[str, str, int]],
        rack: str | None,
        image: Callable[[], MetadataImage],
        notes: FolderNotes | None = None,
        previous_broker_epoch: int = UNKNOWN_EPOCH,
        heartbeat_ms: int = HEARTBEAT_MS,
        registration_timeout_ms: int = REGISTRATION_TIMEOUT_MS,
        failed_directories: Callable[[], Sequence[bytes]] = tuple,
        full_directories: Callable[[], Sequence[bytes]] = tuple,
        folder_failure_ms: int = FOLDER_FAILURE_MS,
        on_stop: Callable[[str], None] | None = None,
    ) -> None:
        self.node_id = node_id
        self.cluster_id = cluster_id
        self.incarnation_id = uuid.uuid4().bytes
        self.broker_epoch = -1
        self._channel = channel.another("heartbeat")
        self._directory_ids = [bytes(each) for each in directory_ids]
        self._endpoints = list(endpoints)
        self._rack = rack
        self._image = image
        self._notes = notes
        self._previous_epoch = previous_broker_epoch
        self._heartbeat_ms = heartbeat_ms
        self._registration_timeout_ms = registration_timeout_ms
        self._failed_directories = failed_directories
        self._full_directories = full_directories
        self._folder_failure_ms = folder_failure_ms
        self._untold_since_ms: int | None = None
        self._obstacle = ""
        self._on_stop = on_stop or (lambda sentence: LOG.error(sentence))
        self._leaving = False
        self._may_enter = False
        self._wanted = asyncio.Event()
        self._let_in = asyncio.Event()
        self._task: asyncio.Task[None] | None = None

    async def register(self) -> int:
        """Register and begin to heartbeat; the broker epoch.

        Before that the folders note this incarnation: see `core/log/incarnations.py`.
        Raises ApiError when refused, or when it took longer than
        `initial.broker.registration.timeout.ms`.
        """
        if self._notes is not None:
            self._notes.begin(self.incarnation_id)
        try:
            async with asyncio.timeout(self._registration_timeout_ms / 1000):
                self.broker_epoch = await self._registered(DUPLICATES)
        except TimeoutError:
            raise ApiError(ErrorCode.REQUEST_TIMED_OUT, self._too_late()) from None
        self._note_registration()
        LOG.info("registered", broker=self.node_id, epoch=self.broker_epoch)
        if self._task is None:
            self._task = asyncio.create_task(self._beat())
        return self.broker_epoch

    def _note_registration(self) -> None:
        if self._notes is not None:
            self._notes.registered(self.incarnation_id)
            for fault in self._notes.faults:
                LOG.error("a folder does not know its broker's newest life", why=fault)

    def beat_now(self) -> None:
        """Do not wait for the next heartbeat's turn: a new controller has not heard of us yet, and
        notices by that heartbeat's connection if this process ends."""
        self._wanted.set()

    async def unfenced(self) -> None:
        """Ask to be let in, now that everything hosted here is open; return when this broker's own
        metadata shows it unfenced."""
        self._may_enter = True
        self.beat_now()
        while not self._is_in():
            await self._let_in.wait()
            await asyncio.sleep(0 if self._is_in() else 0.001)

    async def shutdown(self) -> None:
        """Controlled shutdown: returns when the controller has let go, or does not answer."""
        if self._task is None:
            await self._channel.close()
            return
        self._leaving = True
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        try:
            async with asyncio.timeout(SHUTDOWN_TIMEOUT_S):
                await self._leave()
        except (TimeoutError, ApiError) as fault:
            LOG.warning(
                "stopped without the controller's permission", why=str(fault) or "no answer"
            )
        await self._channel.close()

    async def _leave(self) -> None:
        while True:
            answer = await self._heartbeat()
            if answer.should_shut_down or answer.error_code:
                return
            await asyncio.sleep(STARTING_MS / 1000)

    def _is_in(self) -> bool:
        broker = self._image().brokers.get(self.node_id)
        return broker is not None and broker.epoch == self.broker_epoch and not broker.fenced

    async def _registered(self, worth_waiting: frozenset[ErrorCode]) -> int:
        """Ask until there is an epoch; a code that is not worth waiting for is raised."""
        while True:
            answer: BrokerRegistrationResponse = await self._channel.send(
                self._request(), patience_s=None
            )
            if answer.error_code == ErrorCode.NONE:
                return answer.broker_epoch
            code = ErrorCode(answer.error_code)
            if code not in worth_waiting:
                raise ApiError(code, self._refusal(code))
            self._complain(self._refusal(code))
            await asyncio.sleep(RETRY_MS / 1000)

    def _complain(self, why: str) -> None:
        """Say once why this takes so long; a node that was restarted may meet its own ghost."""
        if why != self._obstacle:
            LOG.warning(
                "not registered yet; asking again", why=why, for_ms=self._registration_timeout_ms
            )
        self._obstacle = why

    def _too_late(self) -> str:
        why = self._obstacle
        if self._channel.obstacle or not why:
            why = (
                f"{self._channel.obstacle or 'no controller answered'}; see that a controller runs "
                "at one of controller.quorum.bootstrap.servers"
            )
        return (
            f"broker {self.node_id} could not register within {self._registration_timeout_ms} ms "
            f"(initial.broker.registration.timeout.ms): {why}"
        )

    def _refusal(self, code: ErrorCode) -> str:
        if code == ErrorCode.DUPLICATE_BROKER_REGISTRATION:
            return (
                f"another live broker has node.id={self.node_id}; give each node its own id, and "
                "stop the one of two processes that runs on a copy of the other's folders"
            )
        if code == ErrorCode.INCONSISTENT_CLUSTER_ID:
            return (
                f"the controller belongs to another cluster than this node ({self.cluster_id}); "
                "check controller.quorum.bootstrap.servers and log.dirs"
            )
        if code == ErrorCode.UNSUPPORTED_VERSION:
            return self._too_old()
        return f"the controller refuses broker {self.node_id}: {code.name}"

    def _too_old(self) -> str:
        try:
            check_supported(self._image())
        except TooOld as fault:
            return str(fault)
        return (
            f"the controller refuses broker {self.node_id}: the cluster uses a feature at a level "
            "that this version of Anabranch does not support; install a newer version on this node"
        )

    def _request(self) -> BrokerRegistrationRequest:
        return BrokerRegistrationRequest(
            broker_id=self.node_id,
            cluster_id=self.cluster_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port) for name, host, port in self._endpoints
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(SUPPORTED_FEATURES.items())
            ],
            rack=self._rack,
            log_dirs=[
                each for each in self._directory_ids if each not in self._failed_directories()
            ],
            previous_broker_epoch=self._previous_epoch,
            unknown_tagged_fields=self._notes.told() if self._notes is not None else None,
        )

    async def _beat(self) -> None:
        while True:
            try:
                self._check_told()
                answer = await self._heartbeat()
                if answer.error_code == ErrorCode.STALE_BROKER_EPOCH:
                    await self._look_again()
                elif not answer.error_code and not answer.is_fenced:
                    self._let_in.set()
            except ApiError as fault:
                if fault.code != ErrorCode.NOT_CONTROLLER:
                    self._on_stop(fault.message)
                    return
                LOG.warning("no heartbeat reached a controller", why=fault.message)
            except Exception as fault:  # else it would be fenced for ever, and say nothing
                self._on_stop(f"heartbeats failed: {type(fault).__name__}: {fault}")
                return
            knocks = self._may_enter and not self._let_in.is_set()
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout((STARTING_MS if knocks else self._heartbeat_ms) / 1000):
                    await self._wanted.wait()
            self._wanted.clear()

    async def _look_again(self) -> None:
        """The controller says that this epoch is not the broker's: the metadata says why.

        Raises ApiError when another process has this node's place.
        """
        self._let_in.clear()
        broker = self._image().brokers.get(self.node_id)
        if broker is not None and broker.incarnation_id != self.incarnation_id:
            if broker.epoch > self.broker_epoch:
                raise ApiError(ErrorCode.DUPLICATE_BROKER_REGISTRATION, self._replaced())
        elif broker is None or broker.epoch != self.broker_epoch:
            await self._register_again()
            return
        await asyncio.sleep(RETRY_MS / 1000)  # the metadata is older than the answer

    async def _register_again(self) -> None:
        """The controller knows this incarnation no more; nothing that it holds was lost."""
        LOG.warning("the registration is no longer valid", epoch=self.broker_epoch)
        self._previous_epoch = self.broker_epoch
        self.broker_epoch = await self._registered(frozenset())
        LOG.info("registered", broker=self.node_id, epoch=self.broker_epoch)

    def _replaced(self) -> str:
        return (
            f"another process registered as broker {self.node_id}, with a copy of this node's "
            "folders or after this one was silent; run one process a node.id and folder"
        )

    async def _heartbeat(self) -> BrokerHeartbeatResponse:
        request = BrokerHeartbeatRequest(
            broker_id=self.node_id,
            broker_epoch=self.broker_epoch,
            current_metadata_offset=self._image().offset,
            want_fence=not self._may_enter,
            want_shut_down=self._leaving,
            offline_log_dirs=list(self._failed_directories()),
            unknown_tagged_fields=tagged(FullDirectories(ids=list(self._full_directories()))),
        )
        answer: BrokerHeartbeatResponse = await self._channel.send(request)
        if not answer.error_code and len(request.offline_log_dirs) == len(
            self._failed_directories()
        ):
            self._untold_since_ms = None
        return answer

    def folder_failed(self) -> None:
        """A folder of this broker failed: the controller is told, or the broker stops, since
        nobody else leads what it cannot serve."""
        if self._untold_since_ms is None:
            self._untold_since_ms = steady_ms()
        self.beat_now()

    def _check_told(self) -> None:
        since_ms = self._untold_since_ms
        if since_ms is not None and steady_ms() - since_ms > self._folder_failure_ms:
            raise ApiError(
                ErrorCode.KAFKA_STORAGE_ERROR,
                f"a log folder failed, and no controller heard of it within "
                f"{self._folder_failure_ms} ms (log.dir.failure.timeout.ms)",
            )
