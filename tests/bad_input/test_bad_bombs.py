"""Kilobytes that unpack to far more, in every codec (R15)."""

from __future__ import annotations

import zlib

import cramjam
import lz4.frame
import pytest
from bad_kit import batch, code_of
from test_bad_batches import INVALID_RECORD, changed

from anabranch.core.wire.compression import XERIAL_HEAD

PLAIN_BYTES = 128 << 20
STEP = bytes(1 << 20)


def gzip_bomb():
    packer = zlib.compressobj(9, zlib.DEFLATED, 31)
    return b"".join(packer.compress(STEP) for _ in range(PLAIN_BYTES >> 20)) + packer.flush()


def raw_snappy(plain):
    return bytes(cramjam.snappy.compress_raw(plain))


def snappy_bomb():
    """Says that it is 4 GB, which snappy's head may."""
    return b"\xff\xff\xff\xff\x0f" + raw_snappy(STEP)[3:]


def xerial_bomb():
    block = raw_snappy(STEP)
    return XERIAL_HEAD + (len(block).to_bytes(4, "big") + block) * 15


def lz4_bomb():
    with lz4.frame.LZ4FrameCompressor(block_linked=False) as packer:
        parts = [packer.begin()]
        parts += [packer.compress(STEP) for _ in range(PLAIN_BYTES >> 20)]
        return b"".join(parts) + packer.flush()


def zstd_bomb():
    return bytes(cramjam.zstd.compress(bytes(PLAIN_BYTES), 19))


def zstd_that_says_so():
    """A frame whose head claims 2^62 bytes."""
    return b"\x28\xb5\x2f\xfd\xe0" + (1 << 62).to_bytes(8, "little") + b"\x01\x00\x00"


KEPT_AS_THEY_COME = {("gzipped", 1), ("repacked", 4)}
BOMBS = {
    "gzip": (1, gzip_bomb),
    "snappy": (2, snappy_bomb),
    "xerial": (2, xerial_bomb),
    "lz4": (3, lz4_bomb),
    "zstd": (4, zstd_bomb),
    "zstd head": (4, zstd_that_says_so),
}


@pytest.fixture(scope="module", params=BOMBS)
def bomb(request):
    """A batch of one record whose compressed bytes are a bomb."""
    codec, make = BOMBS[request.param]
    records = batch()[:61] + make()
    assert len(records) < 1_200_000
    return changed(records, length=len(records) - 12, attributes=codec)


@pytest.mark.parametrize("topic", ["compacted", "repacked", "gzipped"])
def test_a_bomb_where_records_are_unpacked(node, refused, topic, bomb):
    if (topic, bomb[22]) in KEPT_AS_THEY_COME:
        return  # its codec is the topic's: nothing is unpacked, see below
    refused(topic, bytearray(bomb), INVALID_RECORD)


def test_a_bomb_where_records_stay_closed(node, client, bomb):
    """Nothing is unpacked: what its header says is all that is looked at."""
    before = node.state("wide")[0]
    assert code_of(client, "wide", bytearray(bomb)) == 0
    assert node.state("wide")[0] == before + 1
