"""Checkpoints: many manifests in one, without what is gone.

What: a checkpoint says all that the manifests it replaces said of objects that are still there; of
the others it keeps where partitions begin and which batches producers wrote last. It is a root that
names its parts, so that neither memory nor a request grows with the store. Why: manifests come
every ten seconds, for ever, and a restore reads them all. Rules kept: to read a manifest together
with a checkpoint that has it changes nothing; a part, or a root, that is not what was written is
noticed, and then the checkpoint before counts; a format that is not known is refused, not passed
over. Not here: which are made and removed (`combination.py`), rebuilding (`restoration.py`).

Root and part begin alike, "ANBR-CKP" or "ANBR-CPT":

    magic     8
    format    2   1
    CRC32C    4   of magic, format and what follows
    content       `Checkpoint` or `Part` as MessagePack, its fields in order as an array
"""

from __future__ import annotations

import re
from bisect import bisect_right
from collections.abc import Iterable
from struct import Struct
from typing import Any, NamedTuple, TypeVar

import msgspec

from anabranch.core.diskless.commit import Producer, ProducerKey
from anabranch.core.diskless.layout import DamagedObject
from anabranch.core.diskless.manifests import NotedObject
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.log.producers import BATCHES_KEPT
from anabranch.core.types import Buffer, TopicId
from anabranch.core.wire.crc import crc32c

ROOT_MAGIC, PART_MAGIC = b"ANBR-CKP", b"ANBR-CPT"
FORMAT = 1
_SUMMED = Struct(">8sH")
_CRC = Struct(">I")
HEAD_SIZE = _SUMMED.size + _CRC.size
CHECKPOINTS_KEPT = 2
"""A manifest is deleted when so many have it."""
ROOM, PARTS_ROOM = "checkpoints", "checkpoint-parts"
_ROOT_NAME = re.compile(r"\d{10}", re.ASCII)
_PART_NAME = re.compile(r"(\d{10})-[\d-]+/\d{6}", re.ASCII)


class Writer(NamedTuple):
    """One broker in one epoch: a checkpoint has its manifests below a number, but for those that
    were not there, or damaged: ranges `[first, end)` of numbers, in order."""

    broker_id: int
    broker_epoch: int
    next_number: int
    missing: list[tuple[int, int]]

    def has(self, number: int) -> bool:
        """Whether the checkpoint has the manifest of a number."""
        at = bisect_right(self.missing, number, key=_first) - 1
        is_missing = at >= 0 and number < self.missing[at][1]
        return number < self.next_number and not is_missing


def _first(missing: tuple[int, int]) -> int:
    return missing[0]


class KnownProducer(NamedTuple):
    """The last batches of a producer whose objects are gone, and when they were noted here."""

    key: ProducerKey
    producer: Producer
    noted_ms: int


class Part(msgspec.Struct, frozen=True, array_like=True):
    """Some of what a checkpoint says; parts do not refer to one another."""

    cluster_id: str
    objects: list[NotedObject]
    starts: list[tuple[LogKey, int]]
    producers: list[KnownProducer]
    names: dict[TopicId, str]


class PartName(NamedTuple):
    """Which part, and what its bytes must be."""

    key: str
    byte_size: int
    crc: int


class Checkpoint(msgspec.Struct, frozen=True, array_like=True):
    """The root of one checkpoint."""

    cluster_id: str
    number: int
    writers: list[Writer]
    floors: list[tuple[int, int]]
    """Broker id -> the newest of its epochs that `writers` no longer has."""
    deleted: list[tuple[TopicId, int]]
    """Topics that were deleted, and the number of the first checkpoint that says so."""
    last_object_id: int
    parts: list[PartName]

    def by_writer(self) -> dict[tuple[int, int], Writer]:
        """Which manifests it has: (broker, epoch) -> numbers."""
        return {each[:2]: each for each in self.writers}


class Combined(NamedTuple):
    """A checkpoint that was read whole."""

    root: Checkpoint
    parts: list[Part]


class NewerCheckpoint(StorageFault):
    """A newer version of this software wrote it."""


_T = TypeVar("_T", Checkpoint, Part)


def checkpoints_prefix(cluster_id: str) -> str:
    """What the names of all roots of a cluster begin with."""
    return f"{cluster_id}/{ROOM}/"


def parts_prefix(cluster_id: str) -> str:
    """What the names of all parts of a cluster begin with."""
    return f"{cluster_id}/{PARTS_ROOM}/"


def checkpoint_key(cluster_id: str, number: int) -> str:
    """The name of a root. Whoever stores it first has made the checkpoint of that number."""
    return f"{checkpoints_prefix(cluster_id)}{number:010d}"


def checkpoint_number(key: str) -> int:
    """The number in a root's name; -1 when it is none."""
    number = key.rpartition("/")[2]
    return int(number) if _ROOT_NAME.fullmatch(number) else -1


def part_key(cluster_id: str, number: int, maker: str, index: int) -> str:
    """The name of a part. `maker` is the attempt that makes it, digits and dashes, and no other
    attempt has the same: what was stored before a broker died stands in nobody's way."""
    return f"{parts_prefix(cluster_id)}{number:010d}-{maker}/{index:06d}"


def part_number(key: str, cluster_id: str) -> int:
    """For which checkpoint a part was made; -1 when it is no part."""
    found = _PART_NAME.fullmatch(key.removeprefix(parts_prefix(cluster_id)))
    return -1 if found is None else int(found[1])


def encode_root(root: Checkpoint) -> bytes:
    """The bytes of the layout above."""
    return _encoded(ROOT_MAGIC, root)


def encode_part(part: Part) -> bytes:
    """The bytes of the layout above."""
    return _encoded(PART_MAGIC, part)


def _encoded(magic: bytes, content: Any) -> bytes:
    held = msgspec.msgpack.encode(content)
    head = _SUMMED.pack(magic, FORMAT)
    return head + _CRC.pack(crc32c(held, crc32c(head))) + held


def crc_of(held: Buffer) -> int:
    """The checksum in the head of a root or a part."""
    return int(_CRC.unpack_from(held, _SUMMED.size)[0])


def decode_root(held: Buffer, place: str) -> Checkpoint:
    """A root; raises DamagedObject or NewerCheckpoint, naming `place`."""
    return _decoded(held, ROOT_MAGIC, Checkpoint, place)


def check_part(held: Buffer, name: PartName, place: str) -> None:
    """Whether these bytes are the part that a root names; raises DamagedObject."""
    _check_named(held, name, place)
    _check_head(held, PART_MAGIC, place)


def decode_part(held: Buffer, name: PartName, place: str) -> Part:
    """A part, if it is the one that the root names; raises as `decode_root`."""
    _check_named(held, name, place)
    return _decoded(held, PART_MAGIC, Part, place)


def _check_named(held: Buffer, name: PartName, place: str) -> None:
    if len(held) != name.byte_size or len(held) < HEAD_SIZE or crc_of(held) != name.crc:
        raise DamagedObject(place, 0, "this is not the part that the checkpoint names")


def _check_head(held: Buffer, wanted: bytes, place: str) -> None:
    if len(held) < HEAD_SIZE:
        raise DamagedObject(place, len(held), "it ends within its header")
    if bytes(held[: len(wanted)]) != wanted:
        raise DamagedObject(place, 0, "this is no checkpoint, or no part of one")
    view = memoryview(held)
    if crc_of(held) != crc32c(view[HEAD_SIZE:], crc32c(view[: _SUMMED.size])):
        raise DamagedObject(place, HEAD_SIZE, "the checkpoint's checksum is wrong")


def _decoded(held: Buffer, wanted: bytes, kind: type[_T], place: str) -> _T:
    _check_head(held, wanted, place)
    _, form = _SUMMED.unpack_from(held)
    if form != FORMAT:
        raise NewerCheckpoint(
            f"{place}: checkpoint format {form} is not known, {FORMAT} is; use the version of "
            "Anabranch that wrote it, or a newer one"
        )
    try:
        return msgspec.msgpack.decode(memoryview(held)[HEAD_SIZE:], type=kind)
    except msgspec.DecodeError as problem:
        raise DamagedObject(place, HEAD_SIZE, str(problem)) from None


def check_replaced(keys: Iterable[str], why: str) -> None:
    """These are all roots, and no checkpoint is whole: raises StorageFault if manifests may have
    been deleted because of them, which needs two."""
    in_order = sorted((key for key in keys if checkpoint_number(key) >= 0), reverse=True)
    if max(map(checkpoint_number, in_order), default=0) >= CHECKPOINTS_KEPT:
        raise StorageFault(
            f"{why}; no checkpoint before it is whole, and manifests that they replaced are gone: "
            f"put one of {', '.join(in_order)} with its parts back from a copy of the store, or "
            "remove all of them to continue with what the remaining manifests contain"
        )


def newest(known: Iterable[Producer]) -> Producer:
    """What several accounts of one producer say together: its last batches in its newest epoch."""
    accounts = list(known)
    epoch = max(each.epoch for each in accounts)
    written = {one for each in accounts if each.epoch == epoch for one in each.written}
    in_order = sorted(written, key=lambda one: one.base_offset)
    return Producer(epoch, tuple(in_order[-BATCHES_KEPT:]))
