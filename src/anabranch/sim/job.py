"""A simulated job on Spark: a driver that works in waves, and tasks that make segments.

What: each wave has a claim of its own. A driver may die at any moment, and a task at any call: what
it had put stays, and the next wave, of this job or another one, goes on. The steady clock that
leases of tries are measured with goes as fast as that of brokers (`remote_logs.py`). Rule kept:
nothing is decided here. Not here: what a wave does (`tiering.py`, `compaction.py`).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Generator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.tiering.tries import Lease, PutFiles
from anabranch.core.types import Buffer, TopicPartition
from anabranch.core.wire.messages.tier_segment import STANDS
from anabranch.sim.chains import Chain, Told
from anabranch.sim.clients.client import Client, Patience
from anabranch.sim.remote_logs import PACE

if TYPE_CHECKING:
    from anabranch.sim.cluster import Cluster
    from anabranch.sim.history import History
    from anabranch.sim.remotes import Remotes

EVERY_MS = 1_500
"""From the end of a wave to the next one."""
MOST_ASKED = 8
"""Attempts of one request."""
GIVEN_UP = (
    ErrorCode.FENCED_LEADER_EPOCH,
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.DUPLICATE_RESOURCE,
)
MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

Ask = Callable[[Callable[[Any], None]], None]
"""Makes one call; takes who is told what it gave."""
Calls = Generator[Ask, Any, Any]
Tell = Callable[[int], Calls]
"""Takes a step of a try, and tells the leader of it."""


class Ended(StorageFault):
    """A wave, or a try, does not go on; the text says why."""


class Job(Client, ABC):
    """See the module. `done` counts waves that came to their end, `segments` what they made."""

    family = ""

    def __init__(
        self, cluster: Cluster, name: str, history: History, topics: tuple[str, ...]
    ) -> None:
        super().__init__(cluster, name, history, topics, Patience())
        assert cluster.remotes is not None
        self.remotes: Remotes = cluster.remotes
        self.done = self.segments = 0
        self.dies_after = 0
        """Calls after which the task dies that makes the next one; 0: none does."""
        self._number = 0

    def start(self) -> None:
        """A driver: one wave after another."""
        self._number += 1
        self._begin(self._number)

    def die(self) -> None:
        """Driver and tasks end at once; calls that were made are carried out all the same."""
        self.remotes.met.add(f"{self.family}-driver-died")
        self._number += 1

    def _begin(self, number: int) -> None:
        if self._number != number:
            return
        Chain(self._wave_and_pause(number), self._performer(number)).go_on()

    def _performer(self, number: int) -> Callable[[Ask, Told], None]:
        """Calls of this life of the driver: answers to a former one are not heard."""

        def make(ask: Ask, told: Told) -> None:
            def answered(found: Any) -> None:
                if self._number == number:
                    self.world.after_in(self.process, 0, told, found)

            ask(answered)

        return make

    def _wave_and_pause(self, number: int) -> Calls:
        claim_id = self.random.randrange(1, 1 << 62)
        try:
            yield from self._wave(number, claim_id)
            self.done += 1
        except StorageFault:
            pass  # the next wave goes on
        self.later(EVERY_MS, self._begin, number)

    @abstractmethod
    def _wave(self, number: int, claim_id: int) -> Calls:
        """One wave, under a claim."""

    @property
    def steady_ms(self) -> int:
        """What leases of tries are measured with."""
        return self.world.steady_ms * PACE + self.remotes.ahead_ms

    # Tasks.

    def _all(self, number: int, tasks: Sequence[Calls]) -> Ask:
        """All tasks at once; gives what each gave, or its fault."""

        def ask(done: Callable[[Any], None]) -> None:
            found: list[Any] = [None] * len(tasks)
            running = len(tasks)

            def ended(at: int, result: Any) -> None:
                nonlocal running
                running -= 1
                found[at] = result
                if not running:
                    done(found)

            for at, each in enumerate(tasks):
                Chain(_to_its_end(each, partial(ended, at)), self._performer(number)).go_on()

        return ask

    def _alive(self) -> Calls:
        """Before each call of a task: it may die here, and its driver learns of that later."""
        if self.dies_after:
            self.dies_after -= 1
            if not self.dies_after:
                self.remotes.met.add(f"{self.family}-task-died")
                yield self._pause(500)
                raise Ended("the task died")

    # Objects.

    def _read(self, key: str) -> Ask:
        return lambda done: self.remotes.objects.read_whole(self.name, key, done)

    def _put(self, key: str, buffers: Sequence[Buffer]) -> Ask:
        return lambda done: self.remotes.objects.put(self.name, key, buffers, done)

    def _put_all(self, put: PutFiles, tell: Tell) -> Calls:
        """A step of a try; `tell` makes its requests."""
        for key, buffers in put.files.items():
            yield from self._confirm(tell, put.lease)
            yield from self._alive()
            yield self._put(key, buffers)

    def _confirm(self, tell: Tell, lease: Lease) -> Calls:
        asked_ms = self.steady_ms
        if lease.is_old(asked_ms):
            yield from tell(STANDS)
            lease.stands(asked_ms)
        lease.check(self.steady_ms)

    # Requests.

    def _at_leader(self, part: Any, request: Any) -> Calls:
        """Ask the leader of a planned partition, whichever broker that is. Raises Ended."""
        place = TopicPartition(part.topic_name, part.partition_index)
        first = [part.leader_id]

        def leader() -> int:
            if first:
                return int(first.pop())
            known = self.places.get(place)
            return -1 if known is None else known.leader

        answer = yield from self._asked(leader, request)
        return answer

    def _asked(self, whom: Callable[[], int], request: Any) -> Calls:
        """Ask until there is an answer. Raises Ended."""
        yield from self._alive()
        for attempt in range(1, MOST_ASKED + 1):
            answer = yield self._request(whom(), request)
            code = ErrorCode.REQUEST_TIMED_OUT if answer is None else answer.error_code
            if code == ErrorCode.NONE:
                return answer
            if code in GIVEN_UP:
                raise Ended(f"{ErrorCode(code).name}: {answer.error_message}")
            if answer is None or code in MOVED:
                yield self.refreshed
            yield self._pause(self.backoff_ms(attempt))
        raise Ended("no broker answers")

    def _request(self, node_id: int, request: Any) -> Ask:
        def ask(done: Callable[[Any], None]) -> None:
            self.ask(node_id if node_id >= 0 else self.anybody(), request, done)

        return ask

    def refreshed(self, done: Callable[[Any], None]) -> None:
        """An ask: metadata."""
        self.refresh(lambda: done(None))

    def _pause(self, pause_ms: int) -> Ask:
        return lambda done: self.later(pause_ms, done, None)


def _to_its_end(task: Calls, ended: Callable[[Any], None]) -> Calls:
    try:
        result = yield from task
    except StorageFault as fault:
        ended(fault)
    else:
        ended(result)


def nothing(_answer: Any) -> None:
    """For a call whose answer is not needed."""
