"""What a handler gives back: the answer, or what has to happen before there is one.

What: `Outcome`, a union of the message and eight small classes that whoever runs it acts on.
Rules kept: a handler never waits; what waits composes (`then`, `when_all`), so that an answer is
changed on its way out and no `poll` is replaced; reads that are missing are named all at once
(`Cold`), and their end marks a key like any other event. Source of the idea: etcd/raft's Ready.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, TypeAlias, TypeVar

import msgspec

from anabranch.core.controller.result import Result
from anabranch.core.wire.schema import Message

if TYPE_CHECKING:
    from anabranch.core.access.principal import Principal
    from anabranch.core.log.files import ColdRead

MOST_READS = 1_000
"""Ranges that one round brings in: more than disks work on at once; the next round has others."""

Told = TypeVar("Told")


class Wait(msgspec.Struct):
    """The answer depends on something that has not happened yet.

    `poll(now_ms, expired)` is called whenever one of `keys` changes and once, with `expired=True`,
    at `deadline_ms`. `poll` returns the outcome, or None to go on waiting; with `expired=True` it
    must answer, if only with a Wait for something else, of which there is an end. `most_bytes` says
    how large the answer may become, or what the request holds until then, where that is much: one
    client may wait for so much only. `holds_up` keeps what its client sends behind it from being
    run before there is an answer. `is_urgent`: others wait for what the client does with the
    answer, which is sent before the next request is looked at.
    """

    keys: tuple[Hashable, ...]
    deadline_ms: int
    poll: Callable[[int, bool], Any | None]
    most_bytes: int = 0
    holds_up: bool = False
    is_urgent: bool = False

    def then(self, tell: Callable[[Any], Any]) -> Wait:
        """A Wait for what `tell` makes of the answer."""
        look = self.poll

        def poll(now_ms: int, expired: bool) -> Any | None:
            found = look(now_ms, expired)
            return None if found is None else then(found, tell)

        return Wait(
            self.keys, self.deadline_ms, poll, self.most_bytes, self.holds_up, self.is_urgent
        )


@dataclass(slots=True, eq=False)
class Cold:
    """The answer needs bytes that are not in memory: all of `reads`, in one round.

    They are brought in with `ColdRead.warm`, in threads or wherever nobody waits, and then this
    object itself is a key that has changed: it is polled like a Wait, once, and goes on with
    `again(now_ms)`. That is not the handler: what it has already stepped (a fetch session's epoch)
    must step once. A `Wait.poll` may return one too.
    """

    reads: tuple[ColdRead, ...]
    again: Callable[[int], Any]
    fault: BaseException | None = None
    """What else than the disk went wrong while the bytes were brought in."""

    def __post_init__(self) -> None:
        for read in self.reads:
            read.forget_frames()

    @property
    def keys(self) -> tuple[Hashable, ...]:
        """The key that is marked when all reads have ended."""
        return (self,)

    def poll(self, now_ms: int, _expired: bool) -> Any:
        """The next outcome."""
        if self.fault is not None:
            raise self.fault
        return self.again(now_ms)

    def then(self, tell: Callable[[Any], Any]) -> Cold:
        """The same reads, for what `tell` makes of the answer."""
        again = self.again
        return Cold(self.reads, lambda now_ms: then(again(now_ms), tell))


@dataclass(slots=True)
class Propose:
    """A controller's decision: `result.records` must be durable before `result.response` is sent.

    When `result.records` is empty the response is sent at once.
    """

    result: Result[Any]


@dataclass(slots=True)
class Accept:
    """The peer has shown who it is: its session is `principal`'s, until `expires_ms` of the steady
    clock (NO_TIME_MS: for good), and `answer` tells it so. The session accepts it before the answer
    is sent, so that the peer's next request finds it so."""

    principal: Principal
    expires_ms: int
    answer: Message
    is_by_token: bool = False
    """Whether it has shown a delegation token."""


@dataclass(slots=True)
class Refuse:
    """Send `answer`, then close the connection; `why` goes to the log. `is_login`: the peer has not
    shown who it is."""

    answer: Message
    why: str
    is_login: bool = False


@dataclass(slots=True)
class Forward:
    """Only the active controller can answer: it is asked in an Envelope (KIP-590)."""


@dataclass(slots=True)
class NoAnswer:
    """The protocol has no response here (Produce with acks=0)."""


@dataclass(slots=True)
class Hangup:
    """Close the connection after what was already promised is sent; `why` goes to the log."""

    why: str


Outcome: TypeAlias = Message | Wait | Cold | Propose | Accept | Refuse | Forward | NoAnswer | Hangup
Decided: TypeAlias = Outcome | Result[Any]
"""What a controller's own handler gives: its decision is proposed for it."""


def then(outcome: Any, tell: Callable[[Any], Told]) -> Told | Wait | Cold:
    """What `tell` makes of an answer, at once or when there is one."""
    if isinstance(outcome, Wait | Cold):
        return outcome.then(tell)
    return tell(outcome)


def when_all(parts: Iterable[Any], respond: Callable[[list[Any]], Told]) -> Told | Wait:
    """What `respond` makes of all parts once none of them is a Wait, or a Wait for that. A part may
    wait for something else afterwards. Each has its own time: a Wait until the first deadline goes
    on, when that is over, with a Wait for the others."""
    found = list(parts)
    waits = {index: part for index, part in enumerate(found) if isinstance(part, Wait)}
    if not waits:
        return respond(found)

    deadline_ms = min(wait.deadline_ms for wait in waits.values())

    def poll(now_ms: int, expired: bool) -> Any | None:
        goes_on = expired  # the others have more time
        for index, wait in tuple(waits.items()):
            part = wait.poll(now_ms, expired and wait.deadline_ms <= deadline_ms)
            if part is not None:
                found[index] = part
                goes_on = goes_on or isinstance(part, Wait)
                del waits[index]
        return when_all(found, respond) if goes_on or not waits else None

    return Wait(
        tuple(key for wait in waits.values() for key in wait.keys),
        deadline_ms,
        poll,
        most_bytes=sum(wait.most_bytes for wait in waits.values()),
        holds_up=any(wait.holds_up for wait in waits.values()),
        is_urgent=any(wait.is_urgent for wait in waits.values()),
    )
