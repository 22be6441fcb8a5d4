"""What a leader checks and changes in batches that a client sent, before they are appended.

Only headers are looked at, unless the topic is compacted (records must have keys), has a codec of
its own (records are decoded and compressed again), a header's time is out of range (the records at
fault are named), or it claims more records than compression usually makes room for. Order of checks
as in Kafka: shape and offsets, size, checksum, counts, kind, sequence, codec, room, keys, time.
Source: KIP-98 (format), KIP-32 and KIP-937 (timestamps), KIP-467 (which records are at fault).

Kafka decodes every record of every batch; so it also refuses records that do not fit their header
and takes a header whose times its records do not bear out. Here a header is taken at its word, as
far as the batch has bytes for so many records.
"""

from __future__ import annotations

from typing import NoReturn

from anabranch.core.errors import ApiError, ErrorCode, ProtocolError, RecordsRefused
from anabranch.core.log.config import LogConfig
from anabranch.core.log.indexes import NO_TIMESTAMP
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import (
    ATTRIBUTES_AT,
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_BIT,
    LOG_APPEND_TIME_BIT,
    MAGIC,
    TRANSACTIONAL_BIT,
    BatchHeader,
    read_header,
)
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.crc import crc32c
from anabranch.core.wire.records import (
    DEFAULT_LIMIT_BYTES,
    SMALLEST_RECORD_BYTES,
    Record,
    build_batch,
    decode_records,
)

PLAIN_RATIO = 16
"""Plain bytes a batch may unpack to, in `max.message.bytes`: over what real records shrink by."""
MOST_RATIO = 1 << 15
"""Plain bytes to which one byte can unpack: of zstd, 128 KiB from a block of four."""
LEAST_BYTES = 1 << 20
"""Of `max.message.bytes` for that bound and for the number of records: it is no bound on them."""
RECORDS_NAMED = 1000
"""Records at fault that a refusal names: a small request may not ask for an answer of megabytes."""
CODECS = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def check_shape(
    records: memoryview, config: LogConfig, partition: TopicPartition
) -> list[tuple[int, BatchHeader]]:
    """All batches as (position, header), each whole and with a sound checksum; raises ApiError."""
    batches = []
    position, end = 0, len(records)
    while position < end:
        try:
            header = read_header(records, position)
        except ProtocolError as problem:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {problem}") from None
        size = header.size_bytes
        if header.magic != MAGIC:
            _refuse(partition, f"batches of magic {header.magic} are not accepted, only {MAGIC}")
        if size < BATCH_OVERHEAD or position + size > end:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE, f"{partition}: a batch of {size} bytes is incomplete."
            )
        if header.base_offset != 0:
            _refuse(partition, f"the batch's base offset is {header.base_offset} instead of 0")
        if size > config.max_message_bytes:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch for {partition} has {size} bytes; max.message.bytes is "
                f"{config.max_message_bytes}.",
            )
        if crc32c(records[position + ATTRIBUTES_AT : position + size]) != header.crc:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch for {partition} does not match its checksum {header.crc}.",
            )
        batches.append((position, header))
        position += size
    return batches


def check_client(
    view: memoryview, config: LogConfig, partition: TopicPartition, now_ms: int
) -> tuple[memoryview, list[tuple[int, BatchHeader]]]:
    """Every check of what a client sent that needs no log; the bytes and their batches, in the
    topic's own codec if it has one."""
    batches = check_shape(view, config, partition)
    checked = []
    is_rebuilt = False
    for position, header in batches:
        decoded = check_client_batch(view, position, header, config, partition, now_ms)
        checked.append((position, header, decoded))
        is_rebuilt = is_rebuilt or (decoded is not None and needs_rebuild(header, config))
    if is_rebuilt:
        view = rebuild(view, checked, config, partition)
        batches = check_shape(view, config, partition)
    return view, batches


def check_copied(
    records: memoryview, next_offset: int, partition: TopicPartition
) -> list[tuple[int, BatchHeader]]:
    """The whole batches at the front of what a leader sent, as (position, header).

    Each has a sound checksum and follows `next_offset` and the one before; raises ApiError."""
    batches = []
    position, end = 0, len(records)
    while end - position >= BATCH_OVERHEAD:
        try:
            header = read_header(records, position)
        except ProtocolError as problem:
            raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {problem}") from None
        base_offset, size, _, magic, crc, _, delta, *_ = header
        following = position + size
        if following > end:
            break
        if magic != MAGIC:
            _refuse(partition, f"batches of magic {magic} are not accepted, only {MAGIC}")
        if crc32c(records[position + ATTRIBUTES_AT : following]) != crc:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch for {partition} does not match its checksum {crc}.",
            )
        if base_offset < next_offset or delta < 0:
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"{partition}: a batch at {base_offset} cannot follow offset {next_offset - 1}.",
            )
        next_offset = base_offset + delta + 1
        batches.append((position, header))
        position = following
    return batches


def check_client_batch(
    records: memoryview,
    position: int,
    header: BatchHeader,
    config: LogConfig,
    partition: TopicPartition,
    now_ms: int,
) -> list[Record] | None:
    """Refuse a client's batch that may not be appended; its records if they had to be decoded."""
    _check_header(header, config, partition)
    decoded, compacted = None, config.compacted
    if compacted or needs_rebuild(header, config) or _is_doubtful(header):
        decoded = _decoded(records, position, header, config, partition)
    if compacted:
        _check_keys(decoded or [], partition)
    if config.message_timestamp_type != "LogAppendTime":
        earliest = now_ms - config.message_timestamp_before_max_ms
        latest = now_ms + config.message_timestamp_after_max_ms
        first, last = header.base_timestamp, header.max_timestamp
        in_range = (first == NO_TIMESTAMP or earliest <= first <= latest) and (
            last == NO_TIMESTAMP or earliest <= last <= latest
        )
        if decoded is None and not in_range:
            decoded = _decoded(records, position, header, config, partition)
        if decoded is not None:
            _check_times(decoded, earliest, latest)
        if not in_range:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamps {header.base_timestamp} to {header.max_timestamp} of a batch for "
                f"{partition} are out of range: they should be within [{earliest}, {latest}].",
            )
    return decoded


def _check_header(header: BatchHeader, config: LogConfig, partition: TopicPartition) -> None:
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0:
        _refuse(partition, f"{count} records, last offset delta {header.last_offset_delta}")
    if count != header.last_offset_delta + 1:
        _refuse(
            partition,
            f"{count} records do not fit the last offset delta {header.last_offset_delta}",
        )
    attributes = header.attributes
    if attributes & CONTROL_BIT:
        _refuse(partition, "clients may not write control records")
    if header.producer_id < 0:
        if attributes & TRANSACTIONAL_BIT:
            _refuse(partition, "a transactional batch has no producer id")
    elif header.base_sequence < 0:
        _refuse(partition, f"sequence number {header.base_sequence} of a producer with an id")
    if attributes & CODEC_MASK > Codec.ZSTD:
        raise ApiError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"A batch for {partition} has codec {header.codec}; the last one known is 4, zstd.",
        )
    if attributes & LOG_APPEND_TIME_BIT and config.message_timestamp_type == "LogAppendTime":
        raise ApiError(
            ErrorCode.INVALID_TIMESTAMP,
            f"A batch for {partition} claims the time of its append, which the leader gives.",
        )
    _check_room(header, partition)


def _check_room(header: BatchHeader, partition: TopicPartition) -> None:
    """Refuse a number of records for which the batch cannot have bytes."""
    plain_bytes = (header.size_bytes - BATCH_OVERHEAD) * (MOST_RATIO if header.codec else 1)
    if header.record_count * SMALLEST_RECORD_BYTES > plain_bytes:
        _refuse(
            partition,
            f"{header.record_count} records do not fit into a batch of {header.size_bytes} bytes",
        )


def _is_doubtful(header: BatchHeader) -> bool:
    """Whether a batch has bytes for so many records only if they compress very well: some do, so
    they are counted."""
    packed_bytes = header.size_bytes - BATCH_OVERHEAD
    return header.record_count * SMALLEST_RECORD_BYTES > PLAIN_RATIO * packed_bytes


def _in_range(timestamp: int, earliest: int, latest: int) -> bool:
    return timestamp == NO_TIMESTAMP or earliest <= timestamp <= latest


def _check_keys(records: list[Record], partition: TopicPartition) -> None:
    """Refuse records without a key: a compacted topic could not tell what they replace."""
    text = f"Compacted topic cannot accept message without key in topic partition {partition}"
    errors = [(index, text) for index, record in enumerate(records) if record.key is None]
    if errors:
        shown = ", ".join(
            f"RecordError(batchIndex={index}, message='{each}')" for index, each in errors[:3]
        )
        raise RecordsRefused(
            ErrorCode.INVALID_RECORD,
            f"One or more records have been rejected due to {len(errors)} record errors in total, "
            f"and only showing the first three errors at most: [{shown}]",
            errors[:RECORDS_NAMED],
        )


def _check_times(records: list[Record], earliest: int, latest: int) -> None:
    """Refuse records whose own time is out of range, and name them."""
    errors = [
        (
            index,
            f"Timestamp {record.timestamp} of message with offset {record.offset} is out of range. "
            f"The timestamp should be within [{earliest}, {latest}]",
        )
        for index, record in enumerate(records)
        if not _in_range(record.timestamp, earliest, latest)
    ]
    if errors:
        raise RecordsRefused(
            ErrorCode.INVALID_TIMESTAMP,
            "One or more records have been rejected due to invalid timestamp",
            errors[:RECORDS_NAMED],
        )


def needs_rebuild(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the topic's codec is not the batch's."""
    return config.compression_type != "producer" and (
        header.codec != CODECS[config.compression_type]
    )


def rebuild(
    records: memoryview,
    batches: list[tuple[int, BatchHeader, list[Record] | None]],
    config: LogConfig,
    partition: TopicPartition,
) -> memoryview:
    """The same records in the topic's codec; producer, sequence and timestamps stay."""
    rebuilt = bytearray()
    codec = CODECS[config.compression_type]
    for position, header, decoded in batches:
        rebuilt += build_batch(
            decoded or _decoded(records, position, header, config, partition),
            base_offset=header.base_offset,
            leader_epoch=header.leader_epoch,
            codec=codec,
            level=_level(codec, config),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            control=header.is_control,
        )
    return memoryview(rebuilt)


def _level(codec: Codec, config: LogConfig) -> int | None:
    """The codec's level in this topic; None where it has none or its own default is meant."""
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    level = levels.get(codec, -1)
    return None if level == -1 else level


def _decoded(
    records: memoryview,
    position: int,
    header: BatchHeader,
    config: LogConfig,
    partition: TopicPartition,
) -> list[Record]:
    """A batch's records; neither their bytes nor their number may be a bomb."""
    room = max(LEAST_BYTES, config.max_message_bytes)
    most = room // SMALLEST_RECORD_BYTES
    if header.record_count > most:
        raise ApiError(
            ErrorCode.MESSAGE_TOO_LARGE,
            f"A batch for {partition} has {header.record_count} records; the most is {most}.",
        )
    limit_bytes = min(DEFAULT_LIMIT_BYTES, PLAIN_RATIO * room)
    try:
        return decode_records(records, position, limit_bytes=limit_bytes)
    except ProtocolError as problem:
        raise ApiError(ErrorCode.INVALID_RECORD, f"{partition}: {problem}") from None


def _refuse(partition: TopicPartition, why: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_RECORD, f"{partition}: {why}.")
