"""Batches and logs for the tests of `core.log`."""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import Any, TypeVar

from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import ColdRead, Files
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import Record, build_batch, decode_records

NOW_MS = 1_700_000_000_000
KEY = TopicPartition("flights", 0)
TOPIC_ID = TopicId(bytes(range(16)))
FOLDER = "data/flights-0"
END = 2**62
AnswerT = TypeVar("AnswerT")


def batch(
    count: int = 3, size_bytes: int = 40, timestamp: int = NOW_MS, tag: int = 0, **fields: Any
) -> bytearray:
    """A batch of records whose values begin with `tag`."""
    records = [
        Record(index, timestamp + index, b"key", struct.pack(">q", tag) + bytes(size_bytes), ())
        for index in range(count)
    ]
    return build_batch(records, **fields)


def marker(
    producer_id: int, *, committed: bool, producer_epoch: int = 0, coordinator_epoch: int = 0
) -> bytearray:
    """An end-of-transaction control batch."""
    key = struct.pack(">hh", 0, int(committed))
    value = struct.pack(">hi", 0, coordinator_epoch)
    return build_batch(
        [Record(0, NOW_MS, key, value, ())],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def new_log(files: Files | None = None, **settings: Any) -> Log:
    """An empty log."""
    return Log.create(
        files or MemoryFiles(), FOLDER, KEY, TOPIC_ID, LogConfig(**settings), now_ms=NOW_MS
    )


def note_clean(folder: LogFolder, key: TopicPartition, upto: int) -> None:
    """Have a folder's checkpoint of compaction say that a partition is compacted up to an offset,
    as a pass does at its end."""
    draft = folder.draft_clean(key, upto)
    folder.write_draft(draft)
    assert folder.adopt(draft)


def reopen(log: Log, *, clean: bool = False, **arguments: Any) -> Log:
    """The same folder, opened again; without `clean` the process died."""
    if clean:
        log.close(clean=True)
        arguments.setdefault("recovery_point", log.end_offset)
    arguments.setdefault("recovery_point", log.flushed_offset)
    arguments.setdefault("now_ms", NOW_MS)
    return Log.open(log.files, log.folder, KEY, TOPIC_ID, log.config, clean=clean, **arguments)


def append(log: Log, records: bytearray, *, leader_epoch: int = 0, now_ms: int = NOW_MS) -> int:
    """Append as a client's batch; its first offset."""
    return log.append_as_leader(records, leader_epoch=leader_epoch, now_ms=now_ms).first_offset


def patiently(ask: Callable[[], AnswerT]) -> AnswerT:
    """The answer, with what it lacks brought as often as need be."""
    for _ in range(100):
        try:
            return ask()
        except ColdRead as cold:
            cold.warm()
    raise AssertionError("it is never there")


def sync(log: Log) -> None:
    """One sync round."""
    target = log.sync_target()
    if target is not None:
        for one in target[1]:
            one.sync()
        log.synced(target[0])


def read_batches(log: Log, max_bytes: int = 1 << 20) -> list[bytes]:
    """Every batch, as a reader gets them."""
    batches, offset = [], log.start_offset
    while offset < log.end_offset:
        held = memoryview(log.read(offset, max_bytes=max_bytes, upto=END, at_least_one=True))
        assert len(held), f"nothing at {offset}"
        for position, header in walk(held):
            assert header.last_offset >= offset
            batches.append(bytes(held[position : position + header.size_bytes]))
            offset = header.next_offset
        assert position + header.size_bytes == len(held), "only whole batches"
    return batches


def tags(log: Log, max_bytes: int = 1 << 20) -> list[int]:
    """The tag of every batch."""
    return [
        struct.unpack(">q", bytes(decode_records(memoryview(one))[0].value or b"")[:8])[0]
        for one in read_batches(log, max_bytes)
    ]
