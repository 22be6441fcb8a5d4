"""What a broker's remote logs count, for metrics.

What: requests, bytes and errors of copies, reads and removals, by topic; how idle the rounds and
the reads were over the last minute. Rules kept: what topics counted goes with them, so that nothing
grows; what concerns a topic that was deleted is counted under no name. Source: Kafka's
RemoteStorageMetrics. Not here: names of metrics (`server/metrics.py`).
"""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.core.remote.local_log import CopyLag
from anabranch.core.remote.rounds import Done

DELETED = ""
"""The name under which topics count that are no longer there."""
SAMPLES = 60
"""Of idleness, one a second: Kafka's meters look back about as far."""


class TopicSizes(NamedTuple):
    """What the leaders here last found of a topic's remote log."""

    copy_lag: CopyLag = CopyLag(0, 0)
    delete_lag: CopyLag = CopyLag(0, 0)
    segments: int = 0
    byte_size: int = 0
    computation_ms: int = 0

    def with_(self, done: Done) -> TopicSizes:
        """These, and what the round of another partition found."""
        return self._replace(
            copy_lag=_sum(self.copy_lag, done.lag),
            delete_lag=_sum(self.delete_lag, done.delete_lag),
            segments=self.segments + done.segments,
            byte_size=self.byte_size + done.remote_bytes,
        )


def _sum(one: CopyLag, other: CopyLag) -> CopyLag:
    return CopyLag(one.segments + other.segments, one.byte_size + other.byte_size)


class RemoteStatistics(NamedTuple):
    """One look at a broker's remote logs."""

    totals: Mapping[str, Mapping[str, int]]
    """Topic -> what -> how many."""
    sizes: Mapping[str, TopicSizes]
    idle_share: float
    reader_idle_share: float
    waiting_reads: int
    reads: int
    read_ms: int


class RemoteCounts:
    """Totals by topic."""

    def __init__(self) -> None:
        self.totals: dict[str, Counter[str]] = {}
        self.computation_ms: dict[str, int] = {}
        """How long the facts of a partition last took to read, by topic."""

    def add(self, topic: str, what: str, count: int = 1) -> None:
        """Count something."""
        self.totals.setdefault(topic, Counter())[what] += count

    @contextmanager
    def attempt(self, topic: str, what: str) -> Iterator[None]:
        """Count a request, and the error that it ends with."""
        self.add(topic, f"{what}_requests")
        try:
            yield
        except StorageFault:
            self.add(topic, f"{what}_errors")
            raise

    def keep(self, topics: Collection[str]) -> None:
        """Forget what concerns other topics."""
        self.totals = {
            topic: counts
            for topic, counts in self.totals.items()
            if topic in topics or topic == DELETED
        }
        self.computation_ms = {
            topic: took_ms for topic, took_ms in self.computation_ms.items() if topic in topics
        }


class IdleShare:
    """How much of some slots was free, sampled each second."""

    def __init__(self) -> None:
        self._samples: deque[float] = deque(maxlen=SAMPLES)

    def sample(self, busy: int, slots: int) -> None:
        """Note how many are in use now."""
        self._samples.append(max(0.0, 1 - busy / slots))

    @property
    def value(self) -> float:
        """1 is idle."""
        return sum(self._samples) / len(self._samples) if self._samples else 1.0
