"""Where records lie: the runs that this broker knows of each partition.

What: two stretches of runs without a hole for each partition: its end, which grows with each commit
that is heard of, and the place of a reader that is far behind. Why: readers at the end, nearly all
of them, then ask the coordinator nothing. Rules kept: a run is taken only where it follows what is
known, else the stretch begins anew; all partitions together keep a bounded number, of which those
used longest ago go; offsets that the coordinator has lost (a restore may leave such a hole) are
passed over. Not here: what was read from objects (`blocks.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import OrderedDict
from collections.abc import Sequence
from operator import attrgetter

from anabranch.core.diskless.rows import LogKey, Run

MOST_RUNS = 200_000
"""Of all partitions together: some 50 MB."""
MOST_RUNS_OF_ONE = 2_000
"""Of one stretch: an hour of a partition, of which two objects a second have something."""
MOST_JOINED = MOST_RUNS_OF_ONE // 4
"""Runs at the end to which those before them are added: what was just found must not be trimmed."""
MOST_SKIPS = 1_000
"""Places of readers before offsets that are lost: hardly any partition has such offsets."""
_BASE = attrgetter("base_offset")


class ConsecutiveRuns:
    """Runs of one partition that follow each other."""

    __slots__ = ("runs",)

    def __init__(self) -> None:
        self.runs: list[Run] = []

    @property
    def end_offset(self) -> int:
        """After the last run; -1 without any."""
        return self.runs[-1].end_offset if self.runs else -1

    def extend(self, runs: Sequence[Run]) -> None:
        """Take runs that follow; those that are known are passed over, and a hole begins anew."""
        for run in runs:
            end_offset = self.end_offset
            if end_offset >= run.end_offset:
                continue
            if end_offset != run.base_offset and self.runs:
                self.runs.clear()
            self.runs.append(run)
        if len(self.runs) > MOST_RUNS_OF_ONE:
            del self.runs[: len(self.runs) - MOST_RUNS_OF_ONE // 2]

    def find(self, offset: int, max_bytes: int) -> list[Run]:
        """The runs from the one that holds an offset, up to a number of bytes and at least one."""
        runs = self.runs
        at = bisect_right(runs, offset, key=_BASE) - 1
        if at < 0 or runs[at].end_offset <= offset:
            return []
        last, size = at, runs[at].byte_size
        while last + 1 < len(runs) and size + runs[last + 1].byte_size <= max_bytes:
            last += 1
            size += runs[last].byte_size
        return runs[at : last + 1]

    def trim(self, start_offset: int) -> None:
        """Forget what lies before the partition's start."""
        at = bisect_right(self.runs, start_offset, key=_BASE) - 1
        if at >= 0 and self.runs[at].end_offset <= start_offset:
            at += 1
        if at > 0:
            del self.runs[:at]


class Coordinates:
    """The stretches of all partitions, the one used longest ago first."""

    def __init__(self) -> None:
        self._known: OrderedDict[LogKey, tuple[ConsecutiveRuns, ConsecutiveRuns]] = OrderedDict()
        self._count = 0
        self._skips: dict[tuple[LogKey, int], int] = {}
        """Offsets at which there is nothing, and where the next records begin."""

    def __len__(self) -> int:
        return self._count

    def appended(self, key: LogKey, runs: Sequence[Run]) -> None:
        """Runs were committed."""
        near, _ = self._of(key)
        before = len(near.runs)
        near.extend(runs)
        self._counted(len(near.runs) - before)

    def found(self, key: LogKey, runs: Sequence[Run], offset: int) -> None:
        """The coordinator told these, which are the first at an offset or behind it: they lead up
        to the end, or are far from it."""
        if not runs:
            return
        if runs[0].base_offset > offset:
            self._skip(key, offset, runs[0].base_offset)
        runs = _side_by_side(runs)
        near, far = self._of(key)
        before = len(near.runs) + len(far.runs)
        first, end = runs[0].base_offset, runs[-1].end_offset
        if not near.runs or near.runs[0].base_offset <= first:
            near.extend(runs)
        elif end >= near.runs[0].base_offset and len(near.runs) <= MOST_JOINED:
            known, near.runs = near.runs, []
            near.extend(runs)
            near.extend(known)
        else:
            far.runs = list(runs)
        self._counted(len(near.runs) + len(far.runs) - before)

    def ended(self, key: LogKey, offset: int, end_offset: int) -> None:
        """The coordinator told that there is nothing from an offset on, up to its end."""
        self._skip(key, offset, end_offset)

    def is_lost(self, key: LogKey, offset: int, end_offset: int) -> bool:
        """Whether there is nothing from an offset on, up to the partition's end."""
        return self._skips.get((key, offset), offset) >= end_offset

    def find(self, key: LogKey, offset: int, max_bytes: int) -> tuple[list[Run], bool]:
        """The runs from the one that holds an offset, or from the next one where it is lost, none
        when they are not known; whether they are far from the end."""
        stretches = self._known.get(key)
        if stretches is None:
            return [], False
        self._known.move_to_end(key)
        if self._skips:
            offset = self._skips.get((key, offset), offset)
        near, far = stretches
        runs = near.find(offset, max_bytes)
        return (runs, False) if runs else (far.find(offset, max_bytes), True)

    def newest(self, key: LogKey) -> Sequence[Run]:
        """The runs that are known at the end of a partition."""
        stretches = self._known.get(key)
        return () if stretches is None else stretches[0].runs

    def trim(self, key: LogKey, start_offset: int) -> None:
        """The partition begins later now."""
        for stretch in self._known.get(key, ()):
            before = len(stretch.runs)
            stretch.trim(start_offset)
            self._count += len(stretch.runs) - before

    def forget(self, key: LogKey) -> None:
        """The partition is gone."""
        stretches = self._known.pop(key, None)
        if stretches is not None:
            self._count -= sum(len(each.runs) for each in stretches)

    def clear(self) -> None:
        """Something may have been missed: ask for all of it again."""
        self._known.clear()
        self._count = 0

    def _skip(self, key: LogKey, offset: int, base_offset: int) -> None:
        while len(self._skips) >= MOST_SKIPS:
            del self._skips[next(iter(self._skips))]
        self._skips[key, offset] = base_offset

    def _of(self, key: LogKey) -> tuple[ConsecutiveRuns, ConsecutiveRuns]:
        stretches = self._known.get(key)
        if stretches is None:
            stretches = self._known[key] = (ConsecutiveRuns(), ConsecutiveRuns())
        else:
            self._known.move_to_end(key)
        return stretches

    def _counted(self, change: int) -> None:
        self._count += change
        while self._count > MOST_RUNS and len(self._known) > 1:
            self.forget(next(iter(self._known)))


def _side_by_side(runs: Sequence[Run]) -> Sequence[Run]:
    """Those before the first offset that is lost."""
    for at in range(1, len(runs)):
        if runs[at].base_offset != runs[at - 1].end_offset:
            return runs[:at]
    return runs
