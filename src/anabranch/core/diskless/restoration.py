"""A lost coordinator's rows, rebuilt from manifests.

What: from all manifests and a listing of the store to `Contents`, and what was found on the way.
How: each object's batches with their offsets give its runs by the rules of the commit itself; a
partition's runs in order give its end; the greatest start that any broker noted is its start. Rules
kept: what brokers noted is rebuilt exactly; nothing is guessed (`guessed_offsets.py`). An object
that is gone from the head of a partition was deleted by retention; anywhere else it is a loss,
which is said. Not here: I/O.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from typing import NamedTuple

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
from anabranch.core.log.producers import BATCHES_KEPT
from anabranch.core.types import TopicId


class Rebuilt(NamedTuple):
    """Rows, and what was found."""

    contents: Contents
    findings: list[Finding]
    known: set[str]
    """Keys of all objects that manifests name."""
    deleted: set[TopicId]
    """Topics that were deleted."""
    gaps: dict[LogKey, list[tuple[int, int]]]
    """Offsets that no manifest has, before or between others."""


def gather(manifests: Iterable[Manifest]) -> tuple[list[NotedObject], list[Finding]]:
    """The objects of all manifests, each once, and where a manifest is missing. Raises StorageFault
    when two objects have one id: two coordinators have served this cluster."""
    objects: dict[int, NotedObject] = {}
    numbers: dict[tuple[int, int], set[int]] = {}
    for manifest in manifests:
        writer = manifest.broker_id, manifest.broker_epoch
        numbers.setdefault(writer, set()).add(manifest.number)
        for each in manifest.objects:
            held = objects.setdefault(each.object_id, each)
            if held.object_key != each.object_key:
                raise StorageFault(
                    f"objects {held.object_key} and {each.object_key} have one id: two "
                    "coordinators have committed for this cluster, so the order cannot be rebuilt "
                    "from manifests; restore the older coordinator from a backup"
                )
    return [objects[number] for number in sorted(objects)], list(_missing_numbers(numbers))


def _missing_numbers(numbers: Mapping[tuple[int, int], set[int]]) -> Iterable[Finding]:
    for (broker_id, broker_epoch), held in sorted(numbers.items()):
        for number in sorted(set(range(max(held))) - held):
            yield Finding(
                Kind.MANIFEST_MISSING,
                f"broker {broker_id}, epoch {broker_epoch}",
                f"manifest {number} is missing: its objects are among those that are not known",
            )


def rebuild(manifests: Sequence[Manifest], present: Mapping[str, int]) -> Rebuilt:
    """The rows that manifests tell of; `present` are the objects of the store and their sizes.

    Raises StorageFault when the manifests contradict one another."""
    noted, findings = gather(manifests)
    starts: dict[LogKey, int] = {}
    names: dict[TopicId, str] = {}
    deleted = {topic_id for each in manifests for topic_id in each.deleted}
    for each in manifests:
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
    gaps: dict[LogKey, list[tuple[int, int]]] = {}
    for key in sorted({*by_log, *starts}):
        if key.topic_id in deleted:
            continue
        runs = sorted(by_log.get(key, []), key=lambda run: run.base_offset)
        state, remaining, missing = _rebuild_log(
            place_of(key, names), runs, starts.get(key, 0), present, findings
        )
        if missing:
            gaps[key] = missing
        logs.append(HeldLog(key, names.get(key.topic_id, ""), state))
        kept += remaining
    live: dict[int, int] = {}
    for run in kept:
        live[run.object_id] = live.get(run.object_id, 0) + 1
    objects = [
        HeldObject(*one[:5], live.get(one.object_id, 0))
        for one in noted
        if one.object_key in present or one.object_id in live
    ]
    producers = _producers(noted, {log.key for log in logs})
    ids = [*(one.object_id for one in noted), *map(id_of_key, present)]
    findings += guesses(manifests)
    return Rebuilt(
        Contents(logs, objects, kept, producers, max(ids, default=0)),
        findings,
        {one.object_key for one in noted},
        deleted,
        gaps,
    )


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
) -> tuple[LogState, list[Run], list[tuple[int, int]]]:
    """One partition: its row, its runs and its gaps; `runs` are in order."""
    _check_order(place, runs)
    end_offset = max([start_offset, *(run.end_offset for run in runs[-1:])])
    runs = [run for run in runs if run.end_offset > start_offset]
    gone = [run for run in runs if run.object_key not in present]
    raised = start_offset
    while runs and (runs[0].object_key not in present):
        raised = runs.pop(0).end_offset
    gaps: list[tuple[int, int]] = []
    if runs and runs[0].base_offset > raised:
        gaps.append((raised, runs[0].base_offset))
        raised = runs[0].base_offset
    if raised > start_offset:
        detail = f"from {start_offset} to {raised}: the objects before are gone or in no manifest"
        findings.append(Finding(Kind.START_RAISED, place, detail))
    for run in gone:
        if run.end_offset > raised:
            detail = f"offsets {run.base_offset} to {run.end_offset}: {run.object_key} is gone"
            findings.append(Finding(Kind.OBJECT_MISSING, place, detail))
    for before, after in pairwise(runs):
        if after.base_offset > before.end_offset:
            gaps.append((before.end_offset, after.base_offset))
            detail = f"{before.end_offset} to {after.base_offset}: no manifest has them"
            findings.append(Finding(Kind.OFFSETS_MISSING, place, detail))
    size = sum(run.byte_size for run in runs)
    return LogState(raised, end_offset, size), runs, gaps


def _check_order(place: str, runs: list[Run]) -> None:
    for before, after in pairwise(runs):
        if after.base_offset < before.end_offset:
            raise StorageFault(
                f"{place}: objects {before.object_key} and {after.object_key} both have offset "
                f"{after.base_offset}: the manifests contradict one another, so the order cannot "
                "be rebuilt from them"
            )


def _producers(
    noted: Iterable[NotedObject], keys: set[LogKey]
) -> list[tuple[ProducerKey, Producer]]:
    """The last batches of each idempotent producer in its newest epoch."""
    found: dict[ProducerKey, list[Offsets]] = {}
    for one in noted:
        for each in one.batches:
            if each.batch.producer_id != NO_PRODUCER and each.batch.key in keys:
                producer = ProducerKey(each.batch.key, each.batch.producer_id)
                found.setdefault(producer, []).append(each)
    return [(each, _producer(found[each])) for each in sorted(found)]


def _producer(batches: list[Offsets]) -> Producer:
    epoch = max(each.batch.producer_epoch for each in batches)
    newest = sorted(
        (each for each in batches if each.batch.producer_epoch == epoch),
        key=lambda each: each.base_offset,
    )[-BATCHES_KEPT:]
    return Producer(
        epoch,
        tuple(
            Written(each.batch.base_sequence, each.batch.last_sequence, each.base_offset)
            for each in newest
        ),
    )


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
