"""What a leader checks and changes in batches that a client sent, before they are appended.

Only headers are looked at, unless the topic is compacted (records must have keys) or has a codec
of its own (records are decoded and compressed again). Order of checks as in Kafka: shape and
offsets, size, checksum, counts, kind, sequence, time. Source: KIP-98 (format), KIP-32 and KIP-937
(timestamps).
"""

from __future__ import annotations

from typing import NoReturn

from anabranch.core.errors import ApiError, ErrorCode, ProtocolError
from anabranch.core.log.config import LogConfig
from anabranch.core.types import TopicPartition
from anabranch.core.wire.batch import BATCH_OVERHEAD, BatchHeader, crc_is_valid, read_header, walk
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records

MAGIC = 2
NO_TIMESTAMP = -1
CODECS = {
    "uncompressed": Codec.NONE,
    "none": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


def check_shape(
    records: memoryview, config: LogConfig, partition: TopicPartition, *, client: bool
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
        if client and header.base_offset != 0:
            _refuse(partition, f"the batch's base offset is {header.base_offset} instead of 0")
        if size > config.max_message_bytes and client:
            raise ApiError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The batch for {partition} has {size} bytes; max.message.bytes is "
                f"{config.max_message_bytes}.",
            )
        if not crc_is_valid(records, position, size):
            raise ApiError(
                ErrorCode.CORRUPT_MESSAGE,
                f"The batch for {partition} does not match its checksum {header.crc}.",
            )
        batches.append((position, header))
        position += size
    return batches


def whole_bytes(records: memoryview, partition: TopicPartition) -> int:
    """Length of the whole batches at the front of what a leader sent."""
    whole = 0
    try:
        for position, header in walk(records):
            whole = position + header.size_bytes
    except ProtocolError as problem:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {problem}") from None
    return whole


def check_client_batch(
    header: BatchHeader, config: LogConfig, partition: TopicPartition, now_ms: int
) -> None:
    """Counts, kind, sequence and timestamps of one batch from a client."""
    count = header.record_count
    if header.last_offset_delta < 0 or count <= 0:
        _refuse(partition, f"{count} records, last offset delta {header.last_offset_delta}")
    if count != header.last_offset_delta + 1:
        _refuse(
            partition,
            f"{count} records do not fit the last offset delta {header.last_offset_delta}",
        )
    if header.is_control:
        _refuse(partition, "clients may not write control records")
    if header.producer_id >= 0 and header.base_sequence < 0:
        _refuse(partition, f"sequence number {header.base_sequence} of a producer with an id")
    if config.message_timestamp_type != "LogAppendTime":
        _check_timestamps(header, config, partition, now_ms)


def _check_timestamps(
    header: BatchHeader, config: LogConfig, partition: TopicPartition, now_ms: int
) -> None:
    earliest = now_ms - config.message_timestamp_before_max_ms
    latest = now_ms + config.message_timestamp_after_max_ms
    for timestamp in (header.base_timestamp, header.max_timestamp):
        if timestamp != NO_TIMESTAMP and not earliest <= timestamp <= latest:
            raise ApiError(
                ErrorCode.INVALID_TIMESTAMP,
                f"Timestamp {timestamp} of a batch for {partition} is out of range: it should be "
                f"within [{earliest}, {latest}].",
            )


def needs_rebuild(header: BatchHeader, config: LogConfig) -> bool:
    """Whether the topic's codec is not the batch's."""
    return config.compression_type != "producer" and (
        header.codec != CODECS[config.compression_type]
    )


def check_keys(records: memoryview, position: int, partition: TopicPartition) -> None:
    """Refuse a record without a key: a compacted topic could not tell what it replaces."""
    for record in _decoded(records, position, partition):
        if record.key is None:
            _refuse(partition, "a compacted topic takes no record without a key")


def rebuild(
    records: memoryview,
    batches: list[tuple[int, BatchHeader]],
    config: LogConfig,
    partition: TopicPartition,
) -> memoryview:
    """The same records in the topic's codec; producer, sequence and timestamps stay."""
    rebuilt = bytearray()
    codec = CODECS[config.compression_type]
    for position, header in batches:
        rebuilt += build_batch(
            _decoded(records, position, partition),
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


def _decoded(records: memoryview, position: int, partition: TopicPartition) -> list[Record]:
    try:
        return decode_records(records, position)
    except ProtocolError as problem:
        raise ApiError(ErrorCode.CORRUPT_MESSAGE, f"{partition}: {problem}") from None


def _refuse(partition: TopicPartition, why: str) -> NoReturn:
    raise ApiError(ErrorCode.INVALID_RECORD, f"{partition}: {why}.")
