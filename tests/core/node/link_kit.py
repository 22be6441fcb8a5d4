"""Connections in memory: a `Channel` on real `Requests`, over a link whose peer is the test.

`World` is one role of a node with a clock that the test moves. What requests ask for (reads,
decisions, forwards) waits in `calls` until the test ends it. A request says in its client id what
its handler does with it, see `Asked`.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any, NamedTuple

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Charge
from anabranch.core.diskless.reads import FarRead, StateOf
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.log.files import ColdRead
from anabranch.core.node import channel as channels
from anabranch.core.node.channel import Channel
from anabranch.core.node.requests import Requests
from anabranch.core.node.turns import Turns
from anabranch.core.outcome import Cold, Forward, Hangup, NoAnswer, Propose, Wait
from anabranch.core.step import Mailbox, Performer, drain
from anabranch.core.wire.frame import frame_request
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.api_versions import ApiVersionsResponse
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)

CLUSTER, VERSIONS = 60, 18
LENT = b"lent"
"""An answer with these bytes keeps the link of `MemoryLink` busy until its peer has taken it."""
BUDGETS = {
    "QUEUED_HIGH_BYTES": 4_000,
    "QUEUED_LOW_BYTES": 1_000,
    "UNSENT_HIGH_BYTES": 1_500,
    "UNSENT_LOW_BYTES": 400,
    "PROMISED_HIGH_BYTES": 2_000,
    "UNANSWERED_REQUESTS": 20,
}
"""Small ones, so that a few requests reach them."""


class Broken(RuntimeError):
    """What no code expected."""


class Asked(NamedTuple):
    """What a request has its handler do: answer at once, wait, hold up, be brought …"""

    kind: str
    size: int = 10
    """Of the answer."""
    promise: int = 0
    """What a wait says that it may bring."""
    wait_ms: int = 100

    def told(self) -> str:
        return ",".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Asked:
        kind, *numbers = text.split(",")
        return cls(kind, *map(int, numbers))


def frame_of(number: int, asked: Asked, *, version: int = 0, pad: int = 0) -> memoryview:
    """A request without its size; `pad` makes it longer."""
    pieces = frame_request(number, asked.told(), DescribeClusterRequest(), version)
    return memoryview(bytearray(b"".join(map(bytes, pieces))[4:] + bytes(pad)))


def old_frame_of(number: int) -> memoryview:
    """ApiVersions in a version that nobody knows (KIP-511)."""
    return memoryview(bytearray(struct.pack(">hhih", VERSIONS, 99, number, -1) + b"\0\0\0"))


class MemoryLink:
    """A link whose peer takes bytes when the test says so."""

    def __init__(self) -> None:
        self.channel: Channel
        self.is_busy = False
        self.reads = True
        self.closed = ""
        self.is_paused = False
        self.fault: Exception | None = None
        self.waiting = bytearray()
        self.taken = bytearray()
        self.sends = 0
        self.on_close: Callable[[], None] = lambda: None
        self.wrongs: list[str] = []
        """What was asked of it that may not be: whoever asks takes an exception for its own."""

    @property
    def unsent_bytes(self) -> int:
        return len(self.waiting)

    def send(self, pieces: list[Any], size_bytes: int) -> None:
        if self.is_busy:
            self.wrongs.append("what is ready follows what is on its way")
        if self.closed == "at once":
            self.wrongs.append("nothing is sent over a connection that is closed")
        if self.fault is not None:
            raise self.fault
        data = b"".join(map(bytes, pieces))
        if len(data) != size_bytes:
            self.wrongs.append("as many bytes are sent as were said")
        self.sends += 1
        self.waiting += data
        self.is_busy = self.is_busy or LENT in data
        if self.unsent_bytes > channels.UNSENT_HIGH_BYTES and not self.is_paused:
            self.is_paused = True
            self.channel.paused()

    def blame(self, fault: BaseException) -> str:
        return "" if isinstance(fault, ConnectionError) else str(fault)

    def read(self, *, is_on: bool) -> None:
        if is_on == self.reads:
            self.wrongs.append("what is read, or is not, is told so once")
        self.reads = is_on

    def close(self, *, at_once: bool) -> None:
        if not at_once and not self.closed:
            self.on_close()
        self.closed = "at once" if at_once else self.closed or "in order"

    def take(self, size: int) -> bool:
        """The peer takes some bytes; whether the channel is to hear that it may go on."""
        self.taken += self.waiting[:size]
        del self.waiting[:size]
        resumes = self.is_busy and not self.waiting
        self.is_busy = self.is_busy and not resumes
        if self.is_paused and self.unsent_bytes <= channels.UNSENT_LOW_BYTES:
            self.is_paused, resumes = False, True
        return resumes

    def answers(self) -> list[tuple[int, int]]:
        """(correlation id, size) of the whole answers that the peer has taken."""
        found, at = [], 0
        while at + 4 <= len(self.taken):
            (size,) = struct.unpack_from(">i", self.taken, at)
            if at + 4 + size > len(self.taken):
                break
            found.append((struct.unpack_from(">i", self.taken, at + 4)[0], size))
            at += 4 + size
        return found


class Memory:
    """What all connections hold."""

    def __init__(self) -> None:
        self.held_bytes = 0

    def release(self, size: int) -> None:
        self.held_bytes -= size


class Lines:
    """Turns that go on when the test says so."""

    def __init__(self) -> None:
        self.turns: Turns[Channel] = Turns()

    def line_up(self, member: Channel) -> None:
        self.turns.line_up(member)

    def go_on(self, has_time: Callable[[], bool]) -> None:
        """A turn: all in line run, each while it has time."""
        self.turns.start(0)
        while (member := self.turns.pick(0)) is not None:
            if not member.has_runnable:
                self.turns.pass_over(member)
                continue
            member.run_queued(has_time)
            self.turns.served(member, 0)
            if member.has_runnable:
                self.turns.line_up(member)
                break
        self.turns.end(0)


class Quota:
    """A source of limits that the test sets: so many milliseconds of rest for each request."""

    def __init__(self) -> None:
        self.rest_ms = 0
        self.charged: list[tuple[Charge, float]] = []

    def charge(
        self, _principal: Any, _client_id: Any, charge: Charge, amount: float, _now_ms: int
    ) -> int:
        self.charged.append((charge, amount))
        return self.rest_ms

    def take_back(self, *_what: Any) -> bool:
        self.charged.pop()
        return True


class World(Performer):
    """One role of a node: its requests, and what they asked for."""

    def __init__(self) -> None:
        self.mailbox = Mailbox()
        self.clock_ms = 1_000
        self.memory, self.lines, self.quota = Memory(), Lines(), Quota()
        self.calls: deque[tuple[Callable[[Any], None], Any]] = deque()
        """(done, what it gives in the end) of the calls that are under way."""
        self.far: deque[Callable[[], None]] = deque()
        self.ran: list[int] = []
        self.lacks: dict[int, set[str]] = {}
        """What requests lack that was not brought yet."""
        self.wrongs: list[str] = []
        self.on_run: Callable[[int], None] = lambda _number: None
        self.unexpected_faults: list[BaseException] = []
        self.of_broker: Callable[[Any], bool] = lambda _body: False
        self.settle: Callable[[], None] = lambda: drain(self.mailbox, self)
        world = SimpleNamespace(
            authorizer=AllowAll(), bringers=SimpleNamespace(bring=self.bring_far)
        )
        handler = Handler(
            CLUSTER, "DescribeCluster", API_KEYS[CLUSTER].versions, broker=self.handle,
            charge=Charge.FETCH, of_broker=lambda body: self.of_broker(body),
        )  # fmt: skip
        old = Handler(
            VERSIONS, "ApiVersions", API_KEYS[VERSIONS].versions,
            broker=lambda *_: ApiVersionsResponse(), opens_session=True,
        )  # fmt: skip
        self.requests = Requests(
            "broker", world, {CLUSTER: handler, VERSIONS: old}, self, self.mailbox
        )
        self.requests.quotas = self.quota
        self.begin()

    # A performer, and the shell of requests.

    def begin(self) -> None:
        self.requests.steady_ms = self.clock_ms
        self.requests.now_ms = self.clock_ms + 1_000_000

    def now_ns(self) -> int:
        return self.clock_ms * 1_000_000

    def wake_waiting(self, keys: Iterable[Any]) -> None:
        self.requests.purgatory.wake(keys, self.requests.now_ms)

    refusing = 0
    """How many of the next calls cannot be begun."""

    def refuse(self) -> None:
        if self.refusing:
            self.refusing -= 1
            raise Broken("on purpose")

    def warm(self, reads: Any, done: Callable[[Any], None]) -> None:
        self.refuse()

        def warmed(fault: Any) -> None:
            self.lacks[reads[0].position].discard("near")
            done(fault)

        self.calls.append((warmed, None))

    def propose(self, proposal: Any, done: Callable[[Any], None]) -> None:
        self.refuse()
        self.calls.append((done, proposal.result))

    def forward(self, frame: Any, request: Any, done: Callable[[Any], None]) -> None:
        self.refuse()
        size = Asked.read(request.client_id).size
        self.calls.append((done, struct.pack(">i", request.correlation_id) + b"f" * size))

    def unexpected(self, _route: Any, _request: Any, fault: BaseException) -> None:
        self.unexpected_faults.append(fault)

    def bring_far(self, reads: Any, done: Callable[[], None]) -> None:
        self.refuse()

        def brought() -> None:
            self.lacks[reads[0].ask.since].discard("far")
            done()

        self.far.append(brought)

    # What handlers do.

    def handle(self, _world: Any, request: Any, now_ms: int) -> Any:
        asked, number = Asked.read(request.client_id), request.correlation_id
        self.ran.append(number)
        self.on_run(number)
        return self.outcome(asked, asked.kind, number, now_ms)

    def outcome(self, asked: Asked, kind: str, number: int, now_ms: int) -> Any:
        answer = DescribeClusterResponse(cluster_id="x" * asked.size)
        if kind.startswith("then "):  # once there are news
            return Wait(
                ("news",), now_ms + asked.wait_ms,
                lambda now_ms, expired: (
                    self.outcome(asked, kind.removeprefix("then "), number, now_ms)
                    if expired or self.news
                    else None
                ),
                asked.promise,
            )  # fmt: skip
        match kind:
            case "lent":
                return DescribeClusterResponse(cluster_id="lent" + "x" * asked.size)
            case "wait" | "hold up" | "urgent":
                return Wait(
                    ("news",), now_ms + asked.wait_ms,
                    lambda _now_ms, expired: answer if expired or self.news else None,
                    asked.promise, kind == "hold up", kind == "urgent",
                )  # fmt: skip
            case "near" | "far" | "both":
                reads: list[Any] = []
                if kind != "far":
                    file = SimpleNamespace(path="file", forget_frames=lambda *_: None)
                    reads.append(ColdRead(file, number, 1))
                if kind != "near":
                    reads.append(FarRead(StateOf((b"t" * 16, 0), number)))
                self.lacks[number] = {"near", "far"} if kind == "both" else {kind}

                def again(_now_ms: int) -> Any:
                    if self.lacks[number]:
                        self.wrongs.append("a request goes on when all that it lacks is there")
                    return answer

                return Cold(tuple(reads), again)
            case "propose":
                return Propose(answer)
            case "forward":
                return Forward()
            case "nothing":
                return NoAnswer()
            case "hang up":
                return Hangup("on purpose")
            case "refuse":
                raise ApiError(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
            case "fail":
                raise Broken("on purpose")
        return answer

    news = False

    # What the test does.

    def connect(self) -> tuple[Channel, MemoryLink, list[tuple[str, bool]]]:
        """A connection, its link, and why it was hung up."""
        link, said = MemoryLink(), []
        channel = link.channel = Channel(
            self.requests, link, self.lines, self.memory,
            lambda why, is_own: said.append((why, is_own)), listener="TEST", host="peer",
        )  # fmt: skip
        return channel, link, said

    def step(self, act: Callable[..., Any], *args: Any) -> None:
        """An event of its own."""
        self.begin()
        with self.blaming():
            act(*args)
            self.settle()

    @contextmanager
    def blaming(self) -> Iterator[None]:
        """A step in which only requests may fail."""
        try:
            yield
        except Broken as fault:
            raise AssertionError("a step ended with the fault of a request") from fault

    def receive(self, channel: Channel, *frames: memoryview) -> None:
        """What one read of the socket brought."""

        def take() -> None:
            for frame in frames:
                channel.take(frame)
                if channel.closing:
                    break
            channel.touch()

        self.step(take)

    def wake(self) -> None:
        """What waits for news has them."""
        self.news = True
        self.step(self.mailbox.changed.setdefault, "news")
        self.news = False

    def end_call(self, fault: Exception | Hangup | None = None) -> None:
        """The oldest call that is under way ends, well or with a fault."""
        if self.calls:
            done, result = self.calls.popleft()
            self.step(done, result if fault is None else fault)

    def end_far(self) -> None:
        if self.far:
            self.step(self.far.popleft())

    def pass_time(self, ms: int) -> None:
        self.clock_ms += ms
        self.step(self.requests.expire, lambda: True)

    def turn(self, requests: int = 1) -> None:
        """Connections in line run so many requests each."""
        left = [requests]

        def has_time() -> bool:
            left[0] -= 1
            return left[0] > 0

        with self.blaming():
            self.lines.go_on(has_time)

    def take(self, link: MemoryLink, size: int) -> None:
        """The peer takes bytes of its answers."""
        if link.take(size):
            self.step(link.channel.resumed)
