"""Questions of this broker's machines to other brokers, and what came of them.

What: a machine of core that needs another broker (the partition that asks a coordinator whether a
transaction goes on, the coordinator that has markers written) leaves an `Ask` here. The shell sends
it over the inter-broker listener, and gives back the answer, or None when there is none, as a step
of its own.

Rules kept: each ask ends exactly once, unless this process ends first; nothing is sent twice from
here: retrying, and giving up, are for the machine that asked. At most MOST_UNDER_WAY asks of one
broker are under way. Answers of one lane come in the order of its asks, so a machine whose asks
wait for something on the other side has a lane of its own: it would hold up the others' answers,
and two brokers could wait for each other. Not here: sockets (`server/peers.py`), the controller
(`core.step.Wish`), copying (`core.replication`).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeAlias

from anabranch.core.due import Mark, unmarked

MOST_UNDER_WAY = 1_000
"""Asks of one broker that have not ended. A machine has one under way for each broker and purpose;
this is the limit for what one does wrong, and for a broker that answers nothing."""

MARKERS, VERIFICATIONS, JOINS = "markers", "verifications", "joins"
"""The lanes: markers wait for replicas of any partition; verifications for a record of their
coordinator at most; joins for the markers of the transaction before."""

ASK_MS = 30_000
"""How long an answer is waited for: Kafka's request.timeout.ms between brokers."""

Told: TypeAlias = Callable[[Any], None]
"""Called with the response, or with None when none came: it may or may not have been done."""


@dataclass(frozen=True, slots=True, eq=False)
class Ask:
    """Send `message` to a broker, in the newest version that both speak, at most `most_version`."""

    broker_id: int
    lane: str
    message: Any
    told: Told
    timeout_ms: int = ASK_MS
    most_version: int | None = None


class Peers:
    """What this broker asks of others."""

    def __init__(self, mark: Mark = unmarked) -> None:
        self._mark = mark
        self._asks: list[Ask] = []
        self._asks_last: dict[Callable[[], None], None] = {}
        self._under_way: Counter[int] = Counter()

    def ask(
        self,
        broker_id: int,
        lane: str,
        message: Any,
        told: Told,
        *,
        timeout_ms: int = ASK_MS,
        most_version: int | None = None,
    ) -> bool:
        """Ask a broker, perhaps this one; `told` is called in a later step. False, and nothing is
        asked and nobody told, when too many asks of that broker are under way."""
        if self._under_way[broker_id] >= MOST_UNDER_WAY:
            return False
        self._under_way[broker_id] += 1
        self._mark()
        self._asks.append(Ask(broker_id, lane, message, told, timeout_ms, most_version))
        return True

    def ask_last(self, ask: Callable[[], None]) -> None:
        """Have `ask` called once at the end of this step, after its answers have left: one message
        then says all that the step has brought."""
        self._asks_last[ask] = None
        self._mark()

    def take_effects(self) -> list[Ask]:
        """What is to be sent, in order; the shell answers for each with `answered`."""
        if self._asks_last:
            asks_last, self._asks_last = self._asks_last, {}
            for ask in asks_last:
                ask()
        if not self._asks:
            return []
        taken, self._asks = self._asks, []
        return taken

    def answered(self, ask: Ask, answer: Any) -> None:
        """The response has come; None: there was none."""
        self._under_way[ask.broker_id] -= 1
        if not self._under_way[ask.broker_id]:
            del self._under_way[ask.broker_id]
        ask.told(answer)

    @property
    def under_way(self) -> int:
        """Asks that have not ended."""
        return self._under_way.total()
