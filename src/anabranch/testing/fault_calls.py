"""What a test can do to the brokers of a `LocalCluster`.

What: the calls of `LocalCluster` that stop, kill, pause, cut off and slow down brokers. Why apart:
a reader finds everything that can go wrong in one place. Rules kept: a fault holds from when its
call returns until it is undone; each call that makes one gives an `Undo`, for use with `with`; a
call that cannot be is one `ClusterError`.
"""

from __future__ import annotations

import contextlib
import time
from abc import ABC, abstractmethod
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, Self

from anabranch.testing.nodes import (
    KILLED,
    PAUSED,
    RUNNING,
    STARTING,
    STOPPED,
    ClusterError,
    ClusterNode,
)
from anabranch.testing.queries import ask
from anabranch.testing.running_cluster import RunningCluster

if TYPE_CHECKING:
    from anabranch.testing.hanging_transaction import FoundTransaction
    from anabranch.testing.security import ClusterSecurity

START_SECONDS = 60.0
"""How long a broker may take to serve again: it may have to wait for a dead controller's lease."""

YEAR_10000 = 253_402_300_800
"""In seconds since 1970: times of later years have no date."""


class Undo:
    """What ends a fault at the end of a `with` block; to be ignored where that is not wanted."""

    def __init__(self, undo: Callable[[], None]) -> None:
        self._undo = undo

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:  # fmt: skip
        self._undo()


class HangingTransaction(Undo):
    """A transaction that hangs: where, and whose."""

    def __init__(self, found: FoundTransaction, undo: Callable[[], None]) -> None:
        super().__init__(undo)
        self.topic, self.partition = found.topic, found.partition
        self.producer_id, self.producer_epoch = found.producer_id, found.producer_epoch
        self.start_offset = found.start_offset


class FaultCalls(ABC):
    """The part of `LocalCluster` that does harm."""

    security: ClusterSecurity | None
    """What clients need, if it was asked for."""

    @property
    @abstractmethod
    def bootstrap_servers(self) -> str:
        """What clients are given."""

    @abstractmethod
    def _running(self) -> RunningCluster:
        """The cluster as it runs. Raises ClusterError when it does not."""

    # Brokers.

    def stop_broker(self, broker_id: int) -> Undo:
        """Stop one broker in order: its leaderships move first. Raises ClusterError. With `with`:
        it is started again at the end."""
        cluster = self._running()
        node = self._living(broker_id)
        if [each for each in cluster.nodes.values() if _lives(each)] == [node]:
            raise ClusterError("The last broker stays: stop() ends the cluster.")
        node.stop()
        return Undo(lambda: self._again(broker_id))

    def start_broker(
        self, broker_id: int, *, wait: bool = True, timeout_seconds: float = START_SECONDS
    ) -> None:
        """Start a broker again that was stopped or killed or has ended, at its address and with its
        folder; returns when it serves clients, without `wait` at once. Raises ClusterError."""
        node = self._running().node(broker_id)
        node.launch()
        if wait:
            self.wait_serving(broker_id, timeout_seconds=timeout_seconds)

    def wait_serving(self, broker_id: int, *, timeout_seconds: float = START_SECONDS) -> None:
        """Return when a broker that is starting serves clients. Raises ClusterError when it does
        not in time, or has ended."""
        node = self._running().node(broker_id)
        until = time.monotonic() + timeout_seconds
        try:
            node.wait_serving(until)
        except ClusterError as fault:
            if node.state == STARTING:
                raise ClusterError(
                    f"{node.name} did not serve within {timeout_seconds:g} seconds; its log says "
                    "what it waits for."
                ) from None
            raise ClusterError(f"{node.name} did not start: {fault}") from fault.__cause__

    def state(self, broker_id: int) -> str:
        """`starting`, `running`, `paused`, `stopped`, `killed`, or `ended`: by itself."""
        return self._running().node(broker_id).state

    def kill(self, broker_id: int) -> Undo:
        """Kill a broker, as SIGKILL does: nothing is flushed, said or handed over. What it had
        written is in its folder. With `with`: it is started again at the end."""
        self._living(broker_id).strike().kill()
        return Undo(lambda: self._again(broker_id))

    def crash(self) -> Undo:
        """Kill all brokers at once; `start_broker` starts them again, `stop` ends the cluster. With
        `with`: those that were killed are started again at the end."""
        alive = [node for node in self._running().nodes.values() if _lives(node)]
        if not alive:
            raise ClusterError("No broker is running that could crash.")
        struck = []
        for node in alive:
            with contextlib.suppress(ClusterError):  # it has just ended by itself
                struck.append(node.strike())
        for life in struck:
            life.kill()
        return Undo(lambda: self._again(*(node.plan.broker_id for node in alive)))

    def pause(self, broker_id: int) -> Undo:
        """Let a broker stand still, as SIGSTOP does: connections stay, nothing answers. Raises
        ClusterError. With `with`: it goes on at the end."""
        self._living(broker_id).pause()
        return Undo(lambda: self._unpause(broker_id))

    def resume(self, broker_id: int) -> None:
        """Let a paused broker go on. Raises ClusterError."""
        self._living(broker_id).resume()

    def _again(self, *broker_ids: int) -> None:
        gone = [each for each in broker_ids if self.state(each) in (KILLED, STOPPED)]
        for broker_id in gone:
            self.start_broker(broker_id, wait=False)
        for broker_id in gone:
            self.wait_serving(broker_id)

    def _unpause(self, broker_id: int) -> None:
        if self.state(broker_id) == PAUSED:
            self.resume(broker_id)

    def _living(self, broker_id: int) -> ClusterNode:
        cluster = self._running()
        node = cluster.nodes.get(broker_id)
        if node is None or not _lives(node):
            why = f" {node.why()}." if node is not None else ""
            raise ClusterError(f"No broker {broker_id} is running: {cluster.ids}.{why}")
        return node

    # The network between brokers. Clients reach every broker at all times.

    def cut(
        self, a: int, b: int | None = None, *, one_way: bool = False, links: str = "all"
    ) -> Undo:
        """Cut the link between two brokers, or between one and every other: no byte passes, nobody
        is told, and new connections hang, until `heal`. With `one_way` bytes from `a` wait and
        those to `a` pass. With `links="replication"` connections to controllers pass, with
        "controller" only these are cut. Clients and the metadata store are still reached. It
        outlives a kill of either end. With `with`: it heals at the end."""
        self._running().cut(a, b, one_way=one_way, links=links)
        return Undo(lambda: self.heal(a, b))

    def delay(self, a: int, b: int | None = None, *, ms: int) -> Undo:
        """Let bytes between two brokers, or between one and every other, take `ms` longer in each
        direction, until `heal`. With `with`: it heals at the end."""
        if ms < 0:
            raise ClusterError(f"A delay of {ms} ms cannot be: nothing arrives before it is sent.")
        self._running().delay(a, b, ms)
        return Undo(lambda: self.heal(a, b))

    def heal(self, a: int | None = None, b: int | None = None) -> None:
        """End cuts and delays: all of them, those of one broker, or those between two. What was
        held arrives, in its order."""
        self._running().heal(a, b)

    # Disks.

    def slow_disk(self, broker_id: int, *, ms: int) -> Undo:
        """Let each write, sync and read from the disk of a broker take `ms` longer, until
        `heal_disk`. What is in memory is read as fast as ever. With `with`: it heals at the end."""
        if ms < 0:
            raise ClusterError(f"A disk that is slower by {ms} ms cannot be: ms is 0 or more.")
        self._running().node(broker_id).faults.disk_ms = ms
        return Undo(lambda: self.heal_disk(broker_id))

    def full_disk(self, broker_id: int) -> Undo:
        """Let nothing more fit on the disk of a broker, until `heal_disk`; what is there can be
        read and removed. With `with`: it heals at the end."""
        self._running().node(broker_id).faults.disk_is_full = True
        return Undo(lambda: self.heal_disk(broker_id))

    def heal_disk(self, broker_id: int) -> None:
        """End what `slow_disk` and `full_disk` did."""
        faults = self._running().node(broker_id).faults
        faults.disk_ms, faults.disk_is_full = 0, False

    # Transactions.

    def hang_transaction(
        self, topic: str, partition: int = 0, *, value: bytes = b"hanging"
    ) -> HangingTransaction:
        """Begin a transaction with one record that a partition holds open and no coordinator knows:
        read_committed readers stop there until it is aborted (`anabranch transactions abort`).
        Raises ClusterError. With `with`: it is aborted at the end."""
        from anabranch.testing import hanging_transaction

        self._running()
        servers, what = self.bootstrap_servers, f"hang a transaction in {topic}-{partition}"
        found = ask(
            what,
            servers,
            lambda each: hanging_transaction.hang(each, topic, partition, value),
            security=self.security,
        )
        undo = f"abort the transaction in {topic}-{partition}"
        return HangingTransaction(
            found,
            lambda: ask(
                undo,
                self.bootstrap_servers,
                lambda each: hanging_transaction.end(each, found),
                security=self.security,
            ),
        )

    # Clocks.

    def advance_clock(self, seconds: float, broker_id: int | None = None) -> Undo:
        """Set the wall clock of one broker, or of all, forward by so many seconds; back where they
        are negative. With `with`: it is set back by as much at the end.

        The wall clock says what is written into records and how old they are: retention, expiry of
        offsets and of producers' ids follow within a second or so, by the checks of `FOR_TESTS`.
        What is measured stays as it is, as on a machine whose clock is set: timeouts, sessions of
        brokers and groups, leases, how often something is looked for. Clients have clocks of their
        own, and so has the metadata store.
        """
        nodes = self._running().some(broker_id)
        now = time.time()
        if not all(0 <= now + each.faults.ahead_ms / 1000 + seconds < YEAR_10000 for each in nodes):
            raise ClusterError(
                f"A clock cannot be set by {seconds} seconds: it has the years 1970 to 9999."
            )
        for node in nodes:
            node.faults.ahead_ms += round(seconds * 1000)
        return Undo(lambda: self._set_back(seconds, broker_id))

    def _set_back(self, seconds: float, broker_id: int | None) -> None:
        self.advance_clock(-seconds, broker_id)


def _lives(node: ClusterNode) -> bool:
    return node.state in (STARTING, RUNNING, PAUSED)
