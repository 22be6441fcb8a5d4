"""How far a broker's view of diskless partitions is behind the coordinator, in records.

What: `coordinator_lag` is the coordinator's high watermark minus the one that this broker knows: it
stays above 0 when a watch is slow or broken. `cache_build_lag` is the same minus the end of the
newest records whose bytes this broker has in memory: what readers at the end would wait for.
Rules kept: with more than MOST_SERIES partitions only those that are behind are told to metrics, as
many at most; a partition that this broker was never asked for has no lag here. Source: the
design of diskless topics. Not here: asking the coordinator (the shell).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple, Protocol

from anabranch.core.diskless.rows import LogKey, LogState

if TYPE_CHECKING:
    from anabranch.core.diskless.blocks import Blocks
    from anabranch.core.diskless.coordinates import Coordinates
    from anabranch.core.diskless.partition import DisklessPartition

MOST_SERIES = 10_000
"""Partitions that are told: all of them, or as many that are behind."""

MOST_RUNS_LOOKED_AT = 50
"""From the end of a partition: what is cached is what was written or read last."""


class Lag(NamedTuple):
    """One partition, in records."""

    topic: str
    partition: int
    coordinator_lag: int
    cache_build_lag: int

    @property
    def is_steady(self) -> bool:
        """Whether nothing is behind."""
        return not self.coordinator_lag and not self.cache_build_lag


def cached_end(coordinates: Coordinates, blocks: Blocks, key: LogKey, start_offset: int) -> int:
    """The end of the newest records in memory; the partition's start when there are none."""
    for run in reversed(coordinates.newest(key)[-MOST_RUNS_LOOKED_AT:]):
        if blocks.has(run.object_key, run.byte_offset, run.byte_size):
            return max(run.end_offset, start_offset)
    return start_offset


class Behind(Protocol):
    """What this asks of a broker's diskless half."""

    coordinates: Coordinates
    blocks: Blocks

    @property
    def by_key(self) -> Mapping[LogKey, DisklessPartition]:
        """The partitions that it was asked for."""


class Lags:
    """What was measured last, by partition."""

    def __init__(self, diskless: Behind) -> None:
        self._diskless = diskless
        self._known: dict[LogKey, Lag] = {}

    def told(self, keys: Sequence[LogKey], states: Sequence[LogState | None]) -> None:
        """The coordinator has just told where partitions stand."""
        for key, state in zip(keys, states, strict=True):
            partition = self._diskless.by_key.get(key)
            if partition is None or partition.state is None or state is None:
                self._known.pop(key, None)
            else:
                self._known[key] = self._lag(partition, partition.state, state)

    def _lag(self, partition: DisklessPartition, here: LogState, there: LogState) -> Lag:
        diskless = self._diskless
        start = max(here.start_offset, there.start_offset)
        end = cached_end(diskless.coordinates, diskless.blocks, partition.key, start)
        return Lag(
            *partition.topic_partition,
            max(0, there.high_watermark - here.high_watermark),
            max(0, there.high_watermark - end),
        )

    def all(self) -> list[Lag]:
        """Of each partition that this broker was asked for, by name."""
        return sorted(self._present())

    def series(self) -> Iterable[Lag]:
        """Those that metrics have, by name: never more than MOST_SERIES, since clients wait while a
        page is made."""
        lags = list(self._present())
        if len(lags) > MOST_SERIES:
            lags = list(islice((each for each in lags if not each.is_steady), MOST_SERIES))
        return sorted(lags)

    def _present(self) -> Iterator[Lag]:
        by_key = self._diskless.by_key
        return (lag for key, lag in self._known.items() if key in by_key)

    def forget_gone(self) -> None:
        """Partitions that this broker has let go."""
        for key in self._known.keys() - self._diskless.by_key.keys():
            del self._known[key]
