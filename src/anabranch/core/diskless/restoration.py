"""A lost coordinator's rows, rebuilt from a checkpoint and manifests.

What: from the newest sound checkpoint, if there is one, all manifests that are left, and a listing
of the store to `Contents`, and what was found on the way. It does not matter whether a manifest is
there that the checkpoint has.
How: each object's batches with their offsets give its runs by the rules of the commit itself; a
partition's runs in order give its end; the greatest start that any broker noted is its start.
Partitions below these that nobody noted had no record: their rows are empty. Rules kept: what
brokers noted is rebuilt exactly; nothing is guessed (`guessed_offsets.py`); no row names an object
that is gone. Where that is the head of a partition, retention deleted it, and the partition begins
later. Anywhere else it is a loss, which is said: its offsets have no row, are not given again, and
readers pass over them. Records that were tiered are in the segments that the store has, and the
last segment of a partition knows the producers of what was written before. Not here: I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

from anabranch.core.diskless.checkpoints import (
    Checkpoint,
    Combined,
    KnownProducer,
    Part,
    Writer,
    newest,
)
from anabranch.core.diskless.commit import (
    ObjectRow,
    ObjectState,
    Producer,
    ProducerKey,
    Written,
    decide,
)
from anabranch.core.diskless.contents import Contents, HeldLog, HeldObject
from anabranch.core.diskless.findings import Finding, Kind, place_of
from anabranch.core.diskless.keys import object_id as id_of_key
from anabranch.core.diskless.manifests import RESTORED, Manifest, NotedObject, Offsets
from anabranch.core.diskless.rows import NO_PRODUCER, Commit, LogKey, LogState, Run
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId


class Tiered(NamedTuple):
    """What the store's segments hold of a partition without a gap, up to the last one."""

    start_offset: int
    end_offset: int
    byte_size: int
    """Of all its segments."""
    leader_epoch: int = 0
    """The newest one of their records."""
    producers: tuple[tuple[int, Producer], ...] = ()
    """Those that were known at the end of the last segment."""


NOT_TIERED = Tiered(0, 0, 0)


class Rebuilt(NamedTuple):
    """Rows, and what was found."""

    contents: Contents
    findings: list[Finding]
    noted: list[NotedObject]
    """All objects that manifests name."""
    deleted: set[TopicId]
    """Topics that were deleted."""
    starts: dict[LogKey, int]
    """Where partitions begin, as brokers noted it; objects that are gone may have raised it."""

    @property
    def known(self) -> set[str]:
        """Keys of all objects that manifests name."""
        return {one.object_key for one in self.noted}


def _gather(
    manifests: Iterable[Manifest], combined: Combined | None = None
) -> tuple[list[NotedObject], list[Finding]]:
    """The objects of a checkpoint and all manifests, each once, and where a manifest is missing.
    Raises StorageFault when two objects have one id: two coordinators have served this cluster."""
    objects: dict[int, NotedObject] = {}
    numbers: dict[tuple[int, int], set[int]] = {}
    for manifest in manifests:
        writer = manifest.broker_id, manifest.broker_epoch
        numbers.setdefault(writer, set()).add(manifest.number)
        _add(objects, manifest.objects)
    for part in () if combined is None else combined.parts:
        _add(objects, part.objects)
    root = None if combined is None else combined.root
    return [objects[number] for number in sorted(objects)], list(_missing_numbers(numbers, root))


def _add(objects: dict[int, NotedObject], noted: Iterable[NotedObject]) -> None:
    for each in noted:
        held = objects.setdefault(each.object_id, each)
        if held.object_key != each.object_key:
            raise StorageFault(
                f"objects {held.object_key} and {each.object_key} have one id: two "
                "coordinators have committed for this cluster, so the order cannot be rebuilt "
                "from manifests; restore the older coordinator from a backup"
            )


def _missing_numbers(
    numbers: Mapping[tuple[int, int], set[int]], root: Checkpoint | None
) -> Iterable[Finding]:
    writers = {} if root is None else root.by_writer()
    floors = {} if root is None else dict(root.floors)
    for writer in sorted({*numbers, *writers}):
        broker_id, broker_epoch = writer
        if broker_epoch <= floors.get(broker_id, -1):
            continue  # the checkpoint had all that was to be had, and no longer says which
        held = numbers.get(writer, set())
        had = writers.get(writer) or Writer(*writer, 0, [])
        ranges = [*had.missing, (had.next_number, max(held, default=0))]
        for number in (each for first, end in ranges for each in range(first, end)):
            if number not in held:
                yield Finding(
                    Kind.MANIFEST_MISSING,
                    f"broker {broker_id}, epoch {broker_epoch}",
                    f"manifest {number} is missing: its objects are among those that are not known",
                )


def rebuild(
    manifests: Sequence[Manifest],
    present: Mapping[str, int],
    combined: Combined | None = None,
    tiered: Mapping[LogKey, Tiered] = {},
) -> Rebuilt:
    """The rows that a checkpoint and manifests tell of; `present` are the objects of the store and
    their sizes, `tiered` the segments that it has of partitions.

    Raises StorageFault when they contradict one another."""
    noted, findings = _gather(manifests, combined)
    starts: dict[LogKey, int] = {}
    names: dict[TopicId, str] = {}
    parts = [] if combined is None else combined.parts
    deleted = {topic_id for each in manifests for topic_id in each.deleted}
    if combined is not None:
        deleted.update(topic_id for topic_id, _ in combined.root.deleted)
    noting: list[Part | Manifest] = [*parts, *manifests]
    for each in noting:
        names.update(each.names)
        for key, start_offset in each.starts:
            starts[key] = max(start_offset, starts.get(key, 0))
    by_log: dict[LogKey, list[Run]] = {}
    for one in noted:
        for run in runs_of(one):
            if run.key.topic_id not in deleted:
                by_log.setdefault(run.key, []).append(run)
    logs: list[HeldLog] = []
    kept: list[Run] = []
    for key in _without_holes({*by_log, *starts}):
        if key.topic_id in deleted:
            continue
        runs = sorted(by_log.get(key, []), key=lambda run: run.base_offset)
        state, remaining = _rebuild_log(
            place_of(key, names),
            runs,
            starts.get(key, 0),
            present,
            findings,
            tiered.get(key, NOT_TIERED),
        )
        logs.append(HeldLog(key, names.get(key.topic_id, ""), state))
        kept += remaining
    live: dict[int, int] = {}
    for run in kept:
        live[run.object_id] = live.get(run.object_id, 0) + 1
    objects = [
        HeldObject(*one[:5], live.get(one.object_id, 0))
        for one in noted
        if one.object_key in present
    ]
    known = [each for part in parts for each in part.producers]
    known += _known_at_ends(tiered)
    keys = {log.key for log in logs} | {key for key in tiered if key.topic_id not in deleted}
    producers = _producers(noted, known, keys)
    ids = [*(one.object_id for one in noted), *map(id_of_key, present)]
    if combined is not None:
        ids.append(combined.root.last_object_id)
    findings += guesses(manifests)
    return Rebuilt(
        Contents(logs, objects, kept, producers, max(ids, default=0)),
        findings,
        noted,
        deleted,
        starts,
    )


def _without_holes(keys: Iterable[LogKey]) -> list[LogKey]:
    """In order, all partitions of each topic up to its greatest one: the number of a topic's rows
    is taken for the partitions that have some."""
    greatest: dict[TopicId, int] = {}
    for topic_id, partition in keys:
        greatest[topic_id] = max(partition, greatest.get(topic_id, 0))
    return [
        LogKey(topic_id, partition)
        for topic_id in sorted(greatest)
        for partition in range(greatest[topic_id] + 1)
    ]


def runs_of(noted: NotedObject) -> list[Run]:
    """The rows that the commit of an object made. Offsets of a partition in it have gaps only where
    they were guessed: then it is as if it had been committed in parts."""
    runs: list[Run] = []
    part: list[Offsets] = []
    ends: dict[LogKey, int] = {}
    for each in noted.batches:
        batch, base_offset = each
        if ends.get(batch.key, base_offset) != base_offset:
            runs += _runs_of(noted._replace(batches=part))
            part, ends = [], {}
        part.append(each)
        ends[batch.key] = base_offset + batch.record_count
    return runs + _runs_of(noted._replace(batches=part))


def _runs_of(noted: NotedObject) -> list[Run]:
    logs: dict[LogKey, LogState] = {}
    for batch, base_offset in noted.batches:
        logs.setdefault(batch.key, LogState(0, base_offset))
    batches = tuple(batch._replace(producer_id=NO_PRODUCER) for batch, _ in noted.batches)
    commit = Commit(*noted[:5], batches)
    row = ObjectRow(
        noted.object_id, noted.object_key, ObjectState.PREPARED, *noted[3:5], expires_ms=1
    )
    return list(decide(commit, row, noted.broker_epoch, logs, {}, 0).runs)


def _rebuild_log(
    place: str,
    runs: list[Run],
    start_offset: int,
    present: Mapping[str, int],
    findings: list[Finding],
    tiered: Tiered,
) -> tuple[LogState, list[Run]]:
    """One partition: its row, and those runs whose objects are there; `runs` are in order. What
    segments hold, runs need not: a segment of which all objects are stored has the same records,
    whether the lost coordinator knew of its end or not."""
    _check_order(place, runs)
    first_tiered, tiered_end, *_ = tiered if tiered.end_offset > start_offset else NOT_TIERED
    end_offset = max([start_offset, tiered_end, *(run.end_offset for run in runs[-1:])])
    runs = [run for run in runs if run.end_offset > max(start_offset, tiered_end)]
    kept = [run for run in runs if run.object_key in present]
    first = kept[0].base_offset if kept else end_offset
    raised = max(start_offset, first_tiered if tiered_end else first)
    if raised > start_offset:
        detail = f"from {start_offset} to {raised}: the objects before are gone or in no manifest"
        findings.append(Finding(Kind.START_RAISED, place, detail))
    end = max(raised, tiered_end)
    for run in (run for run in runs if run.end_offset > end):
        if run.base_offset > end:
            detail = f"{end} to {run.base_offset}: no manifest has them"
            findings.append(Finding(Kind.OFFSETS_MISSING, place, detail))
        if run.object_key not in present:
            detail = f"offsets {run.base_offset} to {run.end_offset}: {run.object_key} is gone"
            findings.append(Finding(Kind.OBJECT_MISSING, place, detail))
        end = run.end_offset
    size = sum(run.byte_size for run in kept) + tiered.byte_size
    return LogState(raised, end_offset, size, tiered_end, tiered.leader_epoch), kept


def _check_order(place: str, runs: list[Run]) -> None:
    for before, after in pairwise(runs):
        if after.base_offset < before.end_offset:
            raise StorageFault(
                f"{place}: objects {before.object_key} and {after.object_key} both have offset "
                f"{after.base_offset}: the manifests contradict one another, so the order cannot "
                "be rebuilt from them"
            )


def _known_at_ends(tiered: Mapping[LogKey, Tiered]) -> Iterable[KnownProducer]:
    for key, held in tiered.items():
        for producer_id, producer in held.producers:
            yield KnownProducer(ProducerKey(key, producer_id), producer, 0)


def _producers(
    noted: Iterable[NotedObject], known: Iterable[KnownProducer], keys: set[LogKey]
) -> list[tuple[ProducerKey, Producer]]:
    """The last batches of each idempotent producer in its newest epoch."""
    found: dict[ProducerKey, list[Producer]] = {}
    for each in known:
        if each.key.key in keys:
            found.setdefault(each.key, []).append(each.producer)
    for one in noted:
        for batch, base_offset in one.batches:
            if batch.producer_id != NO_PRODUCER and batch.key in keys:
                written = Written(batch.base_sequence, batch.last_sequence, base_offset)
                producer = ProducerKey(batch.key, batch.producer_id)
                account = Producer(batch.producer_epoch, (written,))
                found.setdefault(producer, []).append(account)
    return [(producer, newest(found[producer])) for producer in sorted(found)]


def guesses(manifests: Iterable[Manifest]) -> list[Finding]:
    """From which offsets on a restoring has guessed the order, now or before."""
    firsts: dict[LogKey, int] = {}
    names: dict[TopicId, str] = {}
    for manifest in manifests:
        names.update(manifest.names)
        if manifest.broker_id != RESTORED:
            continue
        for one in manifest.objects:
            for batch, base_offset in one.batches:
                firsts[batch.key] = min(base_offset, firsts.get(batch.key, base_offset))
    return [
        Finding(
            Kind.OFFSETS_GUESSED,
            place_of(key, names),
            f"the order from offset {first} on is a guess",
        )
        for key, first in sorted(firsts.items())
    ]
