"""Objects, the coordinator's rows and manifests, checked against one another.

What: fed with partitions and their runs, with manifests, and with each object of the store; gives
findings. Rules kept: offsets of a partition have no gap from its start to its end; each run lies
within the batches that its object's index gives to its partition, and has as many records as
offsets; what a restore would make of the manifests is what the rows say, as far as the records are
still kept. Not here: I/O (`stores/objects/verification.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence, Set
from itertools import pairwise

from anabranch.core.diskless.checkpoints import Combined
from anabranch.core.diskless.findings import Finding, Kind, place_of
from anabranch.core.diskless.keys import object_id as id_of_key
from anabranch.core.diskless.layout import Header, ObjectTail
from anabranch.core.diskless.manifests import Manifest
from anabranch.core.diskless.restoration import rebuild
from anabranch.core.diskless.rows import Batch, LogKey, LogState, Run
from anabranch.core.errors import StorageFault
from anabranch.core.sentences import number_of
from anabranch.core.types import TopicId

MOST_PLACES = 5
"""Partitions that one finding names."""


class Verifier:
    """Collects findings about one cluster's store."""

    def __init__(self, cluster_id: str, names: Mapping[TopicId, str]) -> None:
        self._cluster_id, self._names = cluster_id, names
        self._states: dict[LogKey, LogState] = {}
        self._rows: dict[tuple[LogKey, int], Run] = {}
        self._by_object: dict[str, list[Run]] = {}
        self.findings: list[Finding] = []

    @property
    def partition_count(self) -> int:
        """How many were given."""
        return len(self._states)

    @property
    def run_count(self) -> int:
        """How many rows were given."""
        return len(self._rows)

    def find(self, kind: Kind, place: str, detail: str) -> None:
        """Note something that was found elsewhere."""
        self.findings.append(Finding(kind, place, detail))

    def manifests(
        self,
        manifests: Sequence[Manifest],
        present: Mapping[str, int],
        combined: Combined | None = None,
    ) -> None:
        """All manifests, the objects of the store with their sizes, and the checkpoint, once, after
        the partitions: the coordinator has the rows that a restore would make."""
        try:
            rebuilt = rebuild(manifests, present, combined)
        except StorageFault as fault:
            self.find(Kind.MANIFEST_DIFFERS, "manifests", str(fault))
            return
        self.findings += (one for one in rebuilt.findings if one.kind is Kind.MANIFEST_MISSING)
        for run in rebuilt.contents.runs:
            self._compare(run)
        for key, start_offset in sorted(rebuilt.starts.items()):
            self._compare_start(key, start_offset)
        lost = rebuilt.contents.logs
        if lost and not self._states:
            detail = f"manifests have {number_of(len(lost), 'partition')}, it has none: restore it"
            self.find(Kind.COORDINATOR_EMPTY, "coordinator", detail)
        for object_key in sorted(self._by_object.keys() - rebuilt.known):
            rows = len(self._by_object[object_key])
            self.find(Kind.NOT_NOTED, object_key, f"in no manifest: {number_of(rows, 'row')} of it")

    def _compare(self, noted: Run) -> None:
        state = self._states.get(noted.key)
        if state is None or noted.end_offset <= state.first_run_offset:
            return
        row = self._rows.get((noted.key, noted.base_offset))
        if row != noted:
            place = place_of(noted.key, self._names)
            says = "has no such row" if row is None else f"has {_told(row)}"
            self.find(
                Kind.MANIFEST_DIFFERS,
                place,
                f"a manifest has {_told(noted)}; the coordinator {says}",
            )

    def _compare_start(self, key: LogKey, start_offset: int) -> None:
        state = self._states.get(key)
        if state is not None and state.start_offset < start_offset:
            detail = f"a manifest begins at {start_offset}; the coordinator {state.start_offset}"
            self.find(Kind.MANIFEST_DIFFERS, place_of(key, self._names), detail)

    def partition(self, key: LogKey, state: LogState, runs: Sequence[Run]) -> None:
        """A partition and all its runs that are not wholly below its start."""
        self._states[key] = state
        for run in runs:
            self._rows[key, run.base_offset] = run
            self._by_object.setdefault(run.object_key, []).append(run)
        place = place_of(key, self._names)
        first = runs[0].base_offset if runs else state.high_watermark
        if first > state.first_run_offset:
            self.find(Kind.OFFSETS_MISSING, place, _missing(state.first_run_offset, first))
        for before, after in pairwise(runs):
            if after.base_offset > before.end_offset:
                self.find(
                    Kind.OFFSETS_MISSING, place, _missing(before.end_offset, after.base_offset)
                )
            elif after.base_offset < before.end_offset:
                self.find(Kind.OFFSETS_TWICE, place, f"{_told(before)} and {_told(after)}")
        last = runs[-1].end_offset if runs else first
        if last < state.high_watermark:
            self.find(Kind.OFFSETS_MISSING, place, _missing(last, state.high_watermark))
        elif last > state.high_watermark:
            detail = f"its rows go on to {last}, it ends at {state.high_watermark}"
            self.find(Kind.ROW_OUTSIDE, place, detail)

    @property
    def wanted_objects(self) -> Set[str]:
        """Keys of the objects that rows point to."""
        return self._by_object.keys()

    def object(self, key: str, header: Header, tail: ObjectTail) -> None:
        """An object of the store whose header, index and footer are sound."""
        if header.cluster_id != self._cluster_id:
            self.find(Kind.OBJECT_DAMAGED, key, f"it is of cluster {header.cluster_id}")
        elif not header.object_id == tail.object_id == id_of_key(key):
            detail = f"its header says {header.object_id}, its footer {tail.object_id}"
            self.find(Kind.OBJECT_DAMAGED, key, detail)
        entries = {entry.key: entry for entry in tail.entries}
        for run in self._by_object.get(key, ()):
            entry = entries.get(run.key)
            end = run.byte_offset + run.byte_size
            if entry is None:
                self._outside(run, "the object has no batches of this partition")
            elif run.byte_offset < entry.byte_offset or end > entry.byte_offset + entry.byte_size:
                self._outside(run, "these bytes are not those of its partition")
            elif run.end_offset - run.base_offset > entry.record_count:
                self._outside(
                    run,
                    f"the object has {number_of(entry.record_count, 'record')} of this partition",
                )

    def batches(self, key: str, batches: Iterable[Batch]) -> None:
        """All batches of an object, which was read whole."""
        counts = {(each.key, each.byte_offset): each for each in batches}
        for run in self._by_object.get(key, ()):
            at, end, records = run.byte_offset, run.byte_offset + run.byte_size, 0
            while at < end and (run.key, at) in counts:
                batch = counts[run.key, at]
                at, records = at + batch.byte_size, records + batch.record_count
            if at != end:
                self._outside(run, f"no batch of the object begins at byte {at}")
            elif records != run.end_offset - run.base_offset:
                self._outside(run, f"the object has {number_of(records, 'record')} there")

    def _outside(self, run: Run, why: str) -> None:
        self.find(Kind.ROW_OUTSIDE, place_of(run.key, self._names), f"{_told(run)}: {why}")

    def missing(self, key: str) -> None:
        """An object that rows point to is not in the store."""
        rows = self._by_object[key]
        places = ", ".join(sorted({place_of(run.key, self._names) for run in rows})[:MOST_PLACES])
        self.find(
            Kind.OBJECT_MISSING, key, f"pointed to by {number_of(len(rows), 'row')} ({places})"
        )


def _missing(start: int, end: int) -> str:
    return f"no row has offsets {start} to {end}"


def _told(run: Run) -> str:
    return (
        f"offsets {run.base_offset} to {run.end_offset} in bytes {run.byte_offset} to "
        f"{run.byte_offset + run.byte_size} of {run.object_key}"
    )
