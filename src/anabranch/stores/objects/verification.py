"""Reads a whole store and a coordinator to check them, or to rebuild the coordinator.

What: the work of `anabranch diskless verify` and `restore`, on a stopped cluster. Rules kept:
verifying changes nothing; restoring writes nothing before it knows that the coordinator is empty,
and stores what it guessed as a manifest before the coordinator has it. Reads are bounded: so many
objects at once. Not here: what is right (`core/diskless/verifier.py`, `restoration.py`).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence
from typing import NamedTuple, TypeVar

from anabranch.core.diskless.checkpoints import (
    Combined,
    Part,
    PartName,
    check_replaced,
    checkpoint_number,
    checkpoints_prefix,
    decode_part,
    decode_root,
)
from anabranch.core.diskless.claim import CLAIM_KEY, CLAIM_MOST, claimed_by
from anabranch.core.diskless.contents import NOT_EMPTY
from anabranch.core.diskless.coordinator import Coordinator
from anabranch.core.diskless.findings import Finding, Kind
from anabranch.core.diskless.guessed_offsets import append_unknown
from anabranch.core.diskless.keys import object_prefix
from anabranch.core.diskless.layout import (
    FOOTER_SIZE,
    HEADER_MOST,
    DamagedObject,
    decode_header,
    decode_index,
    tail_size,
)
from anabranch.core.diskless.manifests import (
    RESTORED,
    Manifest,
    NotedObject,
    Offsets,
    decode_manifest,
    encode_manifest,
    manifest_key,
    manifests_prefix,
)
from anabranch.core.diskless.object_parser import parse_object
from anabranch.core.diskless.objects import ObjectMissing, ObjectStore
from anabranch.core.diskless.restoration import NOT_TIERED, Rebuilt, Tiered, rebuild
from anabranch.core.diskless.rows import LogKey, LogState, Run, Wanted
from anabranch.core.diskless.verifier import Verifier
from anabranch.core.errors import StorageFault
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.segment import SNAPSHOT, offset_name
from anabranch.core.remote.facts import HeldRemoteLog
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.lineage import Span, joined
from anabranch.core.remote.restored_facts import RestoredFacts
from anabranch.core.tiering.seals import carried
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.stores.coordinator.front import Front
from anabranch.stores.coordinator.remote_front import RemoteFront
from anabranch.stores.objects.remote_segments import read_segments
from anabranch.stores.objects.store_check import record_restored

AT_ONCE = 16
"""Objects that are read at the same time: of 8 MiB each, 128 MiB."""
TOPICS_A_PAGE = 100
PARTITIONS_AT_ONCE = 100
KEYS_AT_ONCE = 1000
ALL_BYTES = 1 << 62
_T = TypeVar("_T")
_R = TypeVar("_R")


class Held(NamedTuple):
    """What a store has."""

    cluster_id: str
    objects: dict[str, int]
    manifests: list[Manifest]
    findings: list[Finding]
    combined: Combined | None = None
    """The newest sound checkpoint."""

    @property
    def checkpoint(self) -> int | None:
        """Its number."""
        return None if self.combined is None else self.combined.root.number


class Verified(NamedTuple):
    """What was checked, and found."""

    cluster_id: str
    objects: int
    byte_size: int
    manifests: int
    partitions: int
    rows: int
    findings: list[Finding]
    checkpoint: int | None = None
    """The number of the one that was read."""


class Restored(NamedTuple):
    """What a coordinator was given, and what was found."""

    cluster_id: str
    partitions: int
    rows: int
    objects: int
    manifests: int
    later: list[str]
    """Objects that no manifest names."""
    is_appended: bool
    findings: list[Finding]
    checkpoint: int | None = None
    """The number of the one that was read."""


async def owner_of(store: ObjectStore) -> str:
    """The cluster that a store belongs to. Raises StorageFault when it belongs to none."""
    try:
        size = await store.size(CLAIM_KEY)
    except ObjectMissing:
        raise StorageFault(
            f"{store.url}: no cluster has used this store: it has no object {CLAIM_KEY}; check "
            "the storage URL"
        ) from None
    [held] = await store.read(CLAIM_KEY, [(0, min(size, CLAIM_MOST))])
    return claimed_by(held, store.url).cluster_id


async def read_store(store: ObjectStore) -> Held:
    """List all objects, and read the newest checkpoint and all manifests. Raises StorageFault when
    the checkpoints that were made cannot be used."""
    cluster_id = await owner_of(store)
    combined, damaged = await _read_checkpoint(store, cluster_id)
    objects = await _listed(store, object_prefix(cluster_id))
    named = await _listed(store, manifests_prefix(cluster_id))
    manifests: list[Manifest] = []
    findings: list[Finding] = damaged

    async def read(key: str) -> Manifest | Finding:
        try:
            [held] = await store.read(key, [(0, named[key])])
            return decode_manifest(held, f"{store.url}: {key}")
        except (DamagedObject, ObjectMissing) as damage:
            return Finding(Kind.MANIFEST_DAMAGED, key, str(damage))

    async for each in _some_at_once(read, sorted(named)):
        (manifests if isinstance(each, Manifest) else findings).append(each)  # type: ignore[arg-type]
    return Held(cluster_id, objects, manifests, findings, combined)


async def _read_checkpoint(
    store: ObjectStore, cluster_id: str
) -> tuple[Combined | None, list[Finding]]:
    """The newest checkpoint that is whole, and those that are not."""
    listed = await _listed(store, checkpoints_prefix(cluster_id))
    roots = [key for key in sorted(listed, reverse=True) if checkpoint_number(key) >= 0]
    findings: list[Finding] = []
    for key in roots:
        try:
            [held] = await store.read(key, [(0, listed[key])])
            root = decode_root(held, f"{store.url}: {key}")
            parts: list[Part] = []

            async def read(name: PartName) -> Part:
                [part] = await store.read(name.key, [(0, name.byte_size)])
                return decode_part(part, name, f"{store.url}: {name.key}")

            async for part in _some_at_once(read, root.parts):
                parts.append(part)
            return Combined(root, parts), findings
        except (DamagedObject, ObjectMissing) as damage:
            findings.append(Finding(Kind.CHECKPOINT_DAMAGED, key, str(damage)))
    if findings:
        check_replaced(roots, findings[0].detail)
    return None, findings


async def _listed(store: ObjectStore, prefix: str) -> dict[str, int]:
    return {each.key: each.byte_size async for page in store.list(prefix) for each in page}


async def _some_at_once(
    call: Callable[[_T], Awaitable[_R]], given: Sequence[_T]
) -> AsyncIterator[_R]:
    for some in _parts(given, AT_ONCE):
        for each in await asyncio.gather(*(call(one) for one in some)):
            yield each


def _parts(given: Sequence[_T], size: int) -> Iterator[Sequence[_T]]:
    for start in range(0, len(given), size):
        yield given[start : start + size]


async def verify(
    store: ObjectStore, coordinator: Coordinator, held: Held, *, is_whole: bool
) -> Verified:
    """Check everything; with `is_whole`, also every byte of every object."""
    parts = [] if held.combined is None else held.combined.parts
    noting: list[Part | Manifest] = [*parts, *held.manifests]
    names = {topic: name for each in noting for topic, name in each.names.items()}
    verifier = Verifier(held.cluster_id, names)
    verifier.findings += held.findings
    async for log, state, runs in _partitions(coordinator):
        verifier.partition(log, state, runs)
    verifier.manifests(held.manifests, held.objects, held.combined)
    segments = await read_segments(store, held.cluster_id)
    verifier.findings += _of_segments(segments)
    for key in sorted(verifier.wanted_objects - held.objects.keys()):
        verifier.missing(key)

    async def check(key: str) -> None:
        try:
            await _check_object(store, key, held.objects[key], verifier, is_whole=is_whole)
        except (DamagedObject, ObjectMissing) as damage:
            verifier.find(Kind.OBJECT_DAMAGED, key, str(damage))

    async for _ in _some_at_once(check, sorted(held.objects)):
        pass
    await _find_unused(coordinator, verifier, sorted(held.objects.keys() - verifier.wanted_objects))
    return Verified(
        held.cluster_id,
        len(held.objects),
        sum(held.objects.values()),
        len(held.manifests),
        verifier.partition_count,
        verifier.run_count,
        verifier.findings,
        held.checkpoint,
    )


async def _partitions(
    coordinator: Coordinator,
) -> AsyncIterator[tuple[LogKey, LogState, list[Run]]]:
    after = ZERO_TOPIC_ID
    while page := await coordinator.topics(after, TOPICS_A_PAGE):
        after = page[-1][0]
        keys = [LogKey(topic, each) for topic, count in page for each in range(count)]
        for some in _parts(keys, PARTITIONS_AT_ONCE):
            states = dict(zip(some, await coordinator.states(some)))
            runs = await _runs(coordinator, states)
            for key, state in states.items():
                if state is not None:
                    yield key, state, runs[key]


async def _runs(
    coordinator: Coordinator, states: dict[LogKey, LogState | None]
) -> dict[LogKey, list[Run]]:
    runs: dict[LogKey, list[Run]] = {key: [] for key in states}
    wanted = [
        Wanted(key, state.first_run_offset, ALL_BYTES)
        for key, state in states.items()
        if state is not None and state.first_run_offset < state.high_watermark
    ]
    while wanted:
        found = await coordinator.find(wanted)
        wanted = []
        for each in found:
            runs[each.key] += each.runs
            if each.runs and each.state and each.runs[-1].end_offset < each.state.high_watermark:
                wanted.append(Wanted(each.key, each.runs[-1].end_offset, ALL_BYTES))
    return runs


async def _check_object(
    store: ObjectStore, key: str, size: int, verifier: Verifier, *, is_whole: bool
) -> None:
    place = f"{store.url}: {key}"
    if is_whole:
        [held] = await store.read(key, [(0, size)])
        header, batches = parse_object(held, place)
        verifier.object(key, header, decode_index(held, size, place))
        verifier.batches(key, batches)
        return
    last = min(size, FOOTER_SIZE)
    head, end = await store.read(key, [(0, min(size, HEADER_MOST)), (size - last, last)])
    header = decode_header(head, place)
    length = tail_size(end, size, place)
    [tail] = await store.read(key, [(size - length, length)])
    verifier.object(key, header, decode_index(tail, size, place))


async def _find_unused(coordinator: Coordinator, verifier: Verifier, keys: Sequence[str]) -> None:
    for some in _parts(keys, KEYS_AT_ONCE):
        unknown = set(await coordinator.unknown(some))
        for key in some:
            if key in unknown:
                verifier.find(Kind.OBJECT_UNKNOWN, key, "the coordinator does not know it")
            else:
                verifier.find(Kind.OBJECT_UNUSED, key, "no row points to it: it is to be collected")


async def restore(
    store: ObjectStore,
    coordinator: Coordinator,
    held: Held,
    *,
    with_unknown: bool,
    now_ms: int,
) -> Restored:
    """Give an empty coordinator the rows that manifests tell of; with `with_unknown`, also those of
    objects that no manifest names, in an order that is a guess."""
    if await coordinator.topics(ZERO_TOPIC_ID, 1):
        raise StorageFault(NOT_EMPTY.format(await coordinator.mark()))
    segments = await read_segments(store, held.cluster_id)
    tiered, damaged = await _read_tiered(store, held.cluster_id, segments.logs)
    rebuilt = rebuild(held.manifests, held.objects, held.combined, tiered)
    later = sorted(held.objects.keys() - rebuilt.known)
    findings = [*held.findings, *damaged]
    if later and with_unknown:
        guess, left_out = await _guess(store, held, rebuilt, later, now_ms)
        findings += left_out
        rebuilt = rebuild([*held.manifests, guess], held.objects, held.combined, tiered)
        key = manifest_key(held.cluster_id, RESTORED, now_ms, 0)
        await store.put(key, [encode_manifest(guess)])
    await coordinator.load(rebuilt.contents)
    if segments.logs and isinstance(coordinator, Front):
        await RemoteFront(coordinator).load(segments.logs)
    await record_restored(store, held.cluster_id, await coordinator.mark())
    return Restored(
        held.cluster_id,
        len(rebuilt.contents.logs),
        len(rebuilt.contents.runs),
        len(rebuilt.contents.objects),
        len(held.manifests),
        later,
        bool(later and with_unknown),
        findings + rebuilt.findings + _of_segments(segments),
        held.checkpoint,
    )


async def _read_tiered(
    store: ObjectStore, cluster_id: str, logs: Sequence[HeldRemoteLog]
) -> tuple[dict[LogKey, Tiered], list[Finding]]:
    """What segments hold of each partition, with the producers that the last one knows."""
    tiered = {log.key: _tiered(log) for log in logs}
    findings: list[Finding] = []

    async def read(log: HeldRemoteLog) -> None:
        last = max(
            (each for each in log.segments if each.is_finished),
            key=lambda each: each.end_offset,
            default=None,
        )
        if last is None:
            return
        folder = segment_folder(cluster_id, log.key, last.segment_id)
        key = folder + offset_name(last.end_offset, SNAPSHOT)
        [encoded] = await store.read(key, [(0, await store.size(key))])
        known = decode_snapshot(bytes(encoded))
        if known is None:
            findings.append(Finding(Kind.OBJECT_DAMAGED, key, "it tells of no producers"))
            return
        tiered[log.key] = tiered[log.key]._replace(producers=carried(known))

    async for _ in _some_at_once(read, logs):
        pass
    return tiered, findings


def _tiered(log: HeldRemoteLog) -> Tiered:
    finished = [each for each in log.segments if each.is_finished]
    spans = joined(Span(each.start_offset, each.end_offset) for each in finished)
    if not spans:
        return NOT_TIERED
    epoch = max(entry.epoch for each in finished for entry in each.leader_epochs)
    return Tiered(*spans[-1], sum(each.byte_size for each in finished), epoch)


def _of_segments(segments: RestoredFacts) -> list[Finding]:
    return [Finding(Kind.OBJECT_MISSING, "remote segments", each) for each in segments.findings]


async def _guess(
    store: ObjectStore, held: Held, rebuilt: Rebuilt, later: Sequence[str], now_ms: int
) -> tuple[Manifest, list[Finding]]:
    unknown: list[NotedObject] = []
    damage: list[Finding] = []

    async def parse(key: str) -> None:
        size = held.objects[key]
        try:
            [whole] = await store.read(key, [(0, size)])
            header, batches = parse_object(whole, f"{store.url}: {key}")
        except (DamagedObject, ObjectMissing) as fault:
            damage.append(Finding(Kind.OBJECT_DAMAGED, key, str(fault)))
            return
        offsets = [Offsets(batch, -1) for batch in batches]
        unknown.append(
            NotedObject(header.object_id, key, size, header.broker_id, RESTORED, offsets)
        )

    async for _ in _some_at_once(parse, later):
        pass
    objects, left_out = append_unknown(rebuilt, unknown)
    guess = Manifest(held.cluster_id, RESTORED, now_ms, 0, objects, [], [], {})
    return guess, damage + left_out
