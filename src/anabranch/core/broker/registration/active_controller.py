"""Where the active controller is, and when to look elsewhere.

What: `Search` names the controller to ask next, and moves on from one that says that it is not
active, or that cannot be reached. A process that stands still keeps its connections, so after
SILENCE_MS without an answer the other controllers are asked who is active, and a connection is left
for one that says it is; a slow controller that is alone is waited for. Rules kept: what one channel
of a node found is known to its others (`Seen`); `generation` grows with each connection, and what
was learnt on an older one may be out of date. A request is repeated only when the answer says
NOT_CONTROLLER or the connection broke (KIP-590). `addresses_of` says which controllers a node
knows. Not here: connections.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar

from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage

FIRST_PAUSE_MS = 10
LONGEST_PAUSE_MS = 500
PATIENCE_MS = 30_000
"""How long a request looks for an active controller: less than clients wait for an answer."""
SILENCE_MS = 1_000
"""After so long the others are asked; long polls are answered sooner. A dial may take as long at
first: each that takes longer doubles it, up to LONGEST_DIAL_MS."""
LONGEST_DIAL_MS = 10_000

AddressT = TypeVar("AddressT")


def addresses_of(
    given: Iterable[tuple[str, int]], image: MetadataImage, listeners: Sequence[str]
) -> list[tuple[str, int]]:
    """Where a node looks for the active controller: first where it was told to, then where the
    metadata says that controllers are, which may have taken the place of all the others. As in
    Kafka, the first of `controller.listener.names` is what a node connects to."""
    listener = next(iter(listeners), "")
    registered = (image.controllers[each].endpoint(listener) for each in sorted(image.controllers))
    known = ((each.host, each.port) for each in registered if each is not None)
    return list(dict.fromkeys((*given, *known)))


@dataclass(slots=True)
class Seen(Generic[AddressT]):
    """Where the active controller was found last; shared by the channels of one node."""

    active: AddressT | None = None


class Search(Generic[AddressT]):
    """One channel's way to the active controller."""

    def __init__(self, seen: Seen[AddressT] | None = None, *, first: int = 0) -> None:
        """`first` is the position of the address that is asked first."""
        self.seen: Seen[AddressT] = seen or Seen()
        self.address: AddressT | None = None
        """Who is asked, or was last."""
        self.generation = 0
        self.dial_ms = SILENCE_MS
        self._turn = first

    def next_address(self, addresses: Sequence[AddressT]) -> AddressT:
        """Who is to be asked over a new connection. `addresses` is not empty."""
        self.address = self.seen.active
        if self.address is None:
            self.address = addresses[self._turn % len(addresses)]
        return self.address

    def connected(self) -> None:
        """There is a new connection."""
        self.generation += 1
        self.dial_ms = SILENCE_MS

    def not_connected(self, took_ms: float) -> None:
        """A dial came to nothing: one that took all the time it had gets more."""
        if took_ms >= self.dial_ms:
            self.dial_ms = min(2 * self.dial_ms, LONGEST_DIAL_MS)

    def answered(self, error_code: int, asked: AddressT | None = None) -> bool:
        """An answer came; whether it is the active controller's. One of an older connection (of
        `asked`) says nothing about this one."""
        if error_code == ErrorCode.NOT_CONTROLLER:
            return False
        if asked in (None, self.address):
            self.seen.active = self.address
        return True

    def leave(self) -> None:
        """Look elsewhere: this one is not active, or not there."""
        if self.seen.active == self.address:
            self.seen.active = None
        self._turn += 1

    def others_to_ask(self, addresses: Sequence[AddressT]) -> list[AddressT]:
        """Nothing was heard for SILENCE_MS: which controllers are asked whether they are active;
        none where that is known by now."""
        if self.is_elsewhere:
            return []
        return [each for each in addresses if each != self.address]

    def found(self, active: Sequence[AddressT]) -> None:
        """These said that they are active."""
        if active:
            self.seen.active = active[0]

    @property
    def is_elsewhere(self) -> bool:
        """Whether another than the one that is asked is known to be active."""
        return self.seen.active is not None and self.seen.active != self.address


class Attempts:
    """The tries of one request. `patience_ms` None stands for ever."""

    def __init__(self, now_ms: int, patience_ms: int | None = PATIENCE_MS) -> None:
        self._give_up_ms = None if patience_ms is None else now_ms + patience_ms
        self._pause_ms = FIRST_PAUSE_MS

    def pause_ms(self, now_ms: int) -> int | None:
        """The pause before the next try, None when there is none any more."""
        if self._give_up_ms is not None and now_ms > self._give_up_ms:
            return None
        pause_ms, self._pause_ms = self._pause_ms, min(2 * self._pause_ms, LONGEST_PAUSE_MS)
        return pause_ms
