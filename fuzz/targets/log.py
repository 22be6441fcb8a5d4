"""The log target: what a leader, a follower and an operator can do to one partition's log.

    input:  chunks; the first byte of the first says which settings, of each later one which step:
            the rest of it is a batch, or numbers of 4 bytes

The rule in one sentence: a batch is refused by name or is read back as it was appended, in order,
until it is truncated or retired, also after a crash, a stop and a new start.
"""

from __future__ import annotations

from random import Random

from anabranch.core.errors import ApiError, ProtocolError
from anabranch.core.log.config import LogConfig
from anabranch.core.log.log import Log
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.types import TopicId, TopicPartition
from anabranch.core.wire.batch import crc_is_valid, read_header, walk
from fuzz import batches, chunks, havoc
from fuzz.compacting import pass_over
from fuzz.target import Features, Target
from fuzz.verdict import expect

KEY = TopicPartition("t", 0)
TOPIC_ID = TopicId(bytes(range(16)))
FOLDER = "/logs/t-0"
START_MS = batches.START_MS
CONFIGS = (
    LogConfig(),
    LogConfig(segment_bytes=400, index_interval_bytes=100, retention_bytes=900),
    LogConfig(message_timestamp_type="LogAppendTime", segment_ms=1000, retention_ms=5000),
    LogConfig(
        cleanup_policy=("compact",),
        compression_type="zstd",
        max_message_bytes=600,
        segment_bytes=300,
    ),
    LogConfig(compression_type="uncompressed", segment_bytes=1000, segment_index_bytes=24),
    LogConfig(compression_type="lz4", message_timestamp_before_max_ms=1000),
    LogConfig(segment_bytes=200, producer_id_expiration_ms=1000, flush_interval_messages=1),
)
STEPS = ("lead", "lead", "lead", "control", "follow", "follow", "time", "sync", "crash", "stop",
         "truncate", "begin_at", "raise_start", "retention", "roll", "look",
         "compact", "compact")  # fmt: skip
WITH_BATCH = frozenset(("lead", "control", "follow"))
NUMBERS = (0, 1, 2, 3, 5, 10, 20, 400, 1000, 2**31, START_MS % 2**32)


class Run:
    """One log and what was done to it."""

    def __init__(self, number: int) -> None:
        self.now_ms = START_MS
        config = CONFIGS[number % len(CONFIGS)]
        self.log = Log.create(MemoryFiles(), FOLDER, KEY, TOPIC_ID, config, now_ms=self.now_ms)
        self.epoch = self.clean_point = 0
        self.features: Features = set()

    def step(self, chunk: bytes) -> None:
        """Do what a chunk says."""
        name = STEPS[chunk[0] % len(STEPS)]
        rest = chunk[1:]
        before = self.log.end_offset
        try:
            if name in WITH_BATCH:
                getattr(self, name)(rest)
            else:
                numbers = [int.from_bytes(rest[at : at + 4], "big") for at in (0, 4)]
                getattr(self, name)(*numbers)
        except ApiError as refused:
            self.features.add((name, refused.code))
            same = self.log.end_offset == before or name == "follow"
            expect(same, "what is refused is not there")
        else:
            self.features.add(name)
        self.look_around()

    def look_around(self) -> None:
        """What holds after each step."""
        log = self.log
        expect(log.fault is None, "a disk that is sound takes no log offline")
        expect(0 <= log.start_offset <= log.end_offset, "a log starts before it ends")
        expect(log.flushed_offset <= log.end_offset, "what is flushed is within the log")
        sizes = sum(segment.size for segment in log.segments)
        expect(log.size_bytes == sizes, "the size of a log is that of its segments")
        self.features.add(("segments", min(len(log.segments), 4)))

    def lead(self, records: bytes) -> None:
        """A client's batch, on a leader."""
        self._append(records, client=True)

    def control(self, records: bytes) -> None:
        """A batch of this node's own, which is sound: the log does not look again."""
        try:
            header = read_header(records)
        except ProtocolError:
            return
        size = header.size_bytes
        if len(records) == size and header.record_count == header.last_offset_delta + 1 > 0:
            if header.magic == 2 and crc_is_valid(records, 0, size):
                self._append(records, client=False)

    def _append(self, records: bytes, *, client: bool) -> None:
        end = self.log.end_offset
        result = self.log.append_as_leader(
            bytearray(records), leader_epoch=self.epoch, now_ms=self.now_ms, client=client
        )
        if result.duplicate:
            expect(self.log.end_offset == end, "a duplicate is not appended")
        else:
            expect(result.first_offset == end, "a batch begins at the log's end")
            expect(self.log.end_offset == result.last_offset + 1, "and the log ends after it")

    def follow(self, records: bytes) -> None:
        """A batch as a leader wrote it: where this log ends, or after a gap of compaction."""
        size = int.from_bytes(records[8:12], "big") + 12
        held = bytearray(records[:size])
        if len(held) >= 16:
            gap = held[7] % 8 if self.log.config.compacted else 0
            held[:8] = (self.log.end_offset + gap).to_bytes(8, "big")
            held[12:16] = self.epoch.to_bytes(4, "big")
        self.log.append_as_follower(held, now_ms=self.now_ms)

    def time(self, milliseconds: int, epochs: int) -> None:
        """Time passes, leaders change."""
        self.now_ms += milliseconds
        self.log.roll_if_due(self.now_ms)
        self.log.expire_producers(self.now_ms)
        self.epoch = min(self.epoch + epochs % 3, 2**31 - 1)
        if epochs % 3:
            self.log.assign_leader_epoch(self.epoch)

    def sync(self, *_: int) -> None:
        """One sync round."""
        target = self.log.sync_target()
        if target is not None:
            self.log.synced(target[0])

    def crash(self, *_: int) -> None:
        """The process dies; its disk does not."""
        self._reopen(clean=False)

    def stop(self, *_: int) -> None:
        """The process stops in order."""
        self.log.close(clean=True)
        self._reopen(clean=True)

    def _reopen(self, *, clean: bool) -> None:
        old = self.log
        before = everything(old)
        log = self.log = Log.open(
            old.files, FOLDER, KEY, TOPIC_ID, old.config, now_ms=self.now_ms, clean=clean,
            recovery_point=old.flushed_offset, log_start_offset=old.start_offset,
        )  # fmt: skip
        in_gap = log.config.compacted and log.end_offset < old.end_offset
        expect(in_gap or log.end_offset == old.end_offset, "a log opens with the end that it had")
        first = old.segments[0].base_offset if old.segments else 0
        expect(log.start_offset == max(old.start_offset, first), "and with its start")
        expect(everything(log) == before, "and with its bytes")
        sparse = log.config.compacted  # an epoch may begin in a gap
        expect(sparse or _written(log) == _written(old), "and with its epochs")

    def truncate(self, offset: int, _: int) -> None:
        """A follower cuts its end, of a compacted log where a batch begins."""
        target = offset % (self.log.end_offset + 2)
        if self.log.config.compacted:
            target = self._boundary(target)
        end = self.log.truncate_to(target)
        expect(end == self.log.end_offset, "truncation tells the log's end")

    def _boundary(self, offset: int) -> int:
        """The end of the last batch that ends at or before an offset, or the log's start."""
        found = self.log.start_offset
        for segment in self.log.segments:
            for _, header in walk(segment.file.read(0, segment.size)):
                if found < header.next_offset <= offset:
                    found = header.next_offset
        return found

    def begin_at(self, offset: int, _: int) -> None:
        """A follower begins anew where its leader's log begins."""
        self.log.truncate_fully(offset)
        expect(self.log.end_offset == offset == self.log.start_offset, "the log begins there")

    def raise_start(self, offset: int, _: int) -> None:
        """DeleteRecords."""
        self.log.delete_records_before(offset % (self.log.end_offset + 2))

    def retention(self, upto: int, _: int) -> None:
        """Old segments go, and later their files."""
        log = self.log
        log.apply_retention(self.now_ms, log.end_offset if upto % 2 else upto)
        log.remove_deleted_files(self.now_ms + (upto % 3) * 60_000)

    def roll(self, *_: int) -> None:
        """The active segment is closed, unless it is empty."""
        if self.log.active is not None and self.log.active.size:
            self.log.roll(self.now_ms)

    def compact(self, milliseconds: int, _: int) -> None:
        """A pass of the cleaner, some time later."""
        log = self.log
        self.now_ms += milliseconds % 200_000_000
        if not log.config.compacted:
            return
        upto = pass_over(
            log, now_ms=self.now_ms, high_watermark=log.end_offset, clean_point=self.clean_point
        )
        if upto is not None:
            self.clean_point = upto
            self.features.add("compacted")

    def look(self, number: int, timestamp: int) -> None:
        """Whatever a reader may ask. Records that are none were a client's to write."""
        log = self.log
        try:
            log.offset_for_timestamp(START_MS - 1000 + timestamp, upto=log.end_offset)
            log.max_timestamp_offset(upto=log.end_offset)
        except ProtocolError:
            self.features.add("not records")
        log.end_offset_for_epoch(number)
        expect(log.last_stable_offset(log.end_offset) <= log.end_offset, "stable is within")
        log.aborted_transactions(log.start_offset, log.end_offset)
        log.statistics()
        log.read(number, max_bytes=timestamp, upto=log.end_offset, at_least_one=number % 2 == 0)


def _written(log: Log) -> list[tuple[int, int]]:
    """Epochs that have records: one that has none yet is written with its first."""
    return [entry for entry in log.epochs.entries if entry[1] < log.end_offset]


def everything(log: Log) -> bytes:
    """All batches from the log's start, each of them sound and in order."""
    parts, offset = [], log.start_offset
    while offset < log.end_offset:
        read = memoryview(log.read(offset, max_bytes=4096, upto=log.end_offset, at_least_one=True))
        if not len(read):
            expect(not batches_from(log, offset), f"{offset} is within the log")
            break
        for position, header in walk(read):
            expect(header.last_offset >= offset, "a read begins at the batch of its offset")
            expect(crc_is_valid(read, position, header.size_bytes), "what is read is sound")
            offset = header.next_offset
        parts.append(bytes(read))
    return b"".join(parts)


def batches_from(log: Log, offset: int) -> bool:
    """Whether the files hold a batch at or after an offset; a follower's log may end in a gap."""
    for segment in log.segments:
        held = segment.file.read(0, segment.size)
        if any(header.last_offset >= offset for _, header in walk(held)):
            return True
    return False


def run(entry: bytes) -> Features:
    """Take the steps of an input, then restart once more and read everything."""
    steps = chunks.split(entry)
    doing = Run(steps[0][0] if steps and steps[0] else 0)
    for chunk in steps[1:]:
        if chunk:
            doing.step(chunk)
    doing.crash()
    return doing.features


def make_step(rng: Random) -> bytes:
    """One step from nothing."""
    number = rng.randrange(len(STEPS))
    if STEPS[number] in WITH_BATCH:
        return bytes([number]) + batches.make(rng)
    return bytes([number]) + b"".join(rng.choice(NUMBERS).to_bytes(4, "big") for _ in range(2))


def change_step(rng: Random, chunk: bytes, other: bytes) -> bytes:
    """Change a step's batch or numbers."""
    if chunk and STEPS[chunk[0] % len(STEPS)] in WITH_BATCH and rng.random() < 0.8:
        return chunk[:1] + batches.change(rng, chunk[1:])
    return havoc.change(rng, chunk, other)


def make(rng: Random) -> bytes:
    """Settings and a few steps."""
    steps = [make_step(rng) for _ in range(rng.choice((1, 2, 4, 8)))]
    return chunks.join([bytes([rng.randrange(len(CONFIGS))]), *steps])


def change(rng: Random, entry: bytes, other: bytes) -> bytes:
    """Change the steps."""
    return chunks.change(rng, entry, other, make_step, change_step)


def count(entry: bytes) -> int:
    """The steps of an input."""
    return max(len(chunks.split(entry)) - 1, 0)


TARGET = Target("log", run, make, change, share=6, steps=count, parts=chunks.parts)
