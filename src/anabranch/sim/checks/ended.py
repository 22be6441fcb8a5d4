"""C5: what a compacted log says of transactions is what became of them.

    A transaction that has ended is not open, though compaction took the marker; records of an
    aborted one lie in a range that is listed as aborted, and those of a committed one in none. A
    range reaches over one transaction.

What: `check_ended` goes along all batches that a copy ever had, those that compaction took out too,
and compares what their markers say with what the log holds to be open and lists as aborted. It is
asked after a start, of a replica that gets in sync, and of a leader: not of one that still copies,
and may know less than the log did. Rule kept: looking reads no file through the log, so that it
sets off no fault of the disk. Source: KIP-98. Not here: which records may go (`compacted.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.log.indexes import AbortedRange, InvalidIndex, decode_aborted
from anabranch.core.log.segment import TRANSACTIONS
from anabranch.core.wire.batch import read_header
from anabranch.sim.checks.entries import BEGIN, Entry, read_entries
from anabranch.sim.checks.violation import Violation

if TYPE_CHECKING:
    from anabranch.core.log.log import Log
    from anabranch.sim.checks.compacted import Compacted
    from anabranch.sim.checks.copies import Copy
    from anabranch.sim.disk import SimDisk


def check_ended(copy: Copy) -> None:
    """C5 of a copy of which it is known for certain what it had."""
    compacted, replica = copy.compacted, copy.replica
    if compacted is None or replica is None or compacted.is_excused:
        return
    log = replica.log
    ends_there = copy.entries and copy.entries[-1].end == log.end_offset
    if copy.is_rotten or not copy.is_sure or not ends_there or log.fault is not None:
        return
    opened, aborted, ends = outcomes(compacted, copy.entries)
    for producer_id, first in log.producers.open_transactions.items():
        if first >= log.local_start_offset and first < opened.get(producer_id, first + 1):
            raise Violation(
                "C5", "A transaction that has ended is open in a compacted log.",
                {**copy.told(), "producer": producer_id, "offset": first},
            )  # fmt: skip
    listed = _listed(copy.node.disk, log)
    if listed is not None:
        _check_ranges(copy, log, listed, ends)
        _check_batches(copy, log, listed, opened, aborted)


def outcomes(
    compacted: Compacted, entries: list[Entry]
) -> tuple[dict[int, int], set[Entry], dict[tuple[int, int], int]]:
    """The transactions that are open behind some batches (producer -> where it began), those of the
    batches that were aborted, and (producer, marker) -> where an aborted transaction began."""
    begun: dict[int, list[Entry]] = {}
    aborted: set[Entry] = set()
    ends: dict[tuple[int, int], int] = {}
    for entry in entries:
        decided = compacted.decided(entry)
        if decided is not None and decided.is_transactional:
            begun.setdefault(decided.producer_id, []).append(entry)
        elif decided is not None and decided.commits is not None:
            ended = begun.pop(decided.producer_id, [])
            if ended and not decided.commits:
                aborted.update(ended)
                ends[decided.producer_id, entry.base] = ended[0].base
    opened = {producer_id: batches[0].base for producer_id, batches in begun.items()}
    return opened, aborted, ends


def _check_ranges(
    copy: Copy, log: Log, listed: list[AbortedRange], ends: dict[tuple[int, int], int]
) -> None:
    """Each range that is listed: whether it is one transaction's."""
    start = max(log.local_start_offset, copy.entries[0].base)
    for each in listed:
        begin = ends.get((each.producer_id, each.last_offset), each.last_offset)
        if start <= each.first_offset < begin:
            raise Violation(
                "C5", "A log lists a range as aborted that is of several transactions.",
                {**copy.told(), "range": tuple(each), "begins": begin},
            )  # fmt: skip


def _check_batches(
    copy: Copy,
    log: Log,
    listed: list[AbortedRange],
    opened: dict[int, int],
    aborted: set[Entry],
) -> None:
    """Each batch that still has records: whether a reader of committed ones is shown them."""
    for raw, _, batch in read_entries(copy.node.disk, log, BEGIN):
        header = read_header(batch)
        entry = copy.truth.written.get((raw.base, raw.epoch))
        is_open = opened.get(header.producer_id, raw.end) <= raw.base
        if not header.is_transactional or header.is_control or not header.record_count:
            continue
        if entry is None or is_open or raw.base < log.local_start_offset:
            continue
        is_listed = any(
            each.producer_id == header.producer_id
            and each.first_offset <= raw.base <= each.last_offset
            for each in listed
        )
        if is_listed != (entry in aborted):
            raise Violation(
                "C5", "A log says something else of a transaction than became of it.",
                {**copy.told(), "batch": tuple(entry), "aborted": entry in aborted},
            )  # fmt: skip


def _listed(disk: SimDisk, log: Log) -> list[AbortedRange] | None:
    """Everything that is listed as aborted; None when an index has to be made again first."""
    found: list[AbortedRange] = []
    for segment in log.segments:
        held = log.aborted.get(segment.base_offset)
        if held is None and segment is not log.active:
            inode = disk.names.get(segment.stem + TRANSACTIONS)
            try:
                held = None if inode is None else decode_aborted(bytes(inode.seen))
            except InvalidIndex:
                held = None
            if held is None:
                return None
        found += held or ()
    return found
