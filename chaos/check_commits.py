"""Whether what groups were told is committed stands in `__consumer_offsets`, as the disks have it.

What: every acknowledged commit of the histories is looked for among the records of its group and
partition. Rules kept: a commit that was asked for after another one was acknowledged stands behind
it; one record may stand for several that were under way together, never for two one after the
other. Of a compacted log a commit may be gone that a later one replaced. Nothing else is allowed to
be lost: neither are records. Not here: where members began to read, which shows a loss only if the
group moves at that moment (`check.py`); whether replicas are equal (`replicas.py`).
"""

from __future__ import annotations

from bisect import bisect_right
from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from heapq import heappop, heappush
from pathlib import Path
from typing import NamedTuple

import msgspec

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.offsets_records import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from anabranch.sim.checks.violation import Violation
from chaos.replicas import Copy, read_folder

OFFSETS_TOPIC = "__consumer_offsets"
COMMIT = b'"op":"commit"'
BEFORE_ALL = -1

Key = tuple[str, str]
"""A group, and a partition as `topic-partition`."""


class Acknowledged(NamedTuple):
    """A commit that a member was told of: when it asked, when it was told, what it committed."""

    asked: int
    told: int
    offset: int
    client: str


@dataclass
class Written:
    """What a log has of one group and partition, in its order. A deleted offset has no place in
    `where`, but it is the last record all the same."""

    clean_to: int = 0
    """Before it records that were replaced may have been taken away."""
    last: int = BEFORE_ALL
    where: dict[int, list[int]] = field(default_factory=lambda: defaultdict(list))
    """Committed offset -> where its records stand."""

    def add(self, at: int, offset: int | None) -> None:
        """One more record."""
        self.last = at
        if offset is not None:
            self.where[offset].append(at)

    def first_after(self, bound: int, offset: int) -> int | None:
        """Where an offset is committed for the first time behind a record."""
        places = self.where.get(offset, [])
        index = bisect_right(places, bound)
        return places[index] if index < len(places) else None

    def may_be_replaced(self, bound: int) -> bool:
        """Whether a record behind `bound` may have been compacted away: another one is there."""
        return bound + 1 < self.clean_to and bound < self.last


def acknowledged(histories: Iterable[Path]) -> dict[Key, list[Acknowledged]]:
    """All acknowledged commits."""
    found: dict[Key, list[Acknowledged]] = defaultdict(list)
    for path in histories:
        with path.open("rb") as lines:
            for line in lines:
                if COMMIT in line and line.endswith(b"}\n"):
                    told = msgspec.json.decode(line)
                    if told["op"] == "commit" and told["ok"]:
                        asked = told.get("asked", BEFORE_ALL)
                        commit = Acknowledged(asked, told["t"], told["offset"], told["client"])
                        found[told["group"], told["at"]].append(commit)
    return found


def written(folders: Iterable[Path]) -> dict[Key, Written]:
    """What the offsets topic holds: of each partition the longest replica, since the nodes that are
    left write to it while others are stopped."""
    replicas: dict[int, list[Copy]] = defaultdict(list)
    for folder in folders:
        for place, copy in read_folder(Path(folder)).items():
            if place.topic == OFFSETS_TOPIC:
                replicas[place.partition].append(copy.read())
    found: dict[Key, Written] = {}
    for copies in replicas.values():
        _read(max(copies, key=lambda copy: copy.end), found)
    return found


def _read(copy: Copy, found: dict[Key, Written]) -> None:
    for record in copy.records():
        try:
            key = decode_key(record.key or b"")
        except ProtocolError:
            continue
        if isinstance(key, OffsetCommitKey):
            at = (key.group, f"{key.topic}-{key.partition}")
            known = found.setdefault(at, Written(max(0, copy.clean_to)))
            value = record.value
            offset = None if value is None else decode_value(OffsetCommitValue, value).offset
            known.add(record.offset, offset)


def forgotten(key: Key, commits: list[Acknowledged], log: Written) -> Iterator[Violation]:
    """The commits of one group and partition that are not where they must be."""
    bound, under_way = BEFORE_ALL, list[tuple[int, int]]()
    for commit in sorted(commits):
        while under_way and under_way[0][0] < commit.asked:
            bound = max(bound, heappop(under_way)[1])
        at = log.first_after(bound, commit.offset)
        if at is not None:
            heappush(under_way, (commit.told, at))
        elif not log.may_be_replaced(bound):
            yield Violation(
                "group-commit", "A commit was acknowledged and is not in the offsets topic.",
                {"group": key[0], "partition": key[1], "offset": commit.offset,
                 "client": commit.client, "told": commit.told, "behind": bound, "last": log.last},
            )  # fmt: skip


def judge(histories: Iterable[Path], folders: Iterable[Path]) -> Iterator[Violation]:
    """Everything that was promised to groups and is not kept."""
    logs = written(folders)
    for key, commits in sorted(acknowledged(histories).items()):
        yield from forgotten(key, commits, logs.get(key, Written()))
