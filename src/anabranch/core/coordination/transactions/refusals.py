"""Which refusals of transactional requests are said in the log, and how many of them.

Why: a client that is told a code may keep it to itself, and whoever looks for a fenced or mistaken
producer then has the broker's log alone. Rules kept: only codes that tell of a wrong producer or a
wrong place, never those that pass by themselves; a few lines in a while, the rest is counted, since
a producer that is fenced may go on asking. Not here: writing (`server.late_transactions`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.due import Mark, unmarked
from anabranch.core.errors import ERRORS, ErrorCode
from anabranch.core.sentences import shortened

if TYPE_CHECKING:
    from anabranch.core.request import Request

MOST_SAID = 5
"""Refusals that are named within `WHILE_MS`."""
WHILE_MS = 1_000

OF_PRODUCERS = frozenset(
    {
        ErrorCode.INVALID_PRODUCER_ID_MAPPING,
        ErrorCode.PRODUCER_FENCED,
        ErrorCode.INVALID_PRODUCER_EPOCH,
        ErrorCode.TRANSACTION_COORDINATOR_FENCED,
    }
)
OF_PLACES = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED})
"""Said of what joins a transaction or is to get its marker. Who produces to a topic that is gone
has stale metadata."""


class Refusal(NamedTuple):
    """A request that was refused, for the log."""

    request: str
    transactional_id: str | None
    """None for markers, which name the producer alone."""
    producer_id: int
    producer_epoch: int
    client_id: str
    client_host: str
    code: ErrorCode
    why: str
    unsaid: int
    """How many were not named since the last one that was."""


class Refusals:
    """Those of one broker. Calls are for the loop's thread."""

    def __init__(self, mark: Mark = unmarked) -> None:
        self._mark = mark
        self.said: list[Refusal] = []
        self._unsaid = 0
        self._since_ms = 0
        self._named = 0

    def note(
        self,
        request: Request,
        name: str,
        code: int,
        *,
        transactional_id: str | None,
        producer: tuple[int, int],
        now_ms: int,
        place: str = "",
    ) -> None:
        """A request of this name is answered with a code, 0 for none; `now_ms` is steady."""
        if code not in OF_PRODUCERS and code not in OF_PLACES:
            return
        if now_ms - self._since_ms >= WHILE_MS:
            self._since_ms, self._named = now_ms, 0
        if self._named >= MOST_SAID or len(self.said) >= MOST_SAID:
            self._unsaid += 1
            return
        self._named += 1
        known = ErrorCode(code)
        sentence = ERRORS[known].sentence
        self.said.append(
            Refusal(
                name, transactional_id and shortened(transactional_id), *producer,
                shortened(request.client_id or ""), request.client_host,
                known, f"{place}: {sentence}" if place else sentence, self._unsaid,
            )
        )  # fmt: skip
        self._unsaid = 0
        self._mark()

    def take_said(self) -> list[Refusal]:
        """What is to be written into the log, once."""
        said, self.said = self.said, []
        return said
