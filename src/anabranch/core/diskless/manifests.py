"""Manifests: what the coordinator decided, stored beside the objects, in case it is lost.

What: each broker notes the objects that it has committed, with the offset of each batch, and the
starts and deleted topics of all brokers as the watch tells them; a few seconds' worth is one
manifest.
Why: objects have no offsets, so that a coordinator could not be rebuilt from them alone. Rules
kept: a manifest is never needed to serve; it is written once, under a name that rises (broker,
broker epoch, number from 0 on), so that a missing one is noticed; what cannot be stored waits,
bounded, and what is beyond the bound is given up, since its objects still exist. Old ones are
removed once checkpoints have what they say (`combination.py`). Not here: I/O
(`server/diskless/manifests.py`), rebuilding (`restoration.py`).

    magic     8   "ANBR-MAN"
    format    2   1
    CRC32C    4   of what follows
    content       `Manifest` as MessagePack, its fields in order as an array
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from struct import Struct
from typing import NamedTuple

import msgspec

from anabranch.core.diskless.layout import DamagedObject
from anabranch.core.diskless.rows import (
    Batch,
    Change,
    Commit,
    CommitState,
    Committed,
    LogKey,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.types import Buffer, TopicId
from anabranch.core.wire.crc import crc32c

MAGIC = b"ANBR-MAN"
FORMAT = 1
_HEAD = Struct(">8sHI")
ROOM = "manifests"
INTERVAL_MS = 10_000
"""A coordinator that is lost takes at most the order of so much time with it."""
FULL_BATCHES = 20_000
"""A manifest of so many batches and starts, about 2 MB, is stored at once."""
RESTORED = -1
"""The broker id of a manifest by `anabranch diskless restore`: the order in it is a guess."""
MOST_WAITING = 64
"""Manifests in memory while they cannot be stored; of those beyond, the objects are given up."""


class Offsets(NamedTuple):
    """A committed batch and its first offset."""

    batch: Batch
    base_offset: int


class NotedObject(NamedTuple):
    """A committed object; batches that were refused or known before are left out."""

    object_id: int
    object_key: str
    byte_size: int
    broker_id: int
    broker_epoch: int
    batches: list[Offsets]


class Manifest(msgspec.Struct, frozen=True, array_like=True):
    """One manifest."""

    cluster_id: str
    broker_id: int
    broker_epoch: int
    number: int
    objects: list[NotedObject]
    starts: list[tuple[LogKey, int]]
    """Where partitions begin that have moved, whoever moved them."""
    deleted: list[TopicId]
    """Topics that were deleted."""
    names: dict[TopicId, str]
    """Of the topics in it."""


class Frozen(NamedTuple):
    """A manifest that is ready to be put."""

    key: str
    content: bytes
    object_count: int
    last_object_key: str = ""
    """Of the object that was committed last; "" when there is none in it."""


def manifests_prefix(cluster_id: str) -> str:
    """What the names of all manifests of a cluster begin with."""
    return f"{cluster_id}/{ROOM}/"


def manifest_key(cluster_id: str, broker_id: int, broker_epoch: int, number: int) -> str:
    """The name of a manifest; names of one broker rise with time."""
    return f"{manifests_prefix(cluster_id)}{broker_id}/{broker_epoch:019d}-{number:010d}"


class ManifestName(NamedTuple):
    """Whose manifest, and which: names of one broker rise with time."""

    broker_id: int
    broker_epoch: int
    number: int


_NAME = re.compile(r"(-?\d{1,10})/(\d{19})-(\d{10})", re.ASCII)


def manifest_name(key: str, cluster_id: str) -> ManifestName | None:
    """What the name of an object says; None when it is no manifest's."""
    found = _NAME.fullmatch(key.removeprefix(manifests_prefix(cluster_id)))
    return None if found is None else ManifestName(*map(int, found.groups()))


def noted(commit: Commit, committed: Committed) -> NotedObject:
    """What a manifest says of an object."""
    batches = [
        Offsets(batch, verdict.base_offset)
        for batch, verdict in zip(commit.batches, committed.verdicts)
        if verdict.code == ErrorCode.NONE and not verdict.is_duplicate
    ]
    return NotedObject(*commit[:5], batches)


def encode_manifest(manifest: Manifest) -> bytes:
    """The bytes of the layout above."""
    content = msgspec.msgpack.encode(manifest)
    return _HEAD.pack(MAGIC, FORMAT, crc32c(content)) + content


def decode_manifest(held: Buffer, place: str) -> Manifest:
    """A manifest; raises DamagedObject, naming `place`."""
    if len(held) < _HEAD.size:
        raise DamagedObject(place, len(held), "it ends within its header")
    magic, form, crc = _HEAD.unpack_from(held)
    if magic != MAGIC:
        raise DamagedObject(place, 0, "this is no manifest")
    if form != FORMAT:
        detail = f"manifest format {form} is not known, {FORMAT} is; a newer version may read it"
        raise DamagedObject(place, 8, detail)
    content = memoryview(held)[_HEAD.size :]
    if crc != crc32c(content):
        raise DamagedObject(place, _HEAD.size, "the manifest's checksum is wrong")
    try:
        return msgspec.msgpack.decode(content, type=Manifest)
    except msgspec.DecodeError as problem:
        raise DamagedObject(place, _HEAD.size, str(problem)) from None


class ManifestLog:
    """What one broker notes. `name_of` gives a topic's name, or None once it is deleted."""

    def __init__(
        self,
        cluster_id: str,
        broker_id: int,
        broker_epoch: int,
        name_of: Callable[[TopicId], str | None],
    ) -> None:
        self._cluster_id, self._broker_id, self._broker_epoch = cluster_id, broker_id, broker_epoch
        self._name_of = name_of
        self._number = 0
        self._objects: list[NotedObject] = []
        self._starts: dict[LogKey, int] = {}
        self._deleted: set[TopicId] = set()
        self._batch_count = 0
        self._since_ms: int | None = None
        self._waiting: list[Frozen] = []
        self.given_up_objects = 0
        """Objects that are in no manifest: the store refused manifests for too long, or the
        coordinator has forgotten which offsets it gave."""

    def committed(self, commit: Commit, answer: Committed, now_ms: int) -> None:
        """An object of this broker was committed."""
        if answer.state is CommitState.COMMITTED and not answer.verdicts:
            self.given_up_objects += 1
        elif answer.state is CommitState.COMMITTED:
            self._objects.append(noted(commit, answer))
            self._batch_count += len(commit.batches)
            self._note(now_ms)

    def heard(self, changes: Iterable[Change], now_ms: int) -> None:
        """Partitions moved, by whatever broker and for whatever reason: starts and deleted topics
        are noted, so that each broker has them that lives. Ends are noted with their objects."""
        for key, state, runs in changes:
            if state is None:
                self._deleted.add(key.topic_id)
                self._starts.pop(key, None)
            elif (state.start_offset or state.tiered_end) and not runs:
                self._starts[key] = max(state.start_offset, self._starts.get(key, 0))
            else:
                continue
            self._note(now_ms)

    def _note(self, now_ms: int) -> None:
        if self._since_ms is None:
            self._since_ms = now_ms

    @property
    def writer(self) -> tuple[str, int]:
        """Cluster and broker that note."""
        return self._cluster_id, self._broker_id

    @property
    def next_tick_ms(self) -> int | None:
        """When there is something to store; None: nothing was noted."""
        if self._since_ms is None:
            return None
        is_full = self._batch_count + len(self._starts) >= FULL_BATCHES
        return self._since_ms if is_full else self._since_ms + INTERVAL_MS

    def tick(self, now_ms: int, *, at_once: bool = False) -> Frozen | None:
        """The manifest to put next, if one is due; it comes again until it is `stored`."""
        due_ms = self.next_tick_ms
        if due_ms is not None and (at_once or now_ms >= due_ms):
            self._freeze()
            if len(self._waiting) > MOST_WAITING:
                self._give_up(self._waiting.pop(1), now_ms)
        return self._waiting[0] if self._waiting else None

    def stored(self, frozen: Frozen) -> None:
        """The manifest that `tick` gave is in the store."""
        if self._waiting and self._waiting[0] is frozen:
            del self._waiting[0]

    @property
    def waiting_count(self) -> int:
        """Manifests that are not yet stored."""
        return len(self._waiting)

    def _freeze(self) -> None:
        topics = {each.batch.key.topic_id for one in self._objects for each in one.batches}
        topics.update(key.topic_id for key in self._starts)
        names = {topic_id: self._name_of(topic_id) for topic_id in sorted(topics)}
        manifest = Manifest(
            self._cluster_id,
            self._broker_id,
            self._broker_epoch,
            self._number,
            self._objects,
            sorted(self._starts.items()),
            sorted(self._deleted),
            {topic_id: name for topic_id, name in names.items() if name is not None},
        )
        key = manifest_key(*_identity(manifest))
        last = self._objects[-1].object_key if self._objects else ""
        self._waiting.append(Frozen(key, encode_manifest(manifest), len(self._objects), last))
        self._number += 1
        self._objects, self._starts, self._deleted = [], {}, set()
        self._batch_count, self._since_ms = 0, None

    def _give_up(self, frozen: Frozen, now_ms: int) -> None:
        """There is no room for a manifest: its starts and deleted topics, which are told once, go
        into the next one."""
        self.given_up_objects += frozen.object_count
        manifest = decode_manifest(frozen.content, frozen.key)
        for key, start_offset in manifest.starts:
            self._starts[key] = max(start_offset, self._starts.get(key, 0))
        self._deleted.update(manifest.deleted)
        if self._starts or self._deleted:
            self._note(now_ms)


def _identity(manifest: Manifest) -> tuple[str, int, int, int]:
    return manifest.cluster_id, manifest.broker_id, manifest.broker_epoch, manifest.number
