"""CRC-32C (Castagnoli), the checksum of record batches and of Kafka's producer snapshots."""

from __future__ import annotations

from fastcrc import crc32 as _crc32

from anabranch.core.types import Buffer


def crc32c(buffer: Buffer, seed: int = 0) -> int:
    """The checksum of `buffer`, going on from `seed` (the checksum of what came before)."""
    return _crc32.iscsi(buffer, seed)
