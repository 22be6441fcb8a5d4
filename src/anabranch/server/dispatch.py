"""From a frame to its answer: header, version, decode, handler, and what the handler asked for.

What: one `Dispatcher` for each role of a node (broker, controller). Everything that one read of a
socket brought is one step (`core.step`): `begin`, `handle` for each frame, `settle`, which drains
what the step left: it wakes who waits for what has changed, and every touched connection sends
once. Why no task and no future here: a request that is answered at once, as nearly all are, costs a
few microseconds.

Rules kept: a handler runs on the loop and never waits; bytes that are not in memory are warmed in a
thread (`Cold`); an exception that nobody expected becomes UNKNOWN_SERVER_ERROR where the answer has
room for it, otherwise the connection is closed. An unknown API key or version closes the
connection as in Kafka, except ApiVersions, which is answered in version 0 (KIP-511).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Hashable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from struct import Struct, error
from typing import Any, Protocol

from anabranch.core.access.authorize import Operation, cluster_allowed
from anabranch.core.api.error_answers import error_answer
from anabranch.core.api.handler import Handler
from anabranch.core.api.purgatory import Parked, Purgatory
from anabranch.core.api.unserved import named
from anabranch.core.broker.gate import Quotas, Session, Verdict, admit, charge, drawn
from anabranch.core.diskless.reads import FarRead
from anabranch.core.errors import ErrorCode, ProtocolError, error_code_of
from anabranch.core.log.files import ColdRead
from anabranch.core.node.due import WAITS
from anabranch.core.node.turns import TURN_NS
from anabranch.core.outcome import Cold, Forward, Hangup, NoAnswer, Propose, Wait
from anabranch.core.request import Request
from anabranch.core.step import Mailbox, Performer, drain
from anabranch.core.types import Piece
from anabranch.core.wire.codec import decoder
from anabranch.core.wire.frame import API_VERSIONS_KEY, frame_response, framer, read_client_id
from anabranch.core.wire.messages import API_KEYS
from anabranch.server.clocks import steady_ms, wall_ms
from anabranch.server.own_faults import OwnFaults

PEEK = Struct(">hhi").unpack_from
WARM_THREADS = 4
SAME_READ_WARMED = 8
"""A range that is cold again so often after being warmed lies in a page cache that thrashes."""

STOPS_UNREAD = "the node stops before the records were read"

RESPONSE_SIZE = Struct(">i").pack


class Shell(Protocol):
    """What a role needs from the node around it; every method is called on the loop."""

    def submit(self, proposal: Propose) -> asyncio.Future[Any]:
        """Make a controller's decision durable; the future is its answer."""

    async def forward(self, frame: memoryview, request: Request) -> bytes:
        """Pass a request on to the active controller; returns response header and body."""


class Peer(Protocol):
    """A connection as its requests see it: see `connection.Connection`."""

    listener: str
    host: str
    identity: int
    is_broker: bool
    """It has made requests that only brokers make, and may make them."""
    session: Session
    held_bytes: int
    """Of answers that wait for those before them."""
    promised_bytes: int
    """What the answers that it waits for may bring."""

    def touch(self) -> None:
        """Something may be ready to be sent or run."""

    def send_now(self) -> None:
        """An answer is ready that others wait for."""

    def put_back(self, frame: memoryview) -> None:
        """A request that it has handed over is to be handed over again, before any other."""

    def brought(self, *, is_crowded: bool) -> None:
        """Its last request brought what waits for a store."""

    def hang_up(self, why: str) -> None:
        """Say why in the log, send what was promised, and close."""


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = (
        "buffers",
        "colds",
        "connection",
        "frame",
        "hang_up",
        "held_bytes",
        "is_alone",
        "is_done",
        "is_own_fault",
        "is_urgent",
        "last_reads",
        "parked",
        "promised_bytes",
        "received_bytes",
        "request",
        "route",
        "size_bytes",
    )  # fmt: skip

    def __init__(
        self, connection: Peer, route: Route | None, request: Request | None,
        frame: memoryview | None,
    ) -> None:  # fmt: skip
        self.connection = connection
        self.route = route
        self.request = request
        self.frame = frame
        self.received_bytes = self.size_bytes = 0 if frame is None else len(frame)
        self.buffers: list[Piece] | None = None
        self.held_bytes = 0
        self.promised_bytes = 0
        self.hang_up = ""
        self.is_own_fault = False
        """Whether `hang_up` is a reason of the node's own."""
        self.is_alone = False
        self.is_done = False
        self.is_urgent = False
        self.parked: Parked | None = None
        self.colds = 0
        self.last_reads: set[tuple[str, int]] = set()

    def promise(self, size_bytes: int) -> None:
        """Say how much the answer may bring; its connection runs only so many such requests."""
        self.connection.promised_bytes += size_bytes - self.promised_bytes
        self.promised_bytes = size_bytes

    def hold(self, buffers: list[Piece]) -> None:
        """Keep the answer until those before it are there; its connection counts its bytes."""
        self.buffers = buffers
        self.held_bytes = sum(map(len, buffers))
        self.connection.held_bytes += self.held_bytes


class Route:
    """An API key in one version: everything that a request of it needs, looked up once."""

    __slots__ = (
        "api_key", "charge", "decode", "failures", "frame", "is_flexible", "name", "of_broker",
        "opens_session", "requests", "response", "run", "version",
    )  # fmt: skip

    def __init__(self, handler: Handler, run: Callable[..., Any], version: int) -> None:
        spec = API_KEYS[handler.api_key]
        self.api_key = handler.api_key
        self.name = handler.name
        self.version = version
        self.run = run
        self.of_broker = handler.of_broker
        self.opens_session = handler.opens_session
        self.charge = handler.charge
        self.is_flexible = version >= spec.flexible_from
        self.decode = decoder(spec.request, version)
        self.response = spec.response
        self.frame = framer(spec.response, version)
        self.requests = 0
        self.failures = 0


class Dispatcher(Performer):
    """Runs the requests of one role of a node.

    `world` is the first argument of its handlers; `mailbox` has what their steps leave. Where
    `quotas` is set, every answer is charged."""

    def __init__(
        self,
        role: str,
        world: Any,
        handlers: dict[int, Handler],
        shell: Shell,
        mailbox: Mailbox,
    ) -> None:
        self.role = role
        self.world = world
        self.purgatory = Purgatory(mailbox.due.marker(WAITS))
        self.mailbox = mailbox
        mailbox.due.performs(WAITS, self._arm)
        self.quotas: Quotas | None = None
        self.settle: Callable[[], None] = partial(drain, mailbox, self)
        """Ends a step."""
        self.now_ms, self.steady_ms = wall_ms(), steady_ms()
        self.sent_bytes = 0
        self.received_bytes = 0
        self.faults_total = 0
        self.own_faults = OwnFaults()
        """The node's, where there is one."""
        self.cold_reads_total = 0
        self._handlers = handlers
        self._shell = shell
        self._routes: dict[tuple[int, int], Route] = {}
        self._connection_ids = 0
        self._is_stopping = False
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = 0.0
        self._warmers: ThreadPoolExecutor | None = None
        self._warming: dict[ColdRead, asyncio.Future[None]] = {}
        """What threads bring into memory: who lacks the same waits for the same."""
        self._tasks: set[asyncio.Task[Any]] = set()

    def next_connection_id(self) -> int:
        """A number that no other connection of this role has had."""
        self._connection_ids += 1
        return self._connection_ids

    # One step: begin, handle…, settle.

    def begin(self) -> None:
        """Read the clocks, once for everything that this step does."""
        self.now_ms, self.steady_ms = wall_ms(), steady_ms()

    def handle(self, connection: Peer, frame: memoryview) -> list[Piece] | Slot | None:
        """The answer to one frame, its place in the order, or None: the connection was closed."""
        try:
            api_key, version, correlation_id = PEEK(frame)
        except error:
            connection.hang_up(f"a frame of {len(frame)} bytes is too short for a request header")
            return None
        route = self._routes.get((api_key, version))
        if route is None:
            found = self._find_route(connection, api_key, version, correlation_id)
            if not isinstance(found, Route):
                return found
            route = found
        session = connection.session
        if session.is_restricted:
            verdict = admit(session, opens_session=route.opens_session, now_ms=steady_ms())
            if verdict is Verdict.WAIT and not self._is_stopping:
                return self._mute(connection, frame)
            if verdict is Verdict.CLOSE:
                state = session.state.value
                connection.hang_up(f"{route.name} was asked on a session that is {state}")
                return None
        route.requests += 1
        self.received_bytes += len(frame)
        try:
            client_id, body_offset = read_client_id(frame, route.is_flexible)
            body, _ = route.decode(frame, body_offset)
        except ProtocolError as fault:
            connection.hang_up(f"bad {route.name} request: {fault}")
            return None
        request = Request(
            api_key, version, correlation_id, client_id, body, session.principal,
            connection.listener, connection.host, connection.identity,
        )  # fmt: skip
        if route.of_broker is not None and route.of_broker(body) and not connection.is_broker:
            connection.is_broker = cluster_allowed(
                self.world.authorizer, request, Operation.CLUSTER_ACTION
            )
        try:
            outcome = route.run(self.world, request, self.now_ms)
        except Exception as fault:
            outcome = fault
        stored_later_bytes = self.mailbox.stored_later_bytes
        if stored_later_bytes:
            self.mailbox.stored_later_bytes = 0
            connection.brought(is_crowded=self.mailbox.is_crowded)
        if outcome.__class__ is route.response:
            try:
                answer = route.frame(correlation_id, outcome)
            except Exception as fault:
                outcome = fault
            else:
                if self.quotas is not None:
                    self._charge(session, route, len(frame), sum(map(len, answer)))
                return answer
        slot = Slot(connection, route, request, frame)
        if stored_later_bytes:  # they have a bound of their own, for all connections
            slot.size_bytes = max(0, slot.size_bytes - stored_later_bytes)
        self._resolve(slot, outcome)
        return slot

    def wake_waiting(self, keys: Iterable[Hashable]) -> None:
        self.purgatory.wake(keys, self.now_ms)

    def wake(self, *keys: Any) -> None:
        """Something changed outside of a request: a step of its own."""
        self.mailbox.changed.update(dict.fromkeys(keys))
        self.begin()
        self.settle()

    # Routes.

    def _find_route(
        self, connection: Peer, api_key: int, version: int, correlation_id: int
    ) -> Route | list[Piece] | None:
        handler = self._handlers.get(api_key)
        run = None if handler is None else getattr(handler, self.role)
        if handler is None or run is None:
            what = named(api_key, "" if handler is None else handler.name)
            connection.hang_up(f"{what} is not served on listener {connection.listener}")
            return None
        if version not in handler.versions:
            if api_key == API_VERSIONS_KEY:
                return unsupported_api_versions(handler, correlation_id)
            if handler.advertised is None or version not in handler.advertised:
                connection.hang_up(f"{handler.name} version {version} is not served")
                return None
            connection.hang_up(f"{handler.name} version {version} is advertised but not served")
            return None
        route = self._routes[api_key, version] = Route(handler, run, version)
        return route

    # Quotas.

    def _mute(self, connection: Peer, frame: memoryview) -> Slot:
        """A place in the order that holds up its connection, this request first, for the rest."""
        connection.put_back(frame)
        slot = Slot(connection, None, None, None)
        slot.is_alone = True
        rest_ms = connection.session.muted_until_ms - steady_ms()
        over = Wait((), self.now_ms + rest_ms, lambda _now_ms, _expired: NoAnswer())
        slot.parked = self.purgatory.park(
            over, lambda _outcome: self._end(slot), time.monotonic() * 1000, self.now_ms
        )
        return slot

    def _charge(
        self, session: Session, route: Route, request_bytes: int, answer_bytes: int
    ) -> None:
        assert self.quotas is not None
        amount = drawn(route.charge, request_bytes, answer_bytes)
        charge(session, self.quotas, route.charge, amount, steady_ms())

    # What a handler asked for.

    def _resolve(self, slot: Slot, outcome: Any) -> None:
        route, request = slot.route, slot.request
        assert route is not None and request is not None
        if isinstance(outcome, Wait):
            self._park(slot, outcome)
        elif isinstance(outcome, Cold):
            self._warm(slot, outcome)
        elif isinstance(outcome, Propose):
            slot.is_alone = True
            self._shell.submit(outcome).add_done_callback(partial(self._proposed, slot))
        elif isinstance(outcome, Forward):
            slot.is_alone = True
            self._forward(slot)
        elif isinstance(outcome, NoAnswer):
            self._finish(slot, [])
        elif isinstance(outcome, Hangup):
            self._hang_up(slot, outcome.why)
        elif isinstance(outcome, BaseException):
            self._fault(slot, outcome)
        else:
            self._answer(slot, outcome)

    def _answer(self, slot: Slot, message: Any) -> None:
        route, request = slot.route, slot.request
        assert route is not None and request is not None
        try:
            buffers = route.frame(request.correlation_id, message)
        except Exception as fault:
            self._fault(slot, fault, may_answer=False)
        else:
            self._finish(slot, buffers)

    def _finish(self, slot: Slot, buffers: list[Piece]) -> None:
        slot.hold(buffers)
        self._end(slot)

    def _hang_up(self, slot: Slot, why: str, *, is_own: bool = False) -> None:
        slot.hang_up, slot.is_own_fault = why, is_own
        self._end(slot)

    def _end(self, slot: Slot) -> None:
        slot.is_done = True
        if self.quotas is not None and slot.route is not None:
            session = slot.connection.session
            self._charge(session, slot.route, slot.received_bytes, slot.held_bytes)
        slot.promise(0)
        slot.parked = slot.request = slot.frame = None
        if slot.is_urgent:
            slot.connection.send_now()
        else:
            slot.connection.touch()

    def _park(self, slot: Slot, wait: Wait) -> None:
        slot.promise(wait.most_bytes)
        slot.is_alone = slot.is_alone or wait.holds_up
        slot.is_urgent = wait.is_urgent
        slot.frame = None  # its bytes, unless the handler keeps slices of them
        finish, steady = partial(self._resolve, slot), time.monotonic() * 1000
        slot.parked = self.purgatory.park(wait, finish, steady, self.now_ms)
        if self._is_stopping:
            self.purgatory.finish_all(self.now_ms)

    def _proposed(self, slot: Slot, future: asyncio.Future[Any]) -> None:
        if slot.is_done:
            if not future.cancelled():
                future.exception()  # the loop complains of one that nobody asked for
            return
        self.begin()
        if future.cancelled():
            self._hang_up(slot, "the node stops before the change was committed")
        else:
            self._resolve(slot, future.exception() or future.result())
        self.settle()

    # Reads that went to the disk.

    def _warm(self, slot: Slot, cold: Cold) -> None:
        places = {
            (read.file.path, read.position)
            for read in cold.reads
            if not isinstance(read, FarRead)  # those come back with what they brought
        }
        slot.is_alone = True
        slot.colds = 1 if places.isdisjoint(slot.last_reads) else slot.colds + 1
        slot.last_reads = places
        self.cold_reads_total += len(cold.reads)
        if places and self._is_stopping:
            self._hang_up(slot, STOPS_UNREAD)
            return
        if slot.colds > SAME_READ_WARMED:
            path, _ = next(iter(places))
            why = f"{path} does not stay in the page cache long enough"
            self._hang_up(slot, why, is_own=True)
            return
        slot.parked = self.purgatory.park_cold(cold, partial(self._resolve, slot))
        loop = asyncio.get_running_loop()
        far = [read for read in cold.reads if isinstance(read, FarRead)]
        near = [read for read in cold.reads if not isinstance(read, FarRead)]
        warmed: list[asyncio.Future[Any]] = []
        if near:
            if self._warmers is None:
                self._warmers = ThreadPoolExecutor(WARM_THREADS, "warm")
            warmed = [self._warming[read] for read in near if read in self._warming]
            fresh = [read for read in near if read not in self._warming]
            shares = [fresh[first::WARM_THREADS] for first in range(WARM_THREADS)]
            for share in filter(None, shares):
                warm = loop.run_in_executor(self._warmers, warm_all, share)
                self._warming.update(dict.fromkeys(share, warm))
                warm.add_done_callback(partial(self._is_warm, share))
                warmed.append(warm)
        elif far:
            self.world.diskless.bring(far, partial(self._brought, slot, cold))
            return
        if far:
            warmed.append(brought := loop.create_future())
            self.world.diskless.bring(far, partial(_end, brought))
        asyncio.gather(*warmed).add_done_callback(partial(self._warmed, slot, cold))

    def _is_warm(self, share: Sequence[ColdRead], _future: asyncio.Future[None]) -> None:
        for read in share:
            del self._warming[read]

    def _brought(self, slot: Slot, cold: Cold) -> None:
        """All that had to be asked for elsewhere is there, in the midst of a step."""
        if not slot.is_done:
            self.mailbox.changed[cold] = None

    def _warmed(self, slot: Slot, cold: Cold, future: asyncio.Future[Any]) -> None:
        """All of its bytes are there, or never will be: a key has changed, as after any other
        event."""
        if future.cancelled():
            return
        fault = future.exception()
        if isinstance(fault, asyncio.CancelledError):  # it was queued when the node stopped
            cold.again = lambda _now_ms: Hangup(STOPS_UNREAD)
        else:
            cold.fault = fault
        if not slot.is_done:
            self.wake(cold)

    # Requests that only the controller answers.

    def _forward(self, slot: Slot) -> None:
        task = asyncio.get_running_loop().create_task(self._forwarded(slot))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _forwarded(self, slot: Slot) -> None:
        assert slot.frame is not None and slot.request is not None
        outcome: Any = None
        answer = b""
        try:
            answer = await self._shell.forward(slot.frame, slot.request)
        except asyncio.CancelledError:
            if not slot.is_done:
                self.begin()
                self._hang_up(slot, "the node stops before the controller answered")
                self.settle()
            raise
        except Exception as fault:
            outcome = fault
        if slot.is_done:
            return
        self.begin()
        if outcome is not None:
            self._resolve(slot, outcome)
        else:
            self._finish(slot, [RESPONSE_SIZE(len(answer)), answer])
        self.settle()

    # Faults.

    def _fault(self, slot: Slot, fault: BaseException, *, may_answer: bool = True) -> None:
        route, request = slot.route, slot.request
        assert route is not None and request is not None
        code = error_code_of(fault)
        route.failures += 1
        if code is ErrorCode.UNKNOWN_SERVER_ERROR:
            self.faults_total += 1
            self.own_faults.note_exception(
                "a request failed", fault, api=route.name, version=route.version,
                peer=request.client_host,
            )  # fmt: skip
        message = None
        if may_answer:
            message = error_answer(route.response, route.version, code, str(fault))
        if message is None:
            is_own = code is ErrorCode.UNKNOWN_SERVER_ERROR
            self._hang_up(slot, f"{route.name} failed with {code.name}: {fault}", is_own=is_own)
        else:
            self._answer(slot, message)

    # What connections call.

    def answered_slot(self, connection: Peer, buffers: list[Piece]) -> Slot:
        """A slot for an answer that is there but must wait for the ones before it."""
        slot = Slot(connection, None, None, None)
        slot.hold(buffers)
        slot.is_done = True
        return slot

    def left(self, connection: Peer) -> None:
        """A connection has ended, for any cause."""

    def abandon(self, slot: Slot) -> None:
        """Nobody reads this answer any more."""
        slot.is_done = True
        if slot.parked is not None:
            self.purgatory.cancel(slot.parked)
            slot.parked = None

    # Time.

    def _arm(self) -> None:
        """One timer for all who wait."""
        deadline = self.purgatory.next_deadline()
        if deadline is None:
            return
        if self._timer is not None:
            if deadline >= self._timer_at:
                return
            self._timer.cancel()
        self._timer_at = deadline
        seconds = max(0.0, deadline / 1000 - time.monotonic())
        self._timer = asyncio.get_running_loop().call_later(seconds, self._ring)

    def _ring(self) -> None:
        self._timer = None
        self.begin()
        until_ns = time.monotonic_ns() + TURN_NS  # the rest is due in the next round of the loop
        self.purgatory.expire(
            time.monotonic() * 1000, self.now_ms, lambda: time.monotonic_ns() < until_ns
        )
        self.settle()

    async def stop(self) -> None:
        """Answer everybody who waits as if their time had come, and from now on whoever would wait,
        also for a quota. What no thread reads yet is not read: whoever asked for it is hung up."""
        self._is_stopping = True
        self.begin()
        self.purgatory.finish_all(self.now_ms)
        self.settle()
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
        for task in tuple(self._tasks):
            task.cancel()
        if self._warmers is not None:
            self._warmers.shutdown(wait=False, cancel_futures=True)

    @property
    def routes(self) -> tuple[Route, ...]:
        """The API keys and versions asked for so far, with their counts."""
        return tuple(self._routes.values())


def _end(future: asyncio.Future[None]) -> None:
    if not future.done():
        future.set_result(None)


def warm_all(reads: Sequence[ColdRead]) -> None:
    """Bring some ranges into memory, one after the other; runs in a thread."""
    for read in reads:
        read.warm()


def unsupported_api_versions(handler: Handler, correlation_id: int) -> list[Piece]:
    """KIP-511: version 0, UNSUPPORTED_VERSION, and the versions of ApiVersions itself."""
    from anabranch.core.wire.messages.api_versions import ApiVersion, ApiVersionsResponse

    mine = ApiVersion(
        api_key=API_VERSIONS_KEY, min_version=handler.versions[0], max_version=handler.versions[-1]
    )
    answer = ApiVersionsResponse(error_code=ErrorCode.UNSUPPORTED_VERSION, api_keys=[mine])
    return frame_response(correlation_id, answer, 0)
