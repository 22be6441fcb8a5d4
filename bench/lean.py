"""Many connections from one thread: requests made beforehand, answers cut and counted.

Why not a client library: a server that answers 50,000 requests a second is measured only by a
driver that spends a few microseconds on each. Messages are encoded once, with the message classes
of `anabranch.core.wire`; what differs from request to request (a correlation id, an offset) is
written over in place.

Rule kept: an answer belongs to the oldest request of its connection; an answer of the wrong length
or with the wrong correlation id ends the run.
"""

from __future__ import annotations

import select
import socket
import time
from collections import deque
from collections.abc import Callable, Sequence
from struct import Struct

from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.schema import Message

SIZE = Struct(">i")
CORRELATION_AT = 8
"""Behind the frame's size, the API key and the version."""
RECEIVED_BYTES = 256 << 10
CLIENT_ID = "bench"
WAIT_SECONDS = 60.0


def dial(port: int, source: str = "") -> socket.socket:
    """A blocking connection to a server on this machine, from the loopback address `source`."""
    place = (source, 0) if source else None
    opened = socket.create_connection(("127.0.0.1", port), WAIT_SECONDS, source_address=place)
    opened.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return opened


def frame_of(message: Message, version: int, correlation_id: int = 0) -> bytearray:
    """A whole request, its size before it."""
    return bytearray(b"".join(frame_request(correlation_id, CLIENT_ID, message, version)))


def receive(line: socket.socket, size: int) -> bytes:
    """Exactly `size` bytes of a blocking socket."""
    got = bytearray()
    while len(got) < size:
        piece = line.recv(size - len(got))
        if not piece:
            raise SystemExit("the server closed a connection")
        got += piece
    return bytes(got)


def ask(line: socket.socket, message: Message, version: int) -> Message:
    """One request and its answer on a blocking socket."""
    line.sendall(frame_of(message, version))
    (size,) = SIZE.unpack(receive(line, 4))
    response = API_KEYS[type(message).api_key].response
    return read_response(receive(line, size), response, version)[1]


class Line:
    """One connection of a `Crowd`: its requests in flight and what has arrived of the answers."""

    __slots__ = ("frame", "is_over", "received", "sent_at", "socket")

    def __init__(self, opened: socket.socket, frame: bytearray) -> None:
        self.socket = opened
        self.frame = frame
        self.sent_at: deque[float] = deque()
        self.received = b""
        self.is_over = False


class Crowd:
    """Connections that each keep some requests in flight until the time is up."""

    def __init__(self, lines: Sequence[Line], *, change: Callable[[bytearray, int], None]) -> None:
        self.lines = {line.socket.fileno(): line for line in lines}
        self.change = change
        self.sent = 0
        self.taken_ms: list[float] = []
        self.refused = 0

    def run(self, seconds: float, in_flight: int, expected: bytes) -> float:
        """Keep `in_flight` on each connection; returns the seconds to the last answer.

        `expected` is an answer behind its correlation id; every other answer counts as refused.
        """
        poll = select.epoll()
        begin = time.perf_counter()
        for number, line in self.lines.items():
            poll.register(number, select.EPOLLIN)
            self._send(line, in_flight)
        end = begin + seconds
        owed = len(self.lines) * in_flight
        while owed:
            ready = poll.poll(WAIT_SECONDS)
            if not ready:
                raise SystemExit(f"{owed} answers did not come within {WAIT_SECONDS:g} s")
            for number, _ in ready:
                line = self.lines[number]
                answered = self._take(line, expected)
                if time.perf_counter() < end:
                    self._send(line, answered)
                else:
                    owed -= answered
        poll.close()
        return time.perf_counter() - begin

    def _send(self, line: Line, count: int) -> None:
        frames = []
        now = time.perf_counter()
        for _ in range(count):
            self.sent += 1
            self.change(line.frame, self.sent)
            frames.append(bytes(line.frame))
            line.sent_at.append(now)
        line.socket.sendall(b"".join(frames))

    def _take(self, line: Line, expected: bytes) -> int:
        received = line.received + line.socket.recv(RECEIVED_BYTES)
        now = time.perf_counter()
        position = count = 0
        while len(received) - position >= 4:
            stop = position + 4 + SIZE.unpack_from(received, position)[0]
            if stop > len(received):
                break
            self.refused += received[position + 8 : stop] != expected
            self.taken_ms.append((now - line.sent_at.popleft()) * 1000)
            count += 1
            position = stop
        line.received = received[position:]
        return count


def quantile(figures: Sequence[float], share: float) -> float:
    """The figure below which `share` of them lie."""
    return sorted(figures)[int(share * (len(figures) - 1))]
