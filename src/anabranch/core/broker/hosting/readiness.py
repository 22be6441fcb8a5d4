"""When a broker that starts may be let in: once what its folders hold counts.

What: when everything that was published is followed for the first time, the logs that are being
synced then, or are due for it, are noted; the broker is ready when a round of each has ended. Why:
what recovery found in a log counts, and is shown to others, only once it is on disk; and a broker
that leads nothing yet copies from others all the time, so that some round is always under way. A
round that failed has ended too: its folder is offline, and what it held is not shown. Rule kept: a
process is ready once. Not here: rounds (`syncs.py`), asking the controller
(`core/broker/registration`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.broker.hosting.effects import Effect, Ready

if TYPE_CHECKING:
    from collections.abc import Iterable

    from anabranch.core.types import TopicPartition


class Readiness:
    """See the module."""

    def __init__(self, effects: list[Effect]) -> None:
        self._effects = effects
        self._awaited: set[TopicPartition] | None = None
        """Logs of which a round has to end; None before everything was followed once."""
        self._is_ready = False

    def followed(self, unsafe: Iterable[TopicPartition]) -> None:
        """Everything that was published is followed; these are being synced, or due for it."""
        if self._awaited is None:
            self._awaited = set(unsafe)
            self._look()

    def ended(self, place: TopicPartition) -> None:
        """A round of a log has ended, or it has nothing to sync."""
        if self._awaited is not None and not self._is_ready:
            self._awaited.discard(place)
            self._look()

    def _look(self) -> None:
        if not self._awaited:
            self._is_ready = True
            self._effects.append(Ready())
