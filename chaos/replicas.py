"""`python -m chaos.replicas FOLDER…`: whether the replicas on the disks of nodes are equal.

Of each partition that lies in two or more log folders: every batch of the common range has the same
offsets and the same bytes in all of them. The common range begins at the latest log start and ends
at the highest high watermark; a replica whose log ends before that lacks committed records, but for
internal topics, to which the nodes that are left write while others are stopped. A compacted log
has the same bytes from the furthest clean point on, and as a whole the same latest record of each
key, and before that point never two records at one offset: how far which node has compacted is its
own affair.

The nodes are stopped in order before, after all replicas were in sync. Rule kept: a batch is
compared with its base offset and leader epoch, so that two histories of equal records differ; a
checksum that does not hold or bytes that are no batch are differences too. Not here: the cluster's
metadata log, whose batches each node cuts as it reads them; what clients were told (`check.py`).
"""

from __future__ import annotations

import argparse
import json
import mmap
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Set
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import NamedTuple

from anabranch.core.errors import ProtocolError
from anabranch.core.log import checkpoints
from anabranch.core.log.segment import offset_of
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import BatchHeader, crc_is_valid, walk
from anabranch.core.wire.records import Record, decode_records

METADATA_TOPIC = "__cluster_metadata"
INTERNAL = "__"
DIGEST_BYTES = 16


class Batch(NamedTuple):
    """One batch of one replica: offsets, and a digest of all its bytes."""

    base: int
    end: int
    digest: bytes


@dataclass
class Copy:
    """One replica as its node's disk has it."""

    folder: Path
    place: TopicPartition
    start: int = 0
    high: int = 0
    clean_to: int = -1
    """Up to where it is compacted, -1 for a log that is not."""
    batches: list[Batch] = field(default_factory=list)
    faults: list[str] = field(default_factory=list)

    @property
    def path(self) -> Path:
        """Where its segments lie."""
        return self.folder / f"{self.place.topic}-{self.place.partition}"

    @property
    def end(self) -> int:
        """The offset after the last record."""
        return self.batches[-1].end if self.batches else max(self.start, self.last_base)

    @property
    def first_base(self) -> int:
        """Where its first segment begins: what was before is deleted."""
        return min((offset_of(path.name, ".log") for path in self.path.glob("*.log")), default=0)

    @property
    def last_base(self) -> int:
        """Where its last segment begins: a log may end behind its last record."""
        return max((offset_of(path.name, ".log") for path in self.path.glob("*.log")), default=0)

    def read(self) -> Copy:
        """Read all its segments."""
        for view, at, header in self._walk():
            batch = view[at : at + header.size_bytes]
            if not crc_is_valid(view, at, header.size_bytes):
                self._fault(f"the checksum at offset {header.base_offset} does not hold")
            if self.batches and header.base_offset < self.end:
                self._fault(f"offset {header.base_offset} follows {self.end}")
            digest = blake2b(batch, digest_size=DIGEST_BYTES).digest()
            self.batches.append(Batch(header.base_offset, header.next_offset, digest))
            batch.release()
        return self

    def latest(self, upto: int) -> dict[bytes, tuple[int, bytes]]:
        """Key -> (offset, value) of the last record below `upto`; deleted keys are left out."""
        latest: dict[bytes, tuple[int, bytes | None]] = {}
        for record in self.records():
            if record.offset < upto and record.key is not None:
                latest[record.key] = (record.offset, record.value)
        return {
            key: (offset, value) for key, (offset, value) in latest.items() if value is not None
        }

    def records(self) -> Iterator[Record]:
        """All records but those that end transactions."""
        for view, at, header in self._walk():
            if not header.is_control:
                yield from decode_records(view, at)

    def _leaving(self) -> set[int]:
        """Segments that a compacted one before them stands for, and that go when the node starts:
        it was stopped while it put that one in their place (`core/log/segment_swap.py`)."""
        marks = self.path.glob("*.swapping")
        return {base for mark in marks for base in json.loads(mark.read_bytes())[1:]}

    def _walk(self) -> Iterator[tuple[memoryview, int, BatchHeader]]:
        names = (path for path in self.path.glob("*.log") if offset_of(path.name, ".log") >= 0)
        leaving, reached = self._leaving(), 0
        for path in sorted(names):
            size, base = path.stat().st_size, offset_of(path.name, ".log")
            if not size or (base in leaving and base < reached):
                continue
            with path.open("rb") as file, mmap.mmap(file.fileno(), 0, prot=mmap.PROT_READ) as pages:
                with memoryview(pages) as view:
                    end = 0
                    try:
                        for at, header in walk(view):
                            end, reached = at + header.size_bytes, header.next_offset
                            yield view, at, header
                    except ProtocolError as problem:
                        self._fault(str(problem))
                if end != size:
                    self._fault(f"{size - end} bytes at the end of {path.name} are no batch")

    def _fault(self, what: str) -> None:
        told = f"{self.place.topic}-{self.place.partition} in {self.folder.name}: {what}"
        if told not in self.faults:
            self.faults.append(told)


@dataclass
class Comparison:
    """What was compared, and what differs."""

    differences: list[str] = field(default_factory=list)
    partitions: int = 0
    batches: int = 0
    records: int = 0

    def line(self) -> str:
        """For people."""
        return (
            f"{self.partitions} partitions, {self.batches:,} batches over {self.records:,} offsets"
            f" compared: {len(self.differences)} differences"
        )


def read_folder(folder: Path) -> dict[TopicPartition, Copy]:
    """All replicas of one log folder, without their batches."""
    starts = _offsets(folder / checkpoints.LOG_STARTS)
    highs = _offsets(folder / checkpoints.HIGH_WATERMARKS)
    cleans = _offsets(folder / checkpoints.CLEAN_POINTS)
    copies = {}
    for path in folder.glob(f"*/{checkpoints.PARTITION_METADATA}"):
        topic, _, partition = path.parent.name.rpartition("-")
        if topic == METADATA_TOPIC or not partition.isdigit():
            continue
        place = TopicPartition(topic, int(partition))
        marks = (starts.get(place, 0), highs.get(place, 0), cleans.get(place, -1))
        copies[place] = Copy(folder, place, *marks)
    return copies


def _offsets(path: Path) -> dict[TopicPartition, int]:
    return checkpoints.parse_offsets(path.read_bytes()) if path.exists() else {}


def compare(
    folders: Iterable[Path],
    placed: Mapping[TopicPartition, Collection[str]] | None = None,
    *,
    topics: Iterable[str] | None = None,
    expiring: Collection[str] = (),
) -> Comparison:
    """Compare all replicas in these log folders, of these topics or of all; `placed` names, of each
    partition, the folders that have to hold a replica, and no others. Of topics that are
    `expiring`, each replica may have deleted another number of its first segments."""
    found = [(Path(folder).name, read_folder(Path(folder))) for folder in folders]
    wanted = None if topics is None else set(topics)
    result = Comparison()
    for place in sorted({place for _, copies in found for place in copies} | set(placed or ())):
        if wanted is not None and place.topic not in wanted:
            continue
        copies = {name: each[place] for name, each in found if place in each}
        if placed is not None:
            _compare_places(copies.keys(), set(placed.get(place, ())), _teller(place, result))
        if place.topic in expiring:
            for copy in copies.values():
                copy.start = max(copy.start, copy.first_base)
        if len(copies) > 1:
            compare_copies([copy.read() for copy in copies.values()], result)
    if not result.records:
        result.differences.append("nothing committed has two replicas in these folders")
    return result


def _compare_places(held: Set[str], placed: Set[str], tell: Callable[[str], None]) -> None:
    """A replica is where it was placed and nowhere else."""
    if placed - held:
        tell(f"no replica in {', '.join(sorted(placed - held))}")
    if held - placed:
        tell(f"a replica is left in {', '.join(sorted(held - placed))}")


def compare_copies(copies: list[Copy], result: Comparison) -> None:
    """Compare the replicas of one partition."""
    tell = _teller(copies[0].place, result)
    result.partitions += 1
    for copy in copies:
        result.differences += copy.faults
    start = max(copy.start for copy in copies)
    upto = max(copy.high for copy in copies)
    for copy in copies:
        if copy.end < upto and not copy.place.topic.startswith(INTERNAL):
            tell(f"{copy.folder.name} ends at {copy.end}, committed is up to {upto}")
    upto = min(upto, *(copy.end for copy in copies))
    result.records += max(0, upto - start)
    clean_to = max(copy.clean_to for copy in copies)
    if clean_to >= 0:
        _compare_latest(copies, upto, tell)
        _compare_shared(copies, min(upto, clean_to), tell)
    ranges = [
        {
            batch.base: batch
            for batch in copy.batches
            if batch.end > start and clean_to <= batch.base < upto
        }
        for copy in copies
    ]
    _compare_batches(copies, ranges, tell)
    result.batches += len(ranges[0])


def _teller(place: TopicPartition, result: Comparison) -> Callable[[str], None]:
    return lambda what: result.differences.append(f"{place.topic}-{place.partition}: {what}")


def _compare_batches(
    copies: list[Copy], ranges: list[dict[int, Batch]], tell: Callable[[str], None]
) -> None:
    """Every batch of the common range stands in each replica, with the same bytes."""
    first = ranges[0]
    for copy, other in zip(copies[1:], ranges[1:]):
        for base in sorted(first.keys() | other.keys()):
            if first.get(base) != other.get(base):
                one, two = copies[0].folder.name, copy.folder.name
                tell(
                    f"{one} and {two} differ first at offset {base}:"
                    f" {_told(first.get(base))} and {_told(other.get(base))}"
                )
                break


def _told(batch: Batch | None) -> str:
    if batch is None:
        return "no batch begins there"
    return f"a batch up to {batch.end - 1} with digest {batch.digest.hex()[:8]}"


def _compare_latest(copies: list[Copy], upto: int, tell: Callable[[str], None]) -> None:
    """Each key's last record is the same."""
    first = copies[0].latest(upto)
    for copy in copies[1:]:
        other = copy.latest(upto)
        for key in sorted(first.keys() | other.keys()):
            if first.get(key) != other.get(key):
                at = [each[key][0] if key in each else "none" for each in (first, other)]
                one, two = copies[0].folder.name, copy.folder.name
                tell(f"{one} and {two} differ in key {key[:80]!r}: offsets {at[0]} and {at[1]}")
                break


def _compare_shared(copies: list[Copy], upto: int, tell: Callable[[str], None]) -> None:
    """Where two cleaners kept a record at one offset, it is the same record."""
    kept = {each.offset: (each.key, each.value) for each in copies[0].records()}
    for copy in copies[1:]:
        for each in copy.records():
            found = kept.get(each.offset)
            if each.offset < upto and found not in (None, (each.key, each.value)):
                one, two = copies[0].folder.name, copy.folder.name
                tell(f"{one} and {two} have two records at offset {each.offset}, compacted")
                break


def main() -> int:
    """Compare and say it; 1 when something differs."""
    parser = argparse.ArgumentParser(prog="python -m chaos.replicas")
    parser.add_argument("folders", nargs="+", type=Path, metavar="FOLDER", help="log folders")
    parser.add_argument("--topic", action="append", help="only this one")
    arguments = parser.parse_args()
    result = compare(arguments.folders, topics=arguments.topic)
    print("\n".join([*result.differences, result.line()]))
    return 1 if result.differences else 0


if __name__ == "__main__":
    raise SystemExit(main())
