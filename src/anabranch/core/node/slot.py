"""The place of one answer in the order of its connection's answers."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from anabranch.core.api.purgatory import Parked
    from anabranch.core.broker.gate import Session
    from anabranch.core.node.route import Route
    from anabranch.core.request import Request
    from anabranch.core.types import Piece


class Asker(Protocol):
    """A connection as its requests see it: see `core.node.channel.Channel`."""

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

    def hold_up(self) -> None:
        """Take nothing more, and run nothing of what was taken, until `read_on`."""

    def read_on(self) -> None:
        """Go on after `hold_up`."""

    def hang_up(self, why: str) -> None:
        """Say why in the log, send what was promised, and close."""


class Slot:
    """The place of one answer in its connection's order."""

    __slots__ = (
        "asker",
        "buffers",
        "colds",
        "frame",
        "hang_up",
        "held_bytes",
        "is_alone",
        "is_done",
        "is_own_fault",
        "is_urgent",
        "last_reads",
        "missing",
        "parked",
        "promised_bytes",
        "received_bytes",
        "request",
        "route",
        "size_bytes",
        "time_ns",
    )  # fmt: skip

    def __init__(
        self, asker: Asker, route: Route | None, request: Request | None, frame: memoryview | None
    ) -> None:
        self.asker = asker
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
        """Nothing behind it is run before it has ended."""
        self.is_done = False
        self.is_urgent = False
        self.parked: Parked | None = None
        self.colds = 0
        """How many times in a row it lacked the same bytes."""
        self.last_reads: set[tuple[str, int]] = set()
        self.time_ns = 0
        """How long it kept the loop busy until it had to wait, where quotas limit that."""
        self.missing = 0
        """Of what it lacks, how many calls have not ended."""

    @classmethod
    def answered(cls, asker: Asker, buffers: list[Piece]) -> Slot:
        """Of an answer that is there but must wait for the ones before it."""
        slot = cls(asker, None, None, None)
        slot.hold(buffers)
        slot.is_done = True
        return slot

    def promise(self, size_bytes: int) -> None:
        """Say how much the answer may bring; its connection runs only so many such requests."""
        self.asker.promised_bytes += size_bytes - self.promised_bytes
        self.promised_bytes = size_bytes

    def hold(self, buffers: list[Piece]) -> None:
        """Keep the answer until those before it are there; its connection counts its bytes."""
        self.buffers = buffers
        self.held_bytes = sum(map(len, buffers))
        self.asker.held_bytes += self.held_bytes
