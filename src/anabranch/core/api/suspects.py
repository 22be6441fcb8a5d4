"""Brokers that do not answer this broker any more, while the controller has yet to say so.

What: a follower is the first to notice that a leader's process has ended: its fetch breaks off. The
controller's verdict is a matter of milliseconds, and clients ask for metadata within them. Why it
matters: librdkafka asks once when a connection breaks and then looks again after a second; and it
tears down its handle of a broker that an answer leaves out, which costs it another second when that
broker led something (seen with version 2.16). Rules kept: an answer waits for a verdict for
VERDICT_MS after the first failure at most, so that a cut cable does not slow everybody; a suspect
stays listed for as long as its session would have lasted, which is as long as Kafka lists a dead
broker; another incarnation is no suspect. Nothing else is decided by a suspicion.
Not here: fencing (`core.controller.hints`), which brokers an answer names (`metadata_view`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from anabranch.core.metadata.image import BrokerImage, MetadataImage

VERDICT_MS = 500
"""How long a client waits to hear who leads now: a controller that died itself takes 300 ms to be
succeeded; more would be a stall of its own where the cause is the network."""


class _Suspicion(NamedTuple):
    broker_epoch: int
    since_ms: int


class Suspects:
    """Who does not answer, since when. Times are of the steady clock."""

    def __init__(self) -> None:
        self._since: dict[int, _Suspicion] = {}

    def __bool__(self) -> bool:
        """Whether there is any."""
        return bool(self._since)

    def await_verdict(self, now_ms: int) -> bool:
        """Whether the controller's word about anybody may be due: asked before leaders are."""
        return any(now_ms < known.since_ms + VERDICT_MS for known in self._since.values())

    def no_answer(self, broker: BrokerImage | None, now_ms: int) -> None:
        """A request to that broker failed. Only the first failure in a row counts, and only of a
        broker that did not say goodbye."""
        if broker is None or not broker.active:
            return
        known = self._since.get(broker.broker_id)
        if known is None or known.broker_epoch != broker.epoch:
            self._since[broker.broker_id] = _Suspicion(broker.epoch, now_ms)

    def answered(self, broker_id: int) -> None:
        """It lives."""
        self._since.pop(broker_id, None)

    def verdict_ms(self, image: MetadataImage, broker_id: int, now_ms: int) -> int:
        """When waiting for the controller's word about this broker ends; 0 where none is due."""
        known, broker = self._since.get(broker_id), image.brokers.get(broker_id)
        if known is None or broker is None:
            return 0
        until_ms = known.since_ms + VERDICT_MS
        is_open = broker.epoch == known.broker_epoch and not broker.fenced
        return until_ms if is_open and now_ms < until_ms else 0

    def stays_listed(self, broker: BrokerImage, now_ms: int, session_ms: int) -> bool:
        """Whether clients still hear of a fenced broker."""
        known = self._since.get(broker.broker_id)
        if known is None or known.broker_epoch != broker.epoch:
            return False
        return now_ms < known.since_ms + session_ms
