"""Reads the facts of remote segments of one database for one process: only what has changed.

Rule kept: what is known is bounded by the number of segments; the partition that was asked for
longest ago is read as a whole again. Not here: what has changed (`core/remote/known_segments.py`).
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from threading import Lock
from typing import TYPE_CHECKING

from anabranch.core.remote.facts import Facts
from anabranch.core.remote.known_segments import KnownSegments

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey
    from anabranch.core.remote.segments import EpochStart
    from anabranch.stores.coordinator.remote_tables import FactsRead, RemoteTables

MOST_SEGMENTS = 500_000
"""Of all partitions together: pointers to what their readers have in memory."""


class RemoteFactReads:
    """What one process knows. Its calls wait; they may be made in several threads."""

    def __init__(self) -> None:
        self._known: OrderedDict[LogKey, KnownSegments] = OrderedDict()
        self._lock = Lock()
        self._held = 0
        """Segments of all that is known."""

    def lead(
        self,
        on: RemoteTables,
        key: LogKey,
        topic: str,
        leader_epoch: int,
        epochs: Sequence[EpochStart] = (),
    ) -> Facts:
        """See `RemoteFacts`."""
        known = self._of(key)
        return self._facts(key, known, on.lead(key, topic, leader_epoch, epochs, known.number))

    def look(self, on: RemoteTables, key: LogKey) -> Facts | None:
        """See `RemoteFacts`."""
        known = self._of(key)
        found = on.look(key, known.number)
        return None if found is None else self._facts(key, known, found)

    def _of(self, key: LogKey) -> KnownSegments:
        with self._lock:
            known = self._known.pop(key, None) or KnownSegments()
            self._held -= len(known.segments)
            return known

    def _facts(self, key: LogKey, known: KnownSegments, found: FactsRead) -> Facts:
        segments = known.take(found.changed)
        with self._lock:
            self._keep(key, known)
        return Facts(found.log_start, segments, found.now_ms)

    def _keep(self, key: LogKey, known: KnownSegments) -> None:
        other = self._known.pop(key, None)
        self._held += len(known.segments) - (0 if other is None else len(other.segments))
        self._known[key] = known
        while self._held > MOST_SEGMENTS:
            _, dropped = self._known.popitem(last=False)
            self._held -= len(dropped.segments)
