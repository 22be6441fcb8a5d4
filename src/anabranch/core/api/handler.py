"""What a request handler is: the contract between the meaning of a request and the shell around it.

A handler is a plain function `(node, request, now_ms) -> Outcome`. It decides; the shell acts on
what it returned: sends a message, parks a `Wait`, makes a `Propose` durable, passes a `Forward` on
to the active controller, or closes the connection. A handler reads no clock and touches no socket,
so the simulator runs the very same functions.

One file an API key (`p00_produce.py`), each exposing `HANDLER`. ApiVersions is made from them.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeAlias

from anabranch.core.access.principal import Principal
from anabranch.core.controller.result import Result

if TYPE_CHECKING:
    from anabranch.core.log.files import ColdRead


@dataclass(slots=True)
class Request:
    """One decoded request and who sent it.

    `body` is the message class of the API in the sender's version; its `records` fields are slices
    of the frame as it was received, writable, and owned by this request alone.
    """

    api_key: int
    version: int
    correlation_id: int
    client_id: str | None
    body: Any
    principal: Principal
    listener: str
    client_host: str
    connection_id: int


@dataclass(slots=True)
class Wait:
    """The answer depends on something that has not happened yet.

    The shell calls `poll(now_ms, expired)` whenever one of `keys` changes and once, with
    `expired=True`, at `deadline_ms`. `poll` returns the answer, or None to go on waiting; with
    `expired=True` it must answer. `most_bytes` says how large the answer may become, where that is
    much: the shell lets one client wait for so much only.
    """

    keys: tuple[Hashable, ...]
    deadline_ms: int
    poll: Callable[[int, bool], Any | None]
    most_bytes: int = 0


@dataclass(slots=True)
class Propose:
    """A controller's decision: `result.records` must be durable before `result.response` is sent.

    When `result.records` is empty the response is sent at once.
    """

    result: Result[Any]


@dataclass(slots=True)
class Forward:
    """Only the active controller can answer: the shell sends it on in an Envelope (KIP-590)."""


@dataclass(slots=True)
class Cold:
    """The answer needs bytes that are not in the page cache.

    The shell warms `read` in a thread and then calls `again(now_ms)` for the next outcome. Not the
    handler: what it has already stepped (a fetch session's epoch) must step once. A `Wait.poll` may
    return one too.
    """

    read: ColdRead
    again: Callable[[int], Any]

    def __post_init__(self) -> None:
        self.read.forget_frames()


@dataclass(slots=True)
class NoAnswer:
    """The protocol has no response here (Produce with acks=0)."""


@dataclass(slots=True)
class Hangup:
    """Close the connection after what was already promised is sent; `why` goes to the log."""

    why: str


Outcome: TypeAlias = Any  # Message | Wait | Cold | Propose | Forward | NoAnswer | Hangup
Run: TypeAlias = Callable[[Any, Request, int], Outcome]


@dataclass(frozen=True, slots=True)
class Handler:
    """An API key: who serves it and in which versions.

    `broker` runs on client listeners with a `Broker` as its first argument, `controller` on the
    controller listener with a `Controller`. None means: not served there, and not advertised there.
    `advertised` differs from `versions` only where Kafka's does (Produce, KAFKA-18659).
    """

    api_key: int
    name: str
    versions: range
    broker: Run | None = None
    controller: Run | None = None
    advertised: range | None = None
    forwards_some: bool = False
    """Whether a broker that answers some of these itself leaves others to the controller."""
    kips: tuple[str, ...] = ()
    skipped: tuple[str, ...] = field(default=())
    """What Kafka does here and Anabranch does not, a sentence each; the ledger test reads it."""


def forward(_node: Any, _request: Request, _now_ms: int) -> Forward:
    """The broker half of every API that only the controller decides."""
    return Forward()
