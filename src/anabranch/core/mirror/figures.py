"""What a mirror has moved, by partition, as MirrorMaker 2's metrics have it.

What: `Spread` keeps a time in milliseconds as MirrorMaker 2 does: the last one, the least, the
most, and the average by records. A task counts what it moves in `Moved`; `Movements` adds up what
tasks answer: counts of all waves, times and rates of the newest whole one. `kept` bounds the series
of a metric. Rules kept: batches are not opened, so the times of a batch are those of its first and
of its latest record, which its header has; what has no samples has no least, most and average.
Source: KIP-382, MirrorMaker 2's MirrorSourceMetrics and MirrorCheckpointMetrics.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, NamedTuple, TypeVar

import msgspec

T = TypeVar("T")
WINDOW_MS = 60_000
"""As long as the two samples that Kafka's clients keep."""
MOST_SERIES = 2_000
"""Partitions, and places of groups, that have series of their own; 14 series each."""


class Spread(msgspec.Struct):
    """Times in milliseconds; nothing but `last` means anything while `count` is 0."""

    last: int = 0
    least: int = 0
    most: int = 0
    total: float = 0.0
    count: int = 0

    def add(self, least: int, most: int, count: int = 1) -> None:
        """`count` times that lie between two, evenly as far as is known."""
        self.last = least
        self.least = min(self.least, least) if self.count else least
        self.most = max(self.most, most) if self.count else most
        self.total += (least + most) / 2 * count
        self.count += count

    @property
    def average(self) -> float:
        """Over all that were added; only where there are some."""
        return self.total / self.count


class RecentSpread:
    """A spread over at most the last two minutes, begun anew each minute."""

    def __init__(self) -> None:
        self.spread = Spread()
        self._began_ms = 0

    def add(self, time_ms: int, now_ms: int) -> None:
        """One time, seen now."""
        if now_ms - self._began_ms >= WINDOW_MS:
            self.spread, self._began_ms = Spread(), now_ms
        self.spread.add(time_ms, time_ms)

    def at(self, now_ms: int) -> Spread:
        """What is known now: of older times the last alone."""
        if now_ms - self._began_ms >= 2 * WINDOW_MS:
            return Spread(last=self.spread.last)
        return self.spread


class Moved(msgspec.Struct):
    """What one task moved of a partition in a wave; `topic` is the target's name of it."""

    topic: str
    partition: int
    records: int = 0
    size_bytes: int = 0
    age: Spread = msgspec.field(default_factory=Spread)
    """Of records when they were fetched."""
    latency: Spread = msgspec.field(default_factory=Spread)
    """Of records when they were acknowledged, or committed in a transaction."""

    def add(
        self, records: int, size_bytes: int, times: tuple[int, int], *, arrived_ms: int,
        landed_ms: int,
    ) -> None:  # fmt: skip
        """One batch with its header's base time and latest time; without a time (-1) it has no
        age. A base time that is later than the latest one is a delete horizon."""
        self.records += records
        self.size_bytes += size_bytes
        base, latest = times
        if latest < 0:
            return
        first = base if 0 <= base <= latest else latest
        self.age.add(max(0, arrived_ms - latest), max(0, arrived_ms - first), records)
        self.latency.add(max(0, landed_ms - latest), max(0, landed_ms - first), records)


class Place(NamedTuple):
    """A partition of the target, in a flow."""

    source: str
    target: str
    topic: str
    partition: int


class Movement(NamedTuple):
    """A partition since the mirror began, and in the newest wave."""

    records: int
    size_bytes: int
    wave: Moved
    wave_seconds: float
    """0 where the newest wave moved nothing of it."""

    @property
    def record_rate(self) -> float:
        """Records a second."""
        return self.wave.records / self.wave_seconds if self.wave_seconds else 0.0

    @property
    def byte_rate(self) -> float:
        """Bytes a second."""
        return self.wave.size_bytes / self.wave_seconds if self.wave_seconds else 0.0


class Movements:
    """All partitions that a mirror has moved something of."""

    def __init__(self) -> None:
        self._known: dict[Place, Movement] = {}

    def wave_ended(self, moved: Iterable[tuple[str, str, Moved]], seconds: float) -> None:
        """A whole wave: what its tasks moved, by source and target."""
        for place, old in self._known.items():
            rest = Moved(old.wave.topic, old.wave.partition, age=Spread(last=old.wave.age.last),
                         latency=Spread(last=old.wave.latency.last))  # fmt: skip
            self._known[place] = old._replace(wave=rest, wave_seconds=0.0)
        for source, target, each in moved:
            place = Place(source, target, each.topic, each.partition)
            before = self._known.get(place)
            records, size_bytes = (before.records, before.size_bytes) if before else (0, 0)
            self._known[place] = Movement(
                records + each.records, size_bytes + each.size_bytes, each, seconds
            )

    def all(self) -> list[tuple[Place, Movement]]:
        """Every partition, by name."""
        return sorted(self._known.items(), key=lambda each: each[0])


def kept(
    items: Iterable[T], key: Callable[[T], Any], most: int = MOST_SERIES
) -> tuple[list[T], int]:
    """The first `most` by `key`, and how many are left out."""
    ordered = sorted(items, key=key)
    return ordered[:most], max(0, len(ordered) - most)
