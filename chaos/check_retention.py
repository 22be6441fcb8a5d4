"""Whether records are gone before the retention of their topic allows it.

What: a log begins where a leader said it does, or where an audit found it; every acknowledged
record before that must have been older than `retention.ms` at that moment, and a reader that goes
on without being told anything is shown every record that must be there still. Of a topic bounded by
size so many bytes must be left on each disk. Rules kept: a record's time is not before it was
handed to its client; a clock that was wrong excuses what it can explain. Not here: whether records
are removed in time.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import accumulate
from pathlib import Path
from typing import Any

from anabranch.core.types import TopicPartition
from anabranch.sim.checks.violation import Violation
from anabranch.sim.history import OK, Poll, Send
from chaos.replicas import Copy, read_folder

Line = Mapping[str, Any]
SHARE = 2
"""One part in so many of `retention.bytes` must be left: what was cut off at the end of a log had
counted when old segments were removed."""


def may_be_gone(sent_us: int, seen_us: int, retention_ms: int, clocks: Iterable[Line]) -> bool:
    """Whether a record that was sent then may have been removed by then."""
    need_us = retention_ms * 1000
    if seen_us - sent_us >= need_us:
        return True
    return any(
        line["began"] < seen_us
        and line["t"] > sent_us
        and min(seen_us, line["t"]) - sent_us + abs(line["seconds"]) * 1e6 >= need_us
        for line in clocks
    )


def deleted_early(
    sends: Iterable[Send],
    starts: Sequence[tuple[int, int]],
    retention_ms: int,
    clocks: Sequence[Line],
) -> Iterator[Violation]:
    """Acknowledged records before a log's start, (time, offset), that were too young to go."""
    furthest = list(accumulate((start for _, start in starts), max))
    for send in sends:
        first = bisect_right(furthest, send.offset)
        if send.outcome == OK and send.offset >= 0 and first < len(starts):
            at_us, start = starts[first]
            if not may_be_gone(send.invoked_us, at_us, retention_ms, clocks):
                yield _early(send, at_us, {"log_start": start})


def skipped(
    polls: Iterable[Poll], sends: Iterable[Send], retention_ms: int, clocks: Sequence[Line]
) -> Iterator[Violation]:
    """Acknowledged records that a reader went past while they had to be there."""
    known = {send.offset: send for send in sends if send.outcome == OK and send.offset >= 0}
    for poll in polls:
        if not poll.records:
            continue
        shown = {offset for offset, _ in poll.records}
        for offset in range(poll.position, poll.records[-1][0]):
            send = known.get(offset)
            if send is not None and offset not in shown:
                if not may_be_gone(send.invoked_us, poll.at_us, retention_ms, clocks):
                    yield _early(send, poll.at_us, {"client": poll.client})


def _early(send: Send, at_us: int, more: dict[str, Any]) -> Violation:
    return Violation(
        "deleted-early", "An acknowledged record was gone before its retention was over.",
        {"partition": send.place, "record": send.id, "offset": send.offset,
         "age_ms": (at_us - send.invoked_us) // 1000, **more},
    )  # fmt: skip


def too_short(folders: Iterable[Path], bounded: Mapping[str, int]) -> Iterator[Violation]:
    """Replicas on disk of which more was removed than the size of their topics allows."""
    for folder in folders:
        for place, copy in read_folder(Path(folder)).items():
            least = bounded.get(place.topic, 0) // SHARE
            if copy.start > 0 and (left := _bytes(copy)) < least:
                yield _short(place, copy, left, least)


def _bytes(copy: Copy) -> int:
    return sum(path.stat().st_size for path in copy.path.glob("*.log"))


def _short(place: TopicPartition, copy: Copy, left: int, least: int) -> Violation:
    return Violation(
        "deleted-early", "More was removed than the retention by size allows.",
        {"partition": place, "folder": copy.folder.name, "log_start": copy.start,
         "bytes": left, "least": least},
    )  # fmt: skip
