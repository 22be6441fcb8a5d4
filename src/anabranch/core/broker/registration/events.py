"""What happens to a registration, and what it wants done: frozen messages, both ways.

Events come from the shell (`Registration.step`), effects go to it (`take_effects`) and are done in
order. `Ask` is sent to the active controller; its answer, or that there was none, comes back with
the very effect, and an answer to an effect that is not under way any more changes nothing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import msgspec

if TYPE_CHECKING:
    from anabranch.core.errors import ErrorCode


# Effects


class Ask(msgspec.Struct, frozen=True, eq=False):
    """Send a request to the active controller, and look for that as long as `patience_ms` says;
    None stands for ever."""

    request: Any
    asked_ms: int
    patience_ms: int | None = None


class Registered(NamedTuple):
    """The controller gave this process its broker epoch."""

    broker_epoch: int


class Serve(NamedTuple):
    """The broker's own metadata shows it unfenced for the first time: clients may come."""


class Left(NamedTuple):
    """The controlled shutdown is over. `why` says why the controller did not permit it, "" when it
    did."""

    why: str


class GiveUp(NamedTuple):
    """The process must not go on."""

    code: ErrorCode
    sentence: str


class Say(NamedTuple):
    """Something that an operator should know. `why` may be empty."""

    sentence: str
    why: str
    is_error: bool = False


Effect: TypeAlias = Ask | Registered | Serve | Left | GiveUp | Say


# Events


class Start(NamedTuple):
    """The process begins: register."""


class Answered(NamedTuple):
    """The active controller has answered."""

    ask: Ask
    response: Any


class Unanswered(NamedTuple):
    """No active controller answered in time."""

    ask: Ask
    why: str


class MetadataMoved(NamedTuple):
    """The broker acts on newer metadata."""


class LogsOpen(NamedTuple):
    """Everything that the metadata wants hosted here is open and safe on disk."""


class FoldersChanged(NamedTuple):
    """A log folder failed, became full, or has room again."""


class ControllerFound(NamedTuple):
    """Another controller answers as the active one: it has not heard of this broker yet."""


class ShutDown(NamedTuple):
    """The process should stop in order."""


Event: TypeAlias = (
    Start
    | Answered
    | Unanswered
    | MetadataMoved
    | LogsOpen
    | FoldersChanged
    | ControllerFound
    | ShutDown
)
