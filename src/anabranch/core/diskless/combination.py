"""Combining manifests: checkpoints are made, and what two of them have is deleted.

What: `combine` is one attempt, a generator that yields calls and is sent what they gave. It reads
the two newest sound checkpoints whole; deletes manifests that both have, and older checkpoints; and
makes the next one of the newest and of manifests that are old enough. An object's note is left out
once the coordinator has forgotten the object, which it does after the store deleted it, and says
that each of its batches lies before its partition's start: then start and producers are noted.
Why so: every checkpoint says at least what the manifests that it has say, and reading twice changes
nothing; so no step that is lost, late, repeated, or done by two brokers at once can take something
away from a restore. Rules kept: nothing is deleted on the word of one checkpoint; a root is stored
after all its parts, under the next number, which only one broker can take; manifests that are
damaged, of a restore, or of the last hour are left alone; memory is bounded by one part or manifest
and by MOST_FOLDED entries. Not here: when (`combination_rounds.py`), formats (`checkpoints.py`),
I/O (`server/diskless/combiner.py`, `sim/combination.py`).
"""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Generator, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple, TypeAlias, TypeVar

from anabranch.core.diskless.checkpoints import (
    CHECKPOINTS_KEPT,
    Checkpoint,
    KnownProducer,
    Part,
    PartName,
    Writer,
    check_part,
    check_replaced,
    checkpoint_key,
    checkpoint_number,
    checkpoints_prefix,
    crc_of,
    decode_part,
    decode_root,
    encode_part,
    encode_root,
    newest,
    part_key,
    part_number,
    parts_prefix,
)
from anabranch.core.diskless.commit import Producer, ProducerKey, Written
from anabranch.core.diskless.garbage import DELETE_AT_ONCE
from anabranch.core.diskless.garbage_rounds import DeleteObjects, FindUnknown
from anabranch.core.diskless.layout import DamagedObject
from anabranch.core.diskless.manifests import (
    RESTORED,
    Manifest,
    ManifestName,
    NotedObject,
    decode_manifest,
    manifest_name,
    manifests_prefix,
)
from anabranch.core.diskless.objects import Listed, ObjectMissing
from anabranch.core.diskless.rows import NO_PRODUCER, LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.types import Buffer, TopicId

PART_BATCHES = 2_000
"""About 0.1 MB: to decode it holds up a broker for some 20 ms."""
ASK_AT_ONCE = 1_000
"""Objects or partitions in one question to the coordinator."""
MOST_MANIFESTS = 20_000
"""In one attempt: a store that is years old is combined in many."""
MOST_FOLDED = 300_000
"""Starts and producers in memory, some 300 bytes each. Notes of objects beyond stay as they are."""
EPOCHS_KEPT = 2
"""Of each broker, also where no manifest is left of them."""


class CombiningPace(NamedTuple):
    """How often, and after how long."""

    round_ms: int = 3_600_000
    """Between attempts of the cluster: brokers take turns."""
    retry_ms: int = 60_000
    """After one that left something, or that failed; twice as long after each further failure."""
    tail_ms: int = 3_600_000
    """Manifests stay for so long: batches whose commit had no answer come again before, and those
    of a restore know them by these notes."""
    fewest: int = 100
    """Manifests that are worth a new checkpoint."""
    most_ms: int = 43_200_000
    """An attempt that takes longer is given up: others may have removed its parts."""
    part_ms: int = 86_400_000
    """Age of parts that are deleted because no root names them; no attempt lasts so long."""
    idle_producer_ms: int = 604_800_000


class ListPage(NamedTuple):
    """Gives the next page (list[Listed]) of all names with a prefix, None behind the last one."""

    prefix: str
    is_first: bool


class ReadWhole(NamedTuple):
    """Gives the bytes of an object."""

    key: str
    byte_size: int


class PutWhole(NamedTuple):
    """Store a new object."""

    key: str
    content: bytes


class AskStates(NamedTuple):
    """Gives where partitions stand, None for those without a row."""

    keys: list[LogKey]


class AskLastId(NamedTuple):
    """Gives the greatest object id that the coordinator has given."""


class ReadClocks(NamedTuple):
    """Gives `Clocks`."""


class Clocks(NamedTuple):
    """The wall clock, and the steady one."""

    wall_ms: int
    steady_ms: int


Call: TypeAlias = (
    ListPage | ReadWhole | PutWhole | AskStates | AskLastId | ReadClocks | DeleteObjects
    | FindUnknown
)  # fmt: skip
_T = TypeVar("_T")
Steps: TypeAlias = Generator[Call, Any, _T]


class Maker(NamedTuple):
    """Who combines."""

    cluster_id: str
    broker_id: int
    broker_epoch: int


class Combining(NamedTuple):
    """What an attempt did."""

    deleted: int
    """Manifests."""
    combined: int
    """Manifests that are in the new checkpoint."""
    number: int
    """Of the new checkpoint; -1: none was made."""
    left: bool
    """Whether there is more to combine at once."""


class _Sound(NamedTuple):
    """A checkpoint that is whole, and when its root was stored."""

    root: Checkpoint
    stored_ms: int


class _Found(NamedTuple):
    """Manifests of the store: `fresh` are to be combined, by name; `spent` may be deleted."""

    fresh: list[tuple[ManifestName, Listed]]
    spent: list[str]
    writers: set[tuple[int, int]]
    is_whole: bool


def combine(maker: Maker, pace: CombiningPace) -> Steps[Combining]:
    """One attempt; the fault of a call that failed ends it, and nothing is lost by that. Older
    checkpoints go before manifests, so that each that is there has what manifests no longer say."""
    clocks: Clocks = yield ReadClocks()
    roots = yield from _list(checkpoints_prefix(maker.cluster_id))
    parts = yield from _list(parts_prefix(maker.cluster_id))
    sound = yield from _sound(roots)
    found = yield from _find(maker.cluster_id, sound, clocks.wall_ms - pace.tail_ms)
    whole = [each.root for each in sound]
    yield from _delete(outdated(roots, parts, whole, maker, clocks.wall_ms - pace.part_ms))
    yield from _delete(found.spent)
    number = 1 + max((checkpoint_number(each.key) for each in roots), default=0)
    is_one_lost = len(whole) < min(CHECKPOINTS_KEPT, number - 1)
    if len(found.fresh) < pace.fewest and not is_one_lost:
        return Combining(len(found.spent), 0, -1, False)
    base = whole[0] if whole else None
    new = _New(maker, number, clocks.wall_ms, pace.idle_producer_ms)
    root = yield from new.make(base, found)
    now: Clocks = yield ReadClocks()
    if now.steady_ms - clocks.steady_ms > pace.most_ms:
        raise StorageFault(
            f"combining manifests took longer than {pace.most_ms / 1000:g} s and was given up; "
            "check how fast the store and the coordinator answer"
        )
    last_id: int = yield AskLastId()
    if root.last_object_id > last_id:
        raise StorageFault(
            f"manifests name object {root.last_object_id}, and the coordinator's last one is "
            f"{last_id}: it is older than they are, and they are not combined; restore it from "
            "the store"
        )
    yield PutWhole(checkpoint_key(maker.cluster_id, number), encode_root(root))
    return Combining(len(found.spent), len(found.fresh), number, not found.is_whole)


def _list(prefix: str) -> Steps[list[Listed]]:
    listed: list[Listed] = []
    page = yield ListPage(prefix, True)
    while page is not None:
        listed += page
        page = yield ListPage(prefix, False)
    return listed


def _delete(keys: Sequence[str]) -> Steps[None]:
    for some in _some(keys, DELETE_AT_ONCE):
        yield DeleteObjects(list(some))


def _some(given: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    return (given[start : start + size] for start in range(0, len(given), size))


def _asked_together(objects: Iterable[NotedObject]) -> Iterator[list[NotedObject]]:
    """Objects that are asked about at once: not too many, and with not too many batches."""
    some: list[NotedObject] = []
    batches = 0
    for each in objects:
        some.append(each)
        batches += len(each.batches)
        if len(some) >= ASK_AT_ONCE or batches >= PART_BATCHES:
            yield some
            some, batches = [], 0
    if some:
        yield some


def _sound(roots: Iterable[Listed]) -> Steps[list[_Sound]]:
    """The newest checkpoints that are whole, the newest first. Raises NewerCheckpoint, and
    StorageFault when those that replaced manifests are damaged."""
    sound: list[_Sound] = []
    damage: list[str] = []
    for listed in sorted(roots, reverse=True):
        if len(sound) < CHECKPOINTS_KEPT and checkpoint_number(listed.key) >= 0:
            try:
                held = yield ReadWhole(listed.key, listed.byte_size)
                root = decode_root(held, listed.key)
                for name in root.parts:
                    check_part((yield ReadWhole(name.key, name.byte_size)), name, name.key)
            except (DamagedObject, ObjectMissing) as fault:
                damage.append(str(fault))
                continue
            sound.append(_Sound(root, listed.modified_ms))
    if damage and not sound:
        check_replaced([each.key for each in roots], damage[0])
    return sound


def _find(cluster_id: str, sound: Sequence[_Sound], until_ms: int) -> Steps[_Found]:
    """Look through the manifests, as far as one attempt goes."""
    known = [(each.root.by_writer(), each.stored_ms) for each in sound]
    found = _Found([], [], set(), True)
    prefix = manifests_prefix(cluster_id)
    page: list[Listed] | None = yield ListPage(prefix, True)
    while page is not None:
        for listed in page:
            name = manifest_name(listed.key, cluster_id)
            if name is None or name.broker_id == RESTORED:
                continue
            found.writers.add(name[:2])
            have = [_has(*each, name, listed) for each in known]
            if len(have) == CHECKPOINTS_KEPT and all(have):
                found.spent.append(listed.key)
            elif not any(have[:1]) and listed.modified_ms <= until_ms:
                found.fresh.append((name, listed))
        if len(found.fresh) >= MOST_MANIFESTS:
            return found._replace(is_whole=False)
        page = yield ListPage(prefix, False)
    return found


def _has(
    writers: Mapping[tuple[int, int], Writer], stored_ms: int, name: ManifestName, listed: Listed
) -> bool:
    """Whether a checkpoint that was stored then has a manifest. One that came later has a name
    that was used twice: epochs come again when metadata were put back from an older copy."""
    writer = writers.get(name[:2])
    return writer is not None and writer.has(name.number) and listed.modified_ms <= stored_ms


def outdated(
    roots: Iterable[Listed],
    parts: Iterable[Listed],
    sound: Sequence[Checkpoint],
    maker: Maker,
    until_ms: int,
) -> list[str]:
    """Roots and parts that two newer checkpoints replace, roots first, and parts that are older
    than any attempt and have no root."""
    kept = {name.key for root in sound for name in root.parts}
    numbers = {root.number for root in sound}
    is_enough = len(sound) == CHECKPOINTS_KEPT
    oldest, newest_number = (sound[-1].number, sound[0].number) if is_enough else (0, 0)
    damaged = {checkpoint_number(each.key) for each in roots} - numbers
    gone = [
        each.key
        for each in roots
        if (number := checkpoint_number(each.key)) in damaged and 0 <= number < newest_number
    ]
    for each in parts:
        number = part_number(each.key, maker.cluster_id)
        if number >= 0 and each.key not in kept:
            is_left = each.modified_ms <= until_ms and number not in damaged
            if number < oldest or is_left:
                gone.append(each.key)
    return gone


class _New:
    """A checkpoint in the making."""

    def __init__(self, maker: Maker, number: int, wall_ms: int, idle_ms: int) -> None:
        self._maker, self._number, self._wall_ms, self._idle_ms = maker, number, wall_ms, idle_ms
        self._objects: list[NotedObject] = []
        self._batches = 0
        self._parts: list[PartName] = []
        self._starts: dict[LogKey, int] = {}
        self._producers: dict[ProducerKey, KnownProducer] = {}
        self._names: dict[TopicId, str] = {}
        self._kept_topics: set[TopicId] = set()
        self._deleted: dict[TopicId, int] = {}
        self._states: dict[LogKey, LogState | None] = {}
        self._last_object_id = 0

    def make(self, base: Checkpoint | None, found: _Found) -> Steps[Checkpoint]:
        """Read everything, and store the parts; the root is not stored."""
        if base is not None:
            self._last_object_id = base.last_object_id
            self._deleted = dict(base.deleted)
            for name in base.parts:
                part = decode_part((yield ReadWhole(name.key, name.byte_size)), name, name.key)
                yield from self._take_part(part)
        cluster_id = self._maker.cluster_id
        read: list[ManifestName] = []
        for wanted, listed in sorted(found.fresh):
            try:
                held: Buffer = yield ReadWhole(listed.key, listed.byte_size)
                manifest = decode_manifest(held, listed.key)
            except DamagedObject:
                continue  # it stays where it is, and is missing here
            if manifest_identity(manifest) != wanted or manifest.cluster_id != cluster_id:
                continue
            yield from self._take_manifest(manifest)
            read.append(wanted)
        yield from self._put_objects()
        yield from self._put_folded()
        return self._root(base, read, found)

    def _take_part(self, part: Part) -> Steps[None]:
        self._names.update(part.names)
        for key, start_offset in part.starts:
            self._raise_start(key, start_offset)
        for known in part.producers:
            if known.noted_ms + self._idle_ms > self._wall_ms:
                self._know(known)
        yield from self._take(part.objects)

    def _take_manifest(self, manifest: Manifest) -> Steps[None]:
        self._names.update(manifest.names)
        for key, start_offset in manifest.starts:
            self._raise_start(key, start_offset)
        for topic_id in manifest.deleted:
            self._deleted.setdefault(topic_id, self._number)
        yield from self._take(manifest.objects)

    def _raise_start(self, key: LogKey, start_offset: int) -> None:
        self._starts[key] = max(start_offset, self._starts.get(key, 0))

    def _take(self, objects: Sequence[NotedObject]) -> Steps[None]:
        """Keep the notes of objects that are there, and fold the others."""
        for some in _asked_together(objects):
            unknown = set((yield FindUnknown([each.object_key for each in some])))
            gone = [each for each in some if each.object_key in unknown]
            yield from self._ask_states(gone)
            for each in some:
                self._last_object_id = max(self._last_object_id, each.object_id)
                if each.object_key in unknown and self._may_fold(each):
                    self._fold(each)
                else:
                    yield from self._keep(each)

    def _ask_states(self, gone: Iterable[NotedObject]) -> Steps[None]:
        keys = {one.batch.key for each in gone for one in each.batches}
        for some in _some(sorted(keys - self._states.keys()), ASK_AT_ONCE):
            states: list[LogState | None] = yield AskStates(list(some))
            self._states.update(zip(some, states, strict=True))

    def _may_fold(self, noted: NotedObject) -> bool:
        """Whether all its records are deleted, and there is room to say what stays of them."""
        if len(self._starts) + len(self._producers) + len(noted.batches) > MOST_FOLDED:
            return False
        for batch, base_offset in noted.batches:
            state = self._states[batch.key]
            if state is not None and base_offset + batch.record_count > state.start_offset:
                return False
        return True

    def _fold(self, noted: NotedObject) -> None:
        for batch, base_offset in noted.batches:
            if self._states[batch.key] is None:
                continue  # its topic is deleted
            self._raise_start(batch.key, base_offset + batch.record_count)
            if batch.producer_id != NO_PRODUCER:
                key = ProducerKey(batch.key, batch.producer_id)
                written = Written(batch.base_sequence, batch.last_sequence, base_offset)
                account = Producer(batch.producer_epoch, (written,))
                self._know(KnownProducer(key, account, self._wall_ms))

    def _know(self, more: KnownProducer) -> None:
        """Join an account of a producer with what is known: parts come in any order."""
        known = self._producers.get(more.key)
        if known is None:
            self._producers[more.key] = more
            return
        producer = newest([known.producer, more.producer])
        noted_ms = max(known.noted_ms, more.noted_ms)
        self._producers[more.key] = KnownProducer(more.key, producer, noted_ms)

    def _keep(self, noted: NotedObject) -> Steps[None]:
        self._objects.append(noted)
        self._batches += len(noted.batches)
        self._kept_topics.update(each.batch.key.topic_id for each in noted.batches)
        if self._batches >= PART_BATCHES:
            yield from self._put_objects()

    def _put_objects(self) -> Steps[None]:
        if self._objects:
            topics = {each.batch.key.topic_id for one in self._objects for each in one.batches}
            yield from self._put(self._objects, [], [], topics)
        self._objects, self._batches = [], 0

    def _put_folded(self) -> Steps[None]:
        gone = self._deleted.keys()  # in any order: to sort so many would hold up a broker
        starts = (each for each in self._starts.items() if each[0].topic_id not in gone)
        while some := list(islice(starts, PART_BATCHES)):
            yield from self._put([], some, [], {key.topic_id for key, _ in some})
        known = (each for each in self._producers.values() if each.key.key.topic_id not in gone)
        while some_known := list(islice(known, PART_BATCHES)):
            yield from self._put([], [], some_known, ())

    def _put(
        self,
        objects: list[NotedObject],
        starts: Sequence[tuple[LogKey, int]],
        producers: Sequence[KnownProducer],
        topics: Iterable[TopicId],
    ) -> Steps[None]:
        cluster_id, broker_id, broker_epoch = self._maker
        names = {each: self._names[each] for each in sorted(topics) if each in self._names}
        content = encode_part(Part(cluster_id, objects, list(starts), list(producers), names))
        maker = f"{broker_id}-{broker_epoch}-{self._wall_ms}"
        key = part_key(cluster_id, self._number, maker, len(self._parts))
        yield PutWhole(key, content)
        self._parts.append(PartName(key, len(content), crc_of(content)))

    def _root(
        self, base: Checkpoint | None, read: Iterable[ManifestName], found: _Found
    ) -> Checkpoint:
        writers, floors = covered(base, read, found.writers if found.is_whole else None)
        if not found.is_whole:  # manifests that nobody looked at may have batches of these topics
            self._deleted = dict.fromkeys(self._deleted, self._number)
        deleted = [
            (topic_id, first)
            for topic_id, first in sorted(self._deleted.items())
            if topic_id in self._kept_topics or first > self._number - CHECKPOINTS_KEPT
        ]
        cluster_id, parts = self._maker.cluster_id, self._parts
        return Checkpoint(
            cluster_id, self._number, writers, floors, deleted, self._last_object_id, parts
        )


def manifest_identity(manifest: Manifest) -> ManifestName:
    """Broker, epoch and number in a manifest."""
    return ManifestName(manifest.broker_id, manifest.broker_epoch, manifest.number)


def covered(
    base: Checkpoint | None, read: Iterable[ManifestName], present: set[tuple[int, int]] | None
) -> tuple[list[Writer], list[tuple[int, int]]]:
    """Writers and floors of a checkpoint that adds some manifests to another.

    `present` are the writers of which the store has manifests, None when that is not known: older
    epochs without any are left out, so that restarts do not add up."""
    writers = {} if base is None else base.by_writer()
    floors = {} if base is None else dict(base.floors)
    added: dict[tuple[int, int], list[int]] = {}
    for name in sorted(read):
        added.setdefault(name[:2], []).append(name.number)
    for each, numbers in added.items():
        before = writers.get(each) or Writer(*each, 0, [])
        upto = max(before.next_number, numbers[-1] + 1)
        open_ranges = [*before.missing, (before.next_number, upto)]
        writers[each] = Writer(*each, upto, _without(open_ranges, numbers))
    for broker_id in {broker for broker, _ in writers} if present is not None else ():
        epochs = sorted(epoch for broker, epoch in writers if broker == broker_id)
        for epoch in epochs[:-EPOCHS_KEPT]:
            if present is not None and (broker_id, epoch) not in present:
                del writers[broker_id, epoch]
                floors[broker_id] = max(epoch, floors.get(broker_id, -1))
    return [writers[each] for each in sorted(writers)], sorted(floors.items())


def _without(ranges: Iterable[tuple[int, int]], numbers: Sequence[int]) -> list[tuple[int, int]]:
    """What is left of ranges without some numbers, which are in order."""
    left: list[tuple[int, int]] = []
    for first, end in ranges:
        for number in numbers[bisect_left(numbers, first) : bisect_left(numbers, end)]:
            if number > first:
                left.append((first, number))
            first = number + 1
        if first < end:
            left.append((first, end))
    return left
