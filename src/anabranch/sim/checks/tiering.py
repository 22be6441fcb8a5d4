"""TR1 to TR5: what must hold of tiering, by the checker's own account.

    TR1  an object of a segment is put only where a fact names its try, and deleted only once that
         is being removed
    TR2  a segment that becomes FINISHED has all its objects, and its batches hold exactly the
         committed records between its offsets, once each
    TR3  a committed record is in one place: below the tiered end in a finished segment, from there
         on in a row; the tiered end never goes back
    TR4  an object of a finished segment stays while its records are kept
    TR5  in the end all that could be tiered is, and no object and no fact is left that is not a
         finished segment's

What: calls of the coordinator and of the store are looked at when they are carried out; batches are
read from the objects themselves. Rule kept: nothing of `core/tiering` judges here. Not here: what
readers see, rows and their objects (`diskless.py`, `diskless_clients.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.keys import place_of, remote_prefix, segment_folder, upload_names
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import decode_records
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.fetcher import written_as
from anabranch.sim.coordinator import COMPACTION, TIERING

if TYPE_CHECKING:
    from collections.abc import Iterator

    from anabranch.sim.checks.diskless import DisklessChecks
    from anabranch.sim.cluster import Cluster


class TieringChecks:
    """See the module. It registers itself with store and coordinator."""

    def __init__(self, cluster: Cluster, truth: DisklessChecks) -> None:
        self.cluster_id, self.truth, self.marks = cluster.cluster_id, truth, truth.marks
        self.store, self.coordinator = truth.store, truth.coordinator
        self._rows = truth.coordinator.tables.rows
        self._tries: dict[bytes, RemoteSegment] = {}
        self._ends: dict[LogKey, int] = {}
        self.store.on_put.append(self._put)
        self.store.on_delete.append(self._delete)
        self.coordinator.on_called.append(self._called)

    def _state(self, segment_id: SegmentId) -> SegmentState | None:
        found = self._rows("SELECT state FROM remote_segments WHERE segment_id = ?", (segment_id,))
        return SegmentState(found[0][0]) if found else None

    def _put(self, object_key: str) -> None:
        place = place_of(object_key)
        if place is None:
            return
        if self._state(place.segment_id) is None:
            sentence = "An object of a segment is stored whose try no fact names."
            raise Violation("TR1", sentence, {"object": object_key})

    def _delete(self, object_key: str) -> None:
        place = place_of(object_key)
        state = None if place is None else self._state(place.segment_id)
        if state not in (None, SegmentState.DELETE_SEGMENT_STARTED):
            sentence = "An object is deleted that is not being removed."
            raise Violation("TR1", sentence, {"object": object_key, "state": state})

    def _called(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name in (f"{TIERING}start", f"{COMPACTION}start_compacted"):
            segment = args[2]
            self._tries[segment.segment_id] = segment
        elif name == f"{TIERING}finish":
            key, _, segment_id = args
            self._finished(key, self._tries[segment_id], result.tiered_end)
        elif name == f"{TIERING}claim":
            self.marks.hit("tiering-claimed")

    def _finished(self, key: LogKey, segment: RemoteSegment, tiered_end: int) -> None:
        if self._state(segment.segment_id) is not SegmentState.COPY_SEGMENT_FINISHED:
            return  # its topic is being deleted, or it was asked again and is removed since
        before = self._ends.get(key, 0)
        if tiered_end < before:
            raise Violation("TR3", "The tiered end went back.", {"key": key, "end": tiered_end})
        self._ends[key] = tiered_end
        self._check_objects(segment)
        if tiered_end > before:
            self.marks.hit("tiering-finished")
            self._check_batches(segment)
        self.check_places(key)

    def _check_objects(self, segment: RemoteSegment) -> None:
        for object_key in self._objects_of(segment):
            if object_key not in self.store.objects:
                sentence = "A segment is FINISHED of which an object is missing."
                raise Violation("TR2", sentence, {"object": object_key})

    def _objects_of(self, segment: RemoteSegment) -> Iterator[str]:
        folder = segment_folder(self.cluster_id, segment.key, segment.segment_id)
        return (folder + name for name in upload_names(segment))

    def _check_batches(self, segment: RemoteSegment) -> None:
        log = self.truth.logs[segment.key]
        data = self.store.objects[next(self._objects_of(segment))].data
        position, offset = 0, segment.start_offset
        while position < len(data):
            header = read_header(data, position)
            records = decode_records(data, position)
            values = [written_as(each) for each in records]
            is_next = header.base_offset == offset
            if not is_next or log.values[offset : offset + len(values)] != values:
                sentence = "A segment has other records than were committed at its offsets."
                raise Violation("TR2", sentence, {"key": segment.key, "offset": offset})
            offset += len(values)
            position += header.size_bytes
        if offset != segment.end_offset:
            sentence = "A segment ends elsewhere than it says."
            raise Violation("TR2", sentence, {"key": segment.key, "offset": offset})

    def check_places(self, key: LogKey) -> None:
        """TR3 and TR4 of a partition."""
        log = self.truth.logs.get(key)
        found = self._rows(
            "SELECT log_start_offset, high_watermark, tiered_end_offset FROM logs "
            "WHERE topic_id = ? AND partition = ?",
            key,
        )
        if log is None or log.is_gone or not found:
            return
        start, high, tiered_end = found[0]
        at = max(start, 0)
        for kind, first, end in sorted(self._spans(key), key=lambda each: each[1]):
            if end <= start:
                continue
            if (kind == "row") is (first < tiered_end):
                sentence = "A record is in a row below the tiered end, or in a segment above it."
                raise Violation("TR3", sentence, {"key": key, "offset": first, "end": tiered_end})
            if first > at:
                sentence = "A committed record is in no row and in no finished segment."
                raise Violation("TR3", sentence, {"key": key, "offset": at, "next": first})
            if first < at and first >= start:
                sentence = "A committed record is in two places."
                raise Violation("TR3", sentence, {"key": key, "offset": first, "until": at})
            at = max(at, end)
        if at < high:
            sentence = "A committed record is in no row and in no finished segment."
            raise Violation("TR3", sentence, {"key": key, "offset": at, "high": high})

    def _spans(self, key: LogKey) -> Iterator[tuple[str, int, int]]:
        of_log = "WHERE topic_id = ? AND partition = ?"
        for row in self._rows(f"SELECT base_offset, end_offset FROM runs {of_log}", key):
            yield "row", *row
        query = f"SELECT start_offset, end_offset FROM remote_segments {of_log} AND state = ?"
        for row in self._rows(query, (*key, SegmentState.COPY_SEGMENT_FINISHED)):
            yield "segment", *row

    # The end.

    def left_over(self) -> list[str]:
        """TR5: what is left of tries and removals."""
        found, finished = [], set[str]()
        query = "SELECT segment_id, start_offset, end_offset, state FROM remote_segments"
        for segment_id, start, end, state in sorted(self._rows(query)):
            if state == SegmentState.COPY_SEGMENT_FINISHED:
                finished.add(segment_id.hex())
            else:
                found.append(f"{segment_id.hex()} {start}-{end} {SegmentState(state).name}")
        for object_key in sorted(self.store.objects):
            is_segments = object_key.startswith(remote_prefix(self.cluster_id))
            if is_segments and object_key.split("/")[-2] not in finished:
                found.append(object_key)
        return found

    def untiered(self) -> list[str]:
        """TR5: rows of partitions that exist."""
        query = "SELECT topic_id, partition, base_offset FROM runs ORDER BY 1, 2, 3"
        living = {key for key, log in self.truth.logs.items() if not log.is_gone}
        return [f"{row[1]} at {row[2]}" for row in self._rows(query) if LogKey(*row[:2]) in living]

    def end(self) -> None:
        """All partitions, and the objects of all finished segments."""
        for key, log in self.truth.logs.items():
            if not log.is_gone:
                self.check_places(key)
        for segment_id, segment in self._tries.items():
            if self._state(SegmentId(segment_id)) is SegmentState.COPY_SEGMENT_FINISHED:
                for object_key in self._objects_of(segment):
                    if object_key not in self.store.objects:
                        sentence = "An object of a finished segment is gone."
                        raise Violation("TR4", sentence, {"object": object_key})
