"""The five codecs of record batches, each with a cap on what may come out.

    0 none | 1 gzip | 2 snappy | 3 lz4 | 4 zstd

snappy is written in the xerial framing as Kafka's clients do and read in that framing or raw:

    16-byte head: 82 53 4e 41 50 50 59 00 | version int32 = 1 | lowest compatible int32 = 1
    then blocks:  compressed length int32 | raw snappy block

lz4 is written with independent blocks, as Kafka's Java reader refuses linked ones (KIP-57). A zstd
frame may lack its content size, and several frames may follow one another.

The rule it keeps: `decompress` never makes more than `limit_bytes` bytes, whatever the input says.
"""

from __future__ import annotations

import zlib
from enum import IntEnum
from struct import Struct
from typing import Any

import cramjam
import lz4.frame

from anabranch.core.errors import ProtocolError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import BATCH_OVERHEAD, MAGIC

XERIAL_HEAD = b"\x82SNAPPY\x00" + (1).to_bytes(4, "big") * 2
XERIAL_MAGIC = XERIAL_HEAD[:8]
XERIAL_BLOCK_BYTES = 32 * 1024
"""What Kafka's clients put into one block."""
_LENGTH = Struct(">i")
_GZIP_WINDOW = 31  # zlib's way to ask for the gzip container
_FIRST_STEP_BYTES = 1024
"""What a stream is first given, then four times as much: what follows a short one is not copied."""
_LZ4_PART_BYTES = 1 << 20
"""Most plain bytes of one call, which reserves as much."""
_FIRST_GUESS = 8
"""Decompressed bytes a compressed byte that the first buffer has room for."""


class Codec(IntEnum):
    """The codec number in a batch's attributes."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4


def compress(codec: Codec, plain: Buffer, level: int | None = None) -> Buffer:
    """`plain` in the codec's framing; `level` is the codec's own scale, None its default."""
    if codec is Codec.NONE:
        return plain
    if codec is Codec.GZIP:
        packer = zlib.compressobj(-1 if level is None else level, zlib.DEFLATED, _GZIP_WINDOW)
        return packer.compress(plain) + packer.flush()
    if codec is Codec.SNAPPY:
        return _compress_snappy(memoryview(plain))
    if codec is Codec.LZ4:
        packed: bytes = lz4.frame.compress(
            plain, compression_level=level or 0, block_linked=False, store_size=False
        )
        return packed
    return bytes(cramjam.zstd.compress(plain, 3 if level is None else level))


def _compress_snappy(plain: memoryview) -> bytes:
    parts = [XERIAL_HEAD]
    for start in range(0, len(plain), XERIAL_BLOCK_BYTES):
        block = bytes(cramjam.snappy.compress_raw(plain[start : start + XERIAL_BLOCK_BYTES]))
        parts += (_LENGTH.pack(len(block)), block)
    return b"".join(parts)


def decompress(codec: Codec, packed: Buffer, *, limit_bytes: int) -> Buffer:
    """The plain bytes; raises ProtocolError when they are damaged or more than `limit_bytes`."""
    if codec is Codec.NONE:
        return packed
    try:
        if codec is Codec.GZIP:
            return _decompress_gzip(packed, limit_bytes)
        if codec is Codec.SNAPPY:
            return _decompress_snappy(memoryview(packed), limit_bytes)
        if codec is Codec.LZ4:
            return _decompress_lz4(packed, limit_bytes)
        return _decompress_zstd(packed, limit_bytes)
    except (zlib.error, RuntimeError, cramjam.DecompressionError, EOFError, ValueError) as problem:
        raise _damaged(codec, str(problem)) from None


def _damaged(codec: Codec, detail: str) -> ProtocolError:
    where = f"{codec.name.lower()}: {detail}"
    return ProtocolError("RecordBatch", MAGIC, "records", BATCH_OVERHEAD, where)


def _too_large(codec: Codec, limit_bytes: int) -> ProtocolError:
    return _damaged(codec, f"decompresses to more than {limit_bytes} bytes")


def _decompress_gzip(packed: Buffer, limit_bytes: int) -> bytes:
    view, parts, room, position = memoryview(packed), [], limit_bytes, 0
    while position < len(view):
        unpacker, step = zlib.decompressobj(_GZIP_WINDOW), _FIRST_STEP_BYTES
        while not unpacker.eof:
            if position >= len(view):
                raise _damaged(Codec.GZIP, "the stream ends early")
            part = unpacker.decompress(view[position : position + step], room + 1)
            if len(part) > room:
                raise _too_large(Codec.GZIP, limit_bytes)
            position, step = position + step, step * 4
            room -= len(part)
            parts.append(part)
        position = min(position, len(view)) - len(unpacker.unused_data)
    return b"".join(parts)


def _decompress_snappy(packed: memoryview, limit_bytes: int) -> bytes:
    if packed[:8] != XERIAL_MAGIC:
        return _snappy_block(packed, limit_bytes, limit_bytes)
    parts, position, room = [], len(XERIAL_HEAD), limit_bytes
    while position < len(packed):
        if len(packed) - position < 4:
            raise _damaged(Codec.SNAPPY, "a block's length is cut off")
        (size,) = _LENGTH.unpack_from(packed, position)
        position += 4
        if not 0 < size <= len(packed) - position:
            raise _damaged(Codec.SNAPPY, f"a block of {size} bytes does not fit")
        part = _snappy_block(packed[position : position + size], room, limit_bytes)
        room -= len(part)
        parts.append(part)
        position += size
    return b"".join(parts)


def _snappy_block(block: memoryview, room: int, limit_bytes: int) -> bytes:
    size: int = cramjam.snappy.decompress_raw_len(block)
    if size > room:
        raise _too_large(Codec.SNAPPY, limit_bytes)
    return bytes(cramjam.snappy.decompress_raw(block))


def _decompress_lz4(packed: Buffer, limit_bytes: int) -> bytes:
    view, parts, room, position = memoryview(packed), [], limit_bytes, 0
    while position < len(view):
        unpacker: Any = lz4.frame.LZ4FrameDecompressor()
        step = _FIRST_STEP_BYTES
        while not unpacker.eof:
            given: Buffer = b""
            if unpacker.needs_input:
                if position >= len(view):
                    raise _damaged(Codec.LZ4, "the frame ends early")
                given = view[position : position + step]
                position, step = position + step, step * 4
            part: bytes = unpacker.decompress(given, max_length=min(room + 1, _LZ4_PART_BYTES))
            if len(part) > room:
                raise _too_large(Codec.LZ4, limit_bytes)
            room -= len(part)
            parts.append(part)
        position = min(position, len(view)) - len(unpacker.unused_data or b"")
    return b"".join(parts)


def _decompress_zstd(packed: Buffer, limit_bytes: int) -> memoryview:
    size = min(limit_bytes, max(4096, len(packed) * _FIRST_GUESS))
    while True:
        room = bytearray(size)
        try:
            written: int = cramjam.zstd.decompress_into(packed, room)
        except cramjam.DecompressionError as problem:
            if "buffer" not in str(problem) and "write" not in str(problem):
                raise
            if size >= limit_bytes:
                raise _too_large(Codec.ZSTD, limit_bytes) from None
            size = min(limit_bytes, size * 4)
        else:
            return memoryview(room)[:written]
