"""What a step leaves behind, and the one loop that does what it asks for.

A step is what one event causes: a frame, a timer, a peer's answer, the end of a read or of a sync.
Handlers and core's machines change their own state, and leave in the node's `Mailbox` what others
must do. Whoever runs them, a real broker, the simulator, a fuzz target or a node in a test, owes
this, in the manner of etcd/raft's Ready:

1. Read the clocks once, before a step: within it time stands still.
2. Run one handler at a time, and see its outcome through (`core.outcome`).
3. Call `drain` afterwards, whatever happened. It ends when nothing is left.
4. Read, sync and send elsewhere; what came of it is an event, that is, a step of its own.

    while True:
        event = frames, timers, answers, ends of reads and syncs: the next one
        broker.wall_ms, broker.steady_ms = the clocks
        match run(broker, event, broker.wall_ms):
            case Wait() as wait: park it under wait.keys until wait.deadline_ms
            case Cold() as cold: read all cold.reads, then broker.changed[cold] = None
            case Propose() as decision: append decision.result.records, then answer
            case Forward(): ask the active controller, then answer
            case message: answer
        drain(broker.mailbox, performer)

Rules kept: the order within a round is fixed, so that two runs of the same events are the same run;
what a round leaves is done in the next; a machine is asked for its effects and its next deadline
when it has marked itself (`core.due`); a drain inside a drain does nothing, since the outer
one goes on. Not here: sockets, disks, threads, clocks.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, Protocol

from anabranch.core.due import Due
from anabranch.core.errors import Bug

if TYPE_CHECKING:
    from anabranch.core.errors import StorageFault
    from anabranch.core.types import TopicPartition


def _themselves(keys: Sequence[Hashable]) -> Iterable[Hashable]:
    return keys


def _nothing_arrives() -> int:
    return 0


class Wish:
    """A request to the active controller that no client waits for.

    `message` is sent, and `done` called whatever came of it."""

    __slots__ = ("done", "message")

    def __init__(self, message: Any, done: Callable[[], None]) -> None:
        self.message = message
        self.done = done


class Connection(Protocol):
    """Where answers go."""

    def flush(self) -> None:
        """Send what is ready."""


class Mailbox:
    """What the steps of one node leave until they are drained.

    `woken_by` says what hangs on the keys that changed, beside themselves."""

    __slots__ = (
        "arriving_bytes",
        "changed",
        "due",
        "faults",
        "is_crowded",
        "is_draining",
        "ready",
        "stored_later_bytes",
        "to_load",
        "unsynced",
        "wishes",
        "woken_by",
    )

    def __init__(self) -> None:
        self.changed: dict[Hashable, None] = {}
        """Keys whose waits may now be over: a TopicPartition, or what a Wait was parked under. They
        are told in the order in which they came, so that two runs of the same events are alike."""
        self.due = Due()
        """Machines that have something to be done."""
        self.ready: list[Connection] = []
        """Connections that have something to send."""
        self.faults: list[tuple[Any, StorageFault]] = []
        """Partitions whose storage failed: they, or their folder, go offline."""
        self.unsynced: set[TopicPartition] = set()
        """Partitions whose logs are due for a sync round (flush.messages, a rolled segment)."""
        self.to_load: list[Any] = []
        """Work of coordinators that may outlast the step (`core.coordination.sliced`): shards whose
        log waits to be read."""
        self.wishes: list[Wish] = []
        """Requests to the active controller that no client waits for (topic auto-creation)."""
        self.woken_by: Callable[[Sequence[Hashable]], Iterable[Hashable]] = _themselves
        self.stored_later_bytes = 0
        """Of what the last handler appended: they stay in memory until a store has them, and are
        bounded together with all others that do."""
        self.arriving_bytes: Callable[[], int] = _nothing_arrives
        """Of large requests that are not all there, how much is in memory: whoever receives them
        says so."""
        self.is_crowded = False
        """There is no room behind that: connections that bring such are not read until there is."""
        self.is_draining = False


class InOrder:
    """Performs what a machine wants done: each effect in its order, and after them what they, and
    the answers to them, have made due. What a performer raises goes to the outermost call."""

    __slots__ = ("_is_performing", "_perform", "_take")

    def __init__(self, take: Callable[[], Sequence[Any]], perform: Callable[[Any], None]) -> None:
        self._take = take
        self._perform = perform
        self._is_performing = False

    def __call__(self) -> bool:
        """Do all that is wanted; False when a call that is under way does it."""
        if self._is_performing:
            return False
        self._is_performing = True
        try:
            while wanted := self._take():
                for effect in wanted:
                    self._perform(effect)
        finally:
            self._is_performing = False
        return True


class Performer(ABC):
    """What a node does with what its steps leave. Some leave little: those of a controller have no
    logs, so that a fault or a log to sync is a Bug where nothing else is said."""

    @abstractmethod
    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        """Poll the requests that wait under one of these keys."""

    def take_faults(self) -> None:
        """Take offline what failed: empties `faults`."""
        raise Bug("a step left a storage fault where there are no logs")

    def sync_logs(self) -> None:
        """Begin a sync round for each partition: empties `unsynced`."""
        raise Bug("a step left logs to sync where there are none")

    def load_groups(self) -> None:
        """See that what is in `to_load` is done, now or after the step."""

    def grant(self, wish: Wish) -> None:
        """Send a wish."""


def drain(left: Mailbox, performer: Performer) -> None:
    """End a step: do what was left, and what that leaves, until there is nothing."""
    if left.is_draining:
        return
    left.is_draining = True
    changed, faults, unsynced, due = left.changed, left.faults, left.unsynced, left.due.marked
    try:
        while True:
            if changed:
                keys = tuple(changed)
                changed.clear()
                performer.wake_waiting(left.woken_by(keys))
            if left.ready:
                ready, left.ready = left.ready, []
                for connection in ready:
                    connection.flush()
            if faults:
                performer.take_faults()
            if unsynced:
                performer.sync_logs()
            if left.to_load:
                performer.load_groups()
            if changed or left.ready or faults or unsynced:
                continue
            if due:
                left.due.perform()
            while left.wishes:
                performer.grant(left.wishes.pop())
            if not (changed or left.ready or faults or unsynced or due):
                break
    finally:
        left.is_draining = False
