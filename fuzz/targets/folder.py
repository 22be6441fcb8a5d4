"""The folder target: log folders whose files hold anything, as a disk or a person may leave them.

    input:  chunks; the first byte of the first says how the folder is opened; each later one is
            the number of a file in `NAMES`, then what it holds instead of what it held

The rule in one sentence: opening gives logs that can be read, appended to and opened again, or a
StorageFault that names the place; nothing else is raised, and bytes that no checksum covers never
make a log that was opened contradict itself.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import suppress
from functools import cache, partial
from random import Random
from typing import Any

from anabranch.core.errors import ApiError, CorruptLog, ProtocolError, StorageFault
from anabranch.core.log.checkpoints import (
    META_PROPERTIES,
    InvalidCheckpoint,
    MetaProperties,
    format_clean_shutdown,
    format_meta_properties,
    parse_meta_properties,
)
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import ColdRead
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.batch import walk
from anabranch.core.wire.control import build_end_marker
from anabranch.core.wire.records import Record, build_batch
from fuzz import batches, chunks, havoc
from fuzz.target import REFUSED, Features, Target
from fuzz.verdict import Broken, expect

FOLDER = "/logs"
KEY = TopicPartition("t", 0)
TOPIC_ID = TopicId(bytes(range(16)))
NOW_MS = batches.START_MS
CONFIG = LogConfig(segment_bytes=500, index_interval_bytes=100)
STRANGERS = ("00000000000000000030.log", "x.tmp", "a.deleted", "00000000000000000099.snapshot",
             "00000000000000000099.index")  # fmt: skip
SWAPS = (".swapping", ".log.cleaned", ".log.swap", ".index.swap", ".timeindex.swap", ".log.deleted")
"""What compaction leaves when it is killed, ours and Kafka's."""
OF_THE_INPUT = re.compile(r"'.*'|\d+", re.DOTALL)
"""What a fault quotes of the input says nothing new."""
MOST_WAITS = 30
"""A question may wait once for each segment."""
CLEAN, KEEP = 1, 2
"""Bits of the first byte: the marker of a clean shutdown is there; more than one way to read."""


@cache
def sound() -> tuple[tuple[str, bytes], ...]:
    """The files of a folder with one partition: segments, indexes, producers, transactions."""
    files = MemoryFiles()
    folder = LogFolder(files, FOLDER)
    meta = format_meta_properties(MetaProperties("cluster", 1, "directory"))
    files.write_atomic(f"{FOLDER}/{META_PROPERTIES}", meta, sync=True)
    log = folder.create_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    for number in range(12):
        records = [Record(each, NOW_MS + number, b"k", bytes(20), ()) for each in range(2)]
        how = {"producer_id": 7, "producer_epoch": 0, "base_sequence": number * 2}
        made = build_batch(records, **how, transactional=number % 3 == 0)  # type: ignore[arg-type]
        # not a client's: no client may mix batches of a transaction and of none, but logs may
        log.append_as_leader(made, leader_epoch=number // 4, now_ms=NOW_MS, client=False)
        if number % 3 == 2:
            mark = build_end_marker(
                producer_id=7, producer_epoch=0, committed=number % 2 == 0, coordinator_epoch=0,
                now_ms=NOW_MS,
            )  # fmt: skip
            log.append_as_leader(mark, leader_epoch=number // 4, now_ms=NOW_MS, client=False)
    folder.checkpoint_high_watermarks({KEY: log.end_offset})
    log.delete_records_before(4)
    folder.close(broker_epoch=3)
    return tuple(sorted((name, bytes(held)) for name, held in files.contents.items()))


@cache
def names() -> tuple[str, ...]:
    """The files that an input may write, by number."""
    known = tuple(name for name, _ in sound() if not name.endswith("cleanshutdown"))
    stems = [name[:-4] for name in known if name.endswith(".log")][:2]
    swaps = [f"{stem}{end}" for stem in stems for end in SWAPS]
    more = [f"{FOLDER}/t-0/{name}" for name in STRANGERS]
    return (*known, f"{FOLDER}/.kafka_cleanshutdown", *swaps, *more)


def opened(files: MemoryFiles, features: Features) -> Log | None:
    """What a node does at its start; None when it says why not."""
    try:
        folder = LogFolder(files, FOLDER)
        with suppress(InvalidCheckpoint):
            parse_meta_properties(files.read(f"{FOLDER}/{META_PROPERTIES}"))
        found = folder.partitions()
        features.update(("found", each.topic_id is None) for each in found)
        return folder.open_log(KEY, TOPIC_ID, CONFIG, now_ms=NOW_MS)
    except StorageFault as fault:
        expect(FOLDER in str(fault), "a storage fault names the place")
        why = OF_THE_INPUT.sub("", str(fault)).rpartition("/")[2]
        features.add((REFUSED, type(fault).__name__, why[:50]))
        return None


def brought(ask: Callable[[], Any]) -> Any:
    """What is asked, after what it had to wait for was brought, as a node's thread does it."""
    for _ in range(MOST_WAITS):
        try:
            return ask()
        except ColdRead as cold:
            cold.warm()
    raise Broken("what was brought is there when it is asked for again")


def use(log: Log, features: Features) -> None:
    """Read, ask, append: rot may show now, by name."""
    try:
        offset = log.start_offset
        while offset < log.end_offset:
            read = brought(
                partial(log.read, offset, max_bytes=1 << 20, upto=log.end_offset, at_least_one=True)
            )
            offset = log.end_offset if not len(read) else _after(read, offset)
        brought(lambda: log.offset_for_timestamp(NOW_MS + 3, upto=log.end_offset))
        brought(lambda: log.max_timestamp_offset(upto=log.end_offset))
        brought(lambda: log.aborted_transactions(log.start_offset, log.end_offset))
        log.end_offset_for_epoch(1)
        log.last_stable_offset(log.end_offset)
        if log.end_offset < 2**62:
            before = log.end_offset
            made = build_batch([Record(0, NOW_MS, b"k", b"v", ())])
            log.append_as_leader(made, leader_epoch=1 << 20, now_ms=NOW_MS)
            expect(log.end_offset == before + 1, "a log that opened can be appended to")
        log.truncate_to(max(log.end_offset - 3, log.start_offset))
    except CorruptLog as fault:
        expect(FOLDER in str(fault), "rot is named with its place")
        features.add("rot shown when used")
    except ApiError as fault:
        features.add(fault.code)
    except ProtocolError:  # before the recovery point nobody looks; a reader's checksum does
        features.add("rot reaches the reader")


def _after(read: bytes | bytearray | memoryview, offset: int) -> int:
    for _, header in walk(read):
        offset = max(offset + 1, header.next_offset)
    return offset


def run(entry: bytes) -> Features:
    """Write the files of an input over the sound ones, open, use, and open again."""
    steps = chunks.split(entry)
    how = steps[0][0] if steps and steps[0] else 0
    files = MemoryFiles()
    files.make_dirs(f"{FOLDER}/t-0")
    files.contents.update((name, bytearray(held)) for name, held in sound())
    if not how & CLEAN:
        files.contents.pop(f"{FOLDER}/.kafka_cleanshutdown", None)
    features: Features = {how & CLEAN}
    for chunk in steps[1:]:
        if chunk:
            name = names()[chunk[0] % len(names())]
            features.add(name)
            if len(chunk) == 1:
                files.contents.pop(name, None)
            else:
                files.contents[name] = bytearray(chunk[1:])
    log = opened(files, features)
    if log is None:
        return features
    use(log, features)
    if log.fault is None:
        log.close(clean=bool(how & KEEP))
        again = opened(files, features)
        if again is not None:
            features.add("opened twice")
    return features


def make_chunk(rng: Random) -> bytes:
    """One file, changed, cut, emptied or removed."""
    number = rng.randrange(len(names()))
    if rng.random() < 0.1:
        return bytes([number])
    held = dict(sound()).get(names()[number], b"")
    if not held and rng.random() < 0.8:
        held = rng.choice(sound())[1]
    if names()[number].endswith(".swapping"):
        bases = [int(name[-24:-4]) for name, _ in sound() if name.endswith(".log")]
        held = json.dumps(rng.sample(bases, rng.choice((1, 2, 2)))).encode()
        if rng.random() < 0.7:
            return bytes([number]) + held
    if names()[number].endswith("cleanshutdown"):
        held = format_clean_shutdown(rng.choice((-1, 0, 2**63)))
    return bytes([number]) + changed(rng, names()[number], held)


def changed(rng: Random, name: str, held: bytes) -> bytes:
    """Other content for a file: batches keep their checksums most of the time."""
    if name.endswith(".log") and rng.random() < 0.6:
        sizes = int.from_bytes(held[8:12], "big") + 12 if len(held) > 12 else 0
        if 61 <= sizes <= len(held):
            return batches.change(rng, held[:sizes]) + held[sizes:]
    if rng.random() < 0.2:
        return held[: rng.randrange(len(held) + 1)]
    return havoc.change(rng, held)


def change_chunk(rng: Random, chunk: bytes, other: bytes) -> bytes:
    """Change a file further."""
    if len(chunk) < 2:
        return make_chunk(rng)
    name = names()[chunk[0] % len(names())]
    if rng.random() < 0.1:
        return chunk[:1] + other[1:]
    return chunk[:1] + changed(rng, name, chunk[1:])


def make(rng: Random) -> bytes:
    """One or two files that are not what they were."""
    steps = [make_chunk(rng) for _ in range(rng.choice((1, 1, 2)))]
    return chunks.join([bytes([rng.randrange(4)]), *steps])


def change(rng: Random, entry: bytes, other: bytes) -> bytes:
    """Change the files further."""
    return chunks.change(rng, entry, other, make_chunk, change_chunk)


TARGET = Target("folder", run, make, change, share=6, parts=chunks.parts)
