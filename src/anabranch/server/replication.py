"""The shell around replication: its fetches, its questions to the controller, its timer.

What: `perform` sends what `broker.replication` wants sent, and gives back what came, or that
nothing came, as a step of its own. One connection a leader and fetcher. Rule kept: nothing is
decided here; an answer that was lost is reported as lost, once. Not here: what is copied, and who
is in sync (`core/replication`), connections to brokers (`peers.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any

from anabranch.core.api.context import Broker
from anabranch.core.replication.effects import SendAlterPartition, SendFetch
from anabranch.core.types import NEVER_MS
from anabranch.server.clocks import steady_ms
from anabranch.server.controller_channel import ControllerChannel
from anabranch.server.logs import logger
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.peers import PeerConnections, Post

LOG = logger("replication")

SECOND_MS = 1000


class ReplicationShell:
    """Sockets and time for `broker.replication`. `begin` begins a step, `settle` ends it; what is
    done in between knows one time, that of the begin: what is due at it is found due by all."""

    def __init__(
        self,
        broker: Broker,
        channel: ControllerChannel,
        connections: PeerConnections,
        begin: Callable[[], None],
        settle: Callable[[], None],
    ) -> None:
        self._broker = broker
        self._channel = channel.another("replicas")
        self._connections = connections
        self._begin = begin
        self._settle = settle
        self._silent: set[int] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._timer: asyncio.TimerHandle | None = None
        self._due_ms = NEVER_MS
        self._stopping = False

    def perform(self) -> None:
        """Send what replication wants sent; called when it has marked itself."""
        if self._stopping:
            return
        for effect in self._broker.replication.take_effects():
            if isinstance(effect, SendFetch):
                self._fetch(effect)
            else:
                self._start(self._ask(effect))
        due_ms = self._broker.replication.next_tick_ms
        if due_ms != self._due_ms:
            self._arm(due_ms)

    async def stop(self) -> None:
        """Copy nothing more, ask nothing more; `PeerConnections.stop` ends what is under way."""
        self._stopping = True
        if self._timer is not None:
            self._timer.cancel()
        tasks = tuple(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._channel.close()

    def _start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _arm(self, due_ms: int) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        self._due_ms = due_ms
        if due_ms != NEVER_MS:
            seconds = max(0, due_ms - steady_ms()) / SECOND_MS
            self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer, self._due_ms = None, NEVER_MS
        self._begin()
        self._broker.replication.tick(self._broker.steady_ms)
        self._settle()

    # Copying from leaders.

    def _fetch(self, effect: SendFetch) -> None:
        self._connections.post(
            effect.leader_id,
            f"fetcher-{effect.fetcher}",
            Post(
                effect.request,
                effect.version,
                partial(self._fetched, effect),
                self._broker.config.replica_socket_timeout_ms,
            ),
        )

    def _fetched(self, effect: SendFetch, answer: Any) -> None:
        """A leader has answered, or (an exception) did not."""
        if self._stopping:
            return
        self._begin()
        if isinstance(answer, Exception):
            self._complain(effect.leader_id, str(answer) or type(answer).__name__)
            self._broker.replication.fetch_failed(effect, self._broker.steady_ms)
        else:
            self._silent.discard(effect.leader_id)
            self._broker.replication.fetched(effect, answer, self._broker.steady_ms)
            self._tell_cuts()
            self._tell_obstacles()
        self._settle()

    def _complain(self, leader_id: int, why: str) -> None:
        """Once a leader that does not answer, not once an attempt."""
        if leader_id not in self._silent and not self._stopping:
            self._silent.add(leader_id)
            LOG.warning("no answer from a leader", leader=leader_id, why=why)

    def _tell_cuts(self) -> None:
        cuts = self._broker.replication.cuts
        while cuts:
            cut = cuts.popleft()
            LOG.info(
                "copies transactions again that were compacted while this broker was away"
                if cut.is_copied_again
                else "dropped records that the leader does not have",
                partition=cut.topic_partition,
                leader=cut.leader_id,
                leader_epoch=cut.leader_epoch,
                first_offset=cut.first_offset,
                end_offset=cut.end_offset,
            )

    def _tell_obstacles(self) -> None:
        obstacles = self._broker.replication.obstacles
        while obstacles:
            place, leader_id, why = obstacles.popleft()
            LOG.warning("a partition is not copied", partition=place, leader=leader_id, why=why)

    # In-sync replicas.

    async def _ask(self, effect: SendAlterPartition) -> None:
        response = None
        limit_s = self._broker.config.controller_socket_timeout_ms / SECOND_MS
        try:
            async with asyncio.timeout(limit_s):
                response = await self._channel.send(effect.request, effect.version)
        except Exception as fault:  # as above
            tell_unexpected(fault, "changing in-sync replicas")
            LOG.warning("no controller accepted a change of in-sync replicas", why=_said(fault))
        self._begin()
        if response is None:
            self._broker.replication.alter_failed(effect, self._broker.steady_ms)
        else:
            self._broker.replication.altered(effect, response, self._broker.steady_ms)
        self._settle()


def _said(fault: Exception) -> str:
    return str(fault) or type(fault).__name__
