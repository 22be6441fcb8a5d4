"""What becomes of a request whose answer is not there at once.

What: `Outcomes` does what a handler asked for (`core.outcome`): it parks what waits, names what is
to be brought into memory, has decisions made durable and requests forwarded, and in the end gives
the slot its answer, or hangs up. Calls that leave the node are effects of its `Shell`, which gives
each end back with the callback that it was handed, as a step of its own; a callback that comes too
late does nothing.

Rules kept: a slot ends once; an exception that nobody expected becomes UNKNOWN_SERVER_ERROR where
the answer has room for it, otherwise the connection is closed; a range that is cold again and again
lies in a page cache that thrashes, and is given up. Deadlines are milliseconds of the node's steady
clock. Not here: frames and the gate (`requests.py`), the order of answers (`channel.py`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from functools import partial
from struct import Struct
from typing import Any, Protocol

from msgspec.structs import replace

from anabranch.core.api.error_answers import error_answer
from anabranch.core.api.purgatory import Purgatory
from anabranch.core.broker.gate import NO_REST, Quotas, Rest, Taken, charge, mute
from anabranch.core.due import WAITS
from anabranch.core.errors import ErrorCode, error_code_of
from anabranch.core.log.files import ColdRead
from anabranch.core.node.route import Route
from anabranch.core.node.slot import Asker, Slot
from anabranch.core.outcome import (
    Accept,
    Cold,
    Forward,
    Hangup,
    NoAnswer,
    Propose,
    Refuse,
    Wait,
)
from anabranch.core.partition.bringers import apart
from anabranch.core.request import Request
from anabranch.core.step import Mailbox
from anabranch.core.types import Piece

SAME_READ_WARMED = 8
"""A range that is cold again so often after being warmed lies in a page cache that thrashes."""

STOPS_UNREAD = "the node stops before the records were read"
STOPS_UNDECIDED = "the node stops before the change was committed"
STOPS_UNASKED = "the node stops before the controller answered"

RESPONSE_SIZE = Struct(">i").pack
REST_MS = Struct(">i").unpack_from
FORWARDED_HEAD_BYTES = 4
"""Of the header of an answer without its size: the correlation id. A flexible one has an empty
section of tagged fields behind it."""


class Shell(Protocol):
    """What the requests of one role need from the node around them. Each `done` is called once, in
    a step of its own, never before the call that was given it has returned; or not at all when the
    process ends first."""

    settle: Callable[[], None]
    """Ends a step."""

    def begin(self) -> None:
        """Begin a step: set the clocks of the requests."""

    def warm(
        self, reads: Sequence[ColdRead], done: Callable[[BaseException | Hangup | None], None]
    ) -> None:
        """Bring ranges of files into memory where nobody waits; done: what went wrong, if anything,
        or a Hangup when they are not read because the node stops."""

    def propose(self, proposal: Propose, done: Callable[[Any], None]) -> None:
        """Make a controller's decision durable; done: its outcome, or the exception."""

    def forward(self, frame: memoryview, request: Request, done: Callable[[Any], None]) -> None:
        """Pass a request on to the active controller; done: response header and body, or a Hangup,
        or the exception."""

    def now_ns(self) -> int:
        """A clock for how long a request keeps the loop busy; asked where quotas limit it."""

    def unexpected(self, route: Route, request: Request, fault: BaseException) -> None:
        """A request failed for a reason that is nobody's but the node's."""


class Outcomes:
    """The requests of one role that are not answered yet. `world` is what its handlers look at;
    `mailbox` has what their steps leave. Where `quotas` is set, every answer is charged before it
    is framed, and tells for how long its connection rests."""

    def __init__(self, world: Any, shell: Shell, mailbox: Mailbox) -> None:
        self.world = world
        self.mailbox = mailbox
        self.purgatory = Purgatory(mailbox.due.marker(WAITS))
        self.quotas: Quotas | None = None
        self.now_ms = self.steady_ms = 0
        """The clocks at the begin of this step: what handlers are told, and the steady one."""
        self.faults_total = 0
        self.logins: Counter[tuple[str, bool]] = Counter()
        """(listener, whether it was let in) -> how many logins have ended so."""
        self.cold_reads_total = 0
        self.is_stopping = False
        self.begin, self.settle = shell.begin, shell.settle
        """A step of a connection's turn."""
        self._shell = shell

    def framed(
        self, asker: Asker, route: Route, request: Request, message: Any, brought_bytes: int,
        time_ns: int,
    ) -> list[Piece]:  # fmt: skip
        """An answer as bytes, charged, if quotas are set: it tells how long its connection rests,
        which begins now. What a controller has told already counts, too."""
        answer: list[Piece] = route.frame(request.correlation_id, message)
        if self.quotas is None:
            return answer
        taken = Taken(brought_bytes, sum(map(len, answer)), time_ns)
        rest = self._charge(asker, route, request, taken)
        told_ms = message.throttle_time_ms if route.tells_rest else 0
        rest_ms = max(rest.rest_ms, told_ms)
        mute(asker.session, rest_ms, self.steady_ms)
        if rest_ms <= told_ms:
            return answer
        if rest.is_empty and route.emptied is not None:
            message = route.emptied(self.world, request, message)
        if route.tells_rest:
            message = replace(message, throttle_time_ms=rest_ms)
        return route.frame(request.correlation_id, message)

    def _charge(self, asker: Asker, route: Route, request: Request, taken: Taken) -> Rest:
        of_broker = route.of_broker
        if asker.is_broker and of_broker is not None and of_broker(request.body):
            return NO_REST
        assert self.quotas is not None
        return charge(self.quotas, request, route.charge, taken, self.steady_ms)

    # What a handler asked for.

    def resolve(self, slot: Slot, outcome: Any) -> None:
        """Do what an outcome asks for. A request for which that cannot be begun has failed: others
        that go on in this step are not to blame."""
        try:
            self._resolve(slot, outcome)
        except Exception as fault:
            if slot.is_done:
                raise
            if slot.parked is not None:
                self.purgatory.cancel(slot.parked)
            self._fault(slot, fault)

    def _resolve(self, slot: Slot, outcome: Any) -> None:
        if isinstance(outcome, Wait):
            self._park(slot, outcome)
        elif isinstance(outcome, Cold):
            self._bring(slot, outcome)
        elif isinstance(outcome, Propose):
            slot.is_alone = True
            self._shell.propose(outcome, partial(self._later, slot))
        elif isinstance(outcome, Forward):
            slot.is_alone = True
            assert slot.frame is not None and slot.request is not None
            self._shell.forward(slot.frame, slot.request, partial(self._forwarded, slot))
        elif isinstance(outcome, Accept):
            slot.asker.session.accept(
                outcome.principal, outcome.expires_ms, is_by_token=outcome.is_by_token
            )
            self.logins[slot.asker.listener, True] += 1
            self._answer(slot, outcome.answer)
        elif isinstance(outcome, Refuse):
            self.logins[slot.asker.listener, False] += outcome.is_login
            slot.asker.session.refusal = ""
            slot.hang_up = outcome.why
            self._answer(slot, outcome.answer)
        elif isinstance(outcome, NoAnswer):
            self._unanswered(slot)
        elif isinstance(outcome, Hangup):
            self._hang_up(slot, outcome.why)
        elif isinstance(outcome, BaseException):
            self._fault(slot, outcome)
        else:
            self._answer(slot, outcome)

    def _later(self, slot: Slot, outcome: Any) -> None:
        if not slot.is_done:
            self.resolve(slot, outcome)

    def _forwarded(self, slot: Slot, answer: Any) -> None:
        if isinstance(answer, bytes) and not slot.is_done:
            mute(slot.asker.session, told_rest_ms(slot.route, answer), self.steady_ms)
            self._finish(slot, [RESPONSE_SIZE(len(answer)), answer])
        else:
            self._later(slot, answer)

    def _answer(self, slot: Slot, message: Any) -> None:
        route, request = slot.route, slot.request
        assert route is not None and request is not None
        try:
            buffers = self.framed(
                slot.asker, route, request, message, slot.received_bytes, slot.time_ns
            )
        except Exception as fault:
            self._fault(slot, fault, may_answer=False)
        else:
            self._finish(slot, buffers)

    def _unanswered(self, slot: Slot) -> None:
        """What brought records is charged for them, as in Kafka not for its time."""
        route, request = slot.route, slot.request
        if self.quotas is not None and route is not None and request is not None:
            rest = self._charge(slot.asker, route, request, Taken(slot.received_bytes, 0, 0))
            mute(slot.asker.session, rest.rest_ms, self.steady_ms)
        self._finish(slot, [])

    def _finish(self, slot: Slot, buffers: list[Piece]) -> None:
        slot.hold(buffers)
        self.end(slot)

    def _hang_up(self, slot: Slot, why: str, *, is_own: bool = False) -> None:
        slot.hang_up, slot.is_own_fault = why, is_own
        self.end(slot)

    def end(self, slot: Slot) -> None:
        """Its answer is there, or there is none: it is sent once those before it were."""
        slot.is_done = True
        slot.promise(0)
        slot.parked = slot.request = slot.frame = None
        if slot.is_urgent:
            slot.asker.send_now()
        else:
            slot.asker.touch()

    def abandon(self, slot: Slot) -> None:
        """Nobody reads this answer any more."""
        slot.is_done = True
        if slot.parked is not None:
            self.purgatory.cancel(slot.parked)
            slot.parked = None

    # Waiting.

    def _park(self, slot: Slot, wait: Wait) -> None:
        slot.promise(wait.most_bytes)
        slot.is_alone = slot.is_alone or wait.holds_up
        slot.is_urgent = wait.is_urgent
        slot.frame = None  # its bytes, unless the handler keeps slices of them
        finish = partial(self.resolve, slot)
        slot.parked = self.purgatory.park(wait, finish, self.steady_ms, self.now_ms)
        if self.is_stopping:
            self.purgatory.finish_all(self.now_ms)

    def expire(self, has_time: Callable[[], bool]) -> None:
        """Answer those whose time has come, at least one and as long as there is time."""
        self.purgatory.expire(self.steady_ms, self.now_ms, has_time)

    def finish_all(self) -> None:
        """Answer everybody who waits as if their time had come, and from now on whoever would
        wait, also for a quota: the node stops."""
        self.is_stopping = True
        self.purgatory.finish_all(self.now_ms)

    # Reads of what is not in memory.

    def _bring(self, slot: Slot, cold: Cold) -> None:
        near, far = apart(cold.reads)
        slot.is_alone = True
        self.cold_reads_total += len(cold.reads)
        if near and self.is_stopping:
            self._hang_up(slot, STOPS_UNREAD)
            return
        path = self._thrashes(slot, near)
        if path:
            why = f"{path} does not stay in the page cache long enough"
            self._hang_up(slot, why, is_own=True)
            return
        slot.parked = self.purgatory.park_cold(cold, partial(self.resolve, slot))
        slot.missing = 1 + bool(near) + bool(far)
        if near:
            self._shell.warm(near, partial(self._warmed, slot, cold))
        if far:
            self.world.bringers.bring(far, partial(self._arrived, slot, cold))
        self._arrived(slot, cold)

    def _thrashes(self, slot: Slot, near: Sequence[ColdRead]) -> str:
        """The path of what was warmed too often; far reads come back with what they brought."""
        places = {(read.file.path, read.position) for read in near}
        slot.colds = 1 if places.isdisjoint(slot.last_reads) else slot.colds + 1
        slot.last_reads = places
        return next(iter(places))[0] if slot.colds > SAME_READ_WARMED else ""

    def _warmed(self, slot: Slot, cold: Cold, fault: BaseException | Hangup | None) -> None:
        """All bytes of files are there, or never will be."""
        if isinstance(fault, Hangup):
            hangup = fault
            cold.again = lambda _now_ms: hangup
        else:
            cold.fault = fault
        self._arrived(slot, cold)

    def _arrived(self, slot: Slot, cold: Cold) -> None:
        """Part of what it lacked is there. After the last one a key has changed, as after any other
        event."""
        slot.missing -= 1
        if not slot.missing and not slot.is_done:
            self.mailbox.changed[cold] = None

    # Faults.

    def _fault(self, slot: Slot, fault: BaseException, *, may_answer: bool = True) -> None:
        route, request = slot.route, slot.request
        assert route is not None and request is not None
        code = error_code_of(fault)
        route.failures += 1
        is_own = code is ErrorCode.UNKNOWN_SERVER_ERROR
        if is_own:
            self.faults_total += 1
            self._shell.unexpected(route, request, fault)
        message = None
        if may_answer:
            message = error_answer(route.response, route.version, code, str(fault))
        if message is None:
            self._hang_up(slot, f"{route.name} failed with {code.name}: {fault}", is_own=is_own)
        else:
            self._answer(slot, message)


def told_rest_ms(route: Route | None, answer: bytes) -> int:
    """For how long the controller has a client rest, whose answer is passed on as it is."""
    if route is None or not route.begins_with_rest:
        return 0
    offset = FORWARDED_HEAD_BYTES
    if route.is_flexible:
        if answer[offset : offset + 1] != b"\0":
            return 0
        offset += 1
    if len(answer) < offset + 4:
        return 0
    (rest_ms,) = REST_MS(answer, offset)
    return int(rest_ms)
