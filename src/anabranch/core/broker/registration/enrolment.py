"""A node's controller makes itself known: it registers with the active one, if that is not known.

What: looks at each new image of the metadata; when this incarnation is not in it, the active
controller is told, until it is. Why: every node can then name all controllers, and no feature is
raised to a level that one of them lacks. Rules kept: a controller that lacks a level which the
cluster uses stops with one sentence; one whose id another process takes says so, and does not
contend with it for every change. The shape is that of `registration.py`. Source: KIP-919. Not here:
what is decided (`core/controller/brokers/controllers.py`).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from enum import Enum
from typing import Any

from anabranch.core.broker.registration.active_controller import PATIENCE_MS
from anabranch.core.broker.registration.events import (
    Answered,
    Ask,
    Effect,
    GiveUp,
    MetadataMoved,
    Say,
    Unanswered,
)
from anabranch.core.errors import Bug, ErrorCode
from anabranch.core.metadata.features import (
    CONTROLLERS_SINCE,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.types import NEVER_MS
from anabranch.core.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    Feature,
    Listener,
)

AGAIN_MS = 500
"""Before the metadata, which is a little behind an answer, is looked at again."""
TWIN_PAUSE_MS = 30_000
"""Pause after another process registered under the own id: two would replace each other at once."""

EnrolmentEvent = MetadataMoved | Answered | Unanswered


class Progress(Enum):
    """How far a controller is with making itself known."""

    IDLE = "nothing is to be told"
    ASKING = "a request is under way"
    PAUSING = "it looks again after a pause"


class Enrolment:
    """One controller's registration. `endpoints` are host and port by listener name; `image` gives
    the newest metadata."""

    def __init__(
        self,
        node_id: int,
        incarnation_id: bytes,
        endpoints: Mapping[str, tuple[str, int]],
        image: Callable[[], MetadataImage],
        features: Mapping[str, tuple[int, int]] = SUPPORTED_FEATURES,
    ) -> None:
        self.incarnation_id = incarnation_id
        self.state = Progress.IDLE
        self._node_id = node_id
        self._endpoints = endpoints
        self._image = image
        self._features = features
        self._was_known = False
        self._effects: list[Effect] = []
        self._in_flight: Ask | None = None
        self._due_ms = NEVER_MS
        self._now_ms = 0

    def step(self, event: EnrolmentEvent, now_ms: int) -> None:
        """Take an event. Raises Bug for one that cannot happen in the present state."""
        self._now_ms = now_ms
        act = TABLE[self.state].get(type(event))
        if act is None:
            raise Bug(f"{type(event).__name__} in state {self.state.name}")
        act(self, event)

    def tick(self, now_ms: int) -> None:
        """Do what is due."""
        self._now_ms = now_ms
        if self.state is Progress.PAUSING and now_ms >= self._due_ms:
            self._look()

    @property
    def next_tick_ms(self) -> int:
        """When `tick` has something to do, NEVER_MS for never."""
        return self._due_ms if self.state is Progress.PAUSING else NEVER_MS

    def take_effects(self) -> list[Effect]:
        """What is to be done now, in order."""
        effects, self._effects = self._effects, []
        return effects

    def _is_due(self) -> bool:
        image = self._image()
        if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
            return False
        known = image.controllers.get(self._node_id)
        return known is None or known.incarnation_id != self.incarnation_id

    def _note(self, _event: Any = None) -> None:
        known = self._image().controllers.get(self._node_id)
        if known is not None and known.incarnation_id == self.incarnation_id:
            self._was_known = True

    def _moved(self, event: MetadataMoved) -> None:
        self._note(event)
        self._look()

    def _look(self) -> None:
        """Ask if that is due; not at once where another process has just taken the id."""
        self.state, self._in_flight = Progress.IDLE, None
        if not self._is_due():
            return
        if self._was_known and self._node_id in self._image().controllers:
            self._was_known = False
            sentence = "another process runs as this controller; run one process for each node.id"
            self._effects.append(Say(sentence, "", is_error=True))
            self._pause(TWIN_PAUSE_MS)
            return
        self.state = Progress.ASKING
        self._in_flight = Ask(self._request(), self._now_ms, PATIENCE_MS)
        self._effects.append(self._in_flight)

    def _pause(self, pause_ms: int) -> None:
        self.state, self._in_flight = Progress.PAUSING, None
        self._due_ms = self._now_ms + pause_ms

    def _answered(self, event: Answered) -> None:
        if event.ask is not self._in_flight:
            return
        code = ErrorCode(event.response.error_code)
        if code is ErrorCode.NONE:
            self._pause(AGAIN_MS)
            return
        self.state, self._in_flight = Progress.IDLE, None
        why = event.response.error_message or ""
        if code is ErrorCode.UNSUPPORTED_VERSION and self._is_due():
            sentence = (
                f"controller {self._node_id} is too old for this cluster: {why} Install a version "
                "that supports it"
            )
            self._effects.append(GiveUp(code, sentence))
        else:
            self._effects.append(
                Say("the controller is not registered", f"{code.name} {why}".rstrip())
            )

    def _unanswered(self, event: Unanswered) -> None:
        if event.ask is self._in_flight:
            self._effects.append(Say("the controller is not registered", event.why))
            self._pause(AGAIN_MS)

    def _ignore(self, _event: Any) -> None:
        """An answer to what is not asked any more."""

    def _request(self) -> ControllerRegistrationRequest:
        return ControllerRegistrationRequest(
            controller_id=self._node_id,
            incarnation_id=self.incarnation_id,
            listeners=[
                Listener(name=name, host=host, port=port)
                for name, (host, port) in self._endpoints.items()
            ],
            features=[
                Feature(name=name, min_supported_version=low, max_supported_version=high)
                for name, (low, high) in sorted(self._features.items())
            ],
        )


TABLE: dict[Progress, dict[type, Callable[[Enrolment, Any], None]]] = {
    Progress.IDLE: {
        MetadataMoved: Enrolment._moved,
        Answered: Enrolment._ignore,
        Unanswered: Enrolment._ignore,
    },
    Progress.ASKING: {
        MetadataMoved: Enrolment._note,
        Answered: Enrolment._answered,
        Unanswered: Enrolment._unanswered,
    },
    Progress.PAUSING: {
        MetadataMoved: Enrolment._note,
        Answered: Enrolment._ignore,
        Unanswered: Enrolment._ignore,
    },
}
"""State -> event -> what is done."""
