"""CP1 to CP4: what must hold of the compaction of diskless topics, by the checker's own account.

    CP1  a swap makes segments readable that are stored whole, and hold records of those that they
         replace, each at its offset as it was committed
    CP2  of each key the latest record that is tiered stays readable, unless it is a tombstone;
         where that one has gone, no older record of its key can be read
    CP3  a tombstone stays through its first pass, and for delete.retention.ms
    CP4  in the end nothing is left that is worth a pass

What: after each swap the records of all finished segments of the partition are read from their
objects, and compared with what was committed. Offsets in one place, ends, and what is left of tries
are looked at by `tiering.py`. Rule kept: nothing of `core/tiering` judges here. Not here: what
readers see (`diskless_clients.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.core.log.segment import LOG, offset_name
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.segments import SegmentState
from anabranch.core.wire.batch import walk
from anabranch.core.wire.records import decode_records
from anabranch.sim.checks.violation import Violation
from anabranch.sim.clients.fetcher import written_as
from anabranch.sim.coordinator import COMPACTION

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogKey, LogState
    from anabranch.core.tiering.compaction_claims import Swap
    from anabranch.sim.checks.diskless import DisklessChecks, TrueLog
    from anabranch.sim.checks.tiering import TieringChecks
    from anabranch.sim.cluster import Cluster

FOR_EVER_MS = 86_400_000
"""A `delete.retention.ms` that no schedule sees the end of."""


class Content(NamedTuple):
    """Of a segment."""

    start_offset: int
    end_offset: int
    written: dict[int, bytes]
    """By offset."""


class CompactionChecks:
    """See the module. It registers itself with the coordinator, after `TieringChecks`."""

    def __init__(
        self, cluster: Cluster, truth: DisklessChecks, tiering: TieringChecks, keeps: frozenset[str]
    ) -> None:
        self.cluster, self.truth, self.tiering = cluster, truth, tiering
        self._keeps = keeps
        """Topics whose tombstones stay."""
        self._contents: dict[bytes, Content] = {}
        self._made: set[bytes] = set()
        """Segments that a swap made readable."""
        truth.coordinator.on_called.append(self._called)

    def _called(self, name: str, args: tuple[Any, ...], result: Any) -> None:
        if name == f"{COMPACTION}swap":
            _, key, _, swaps = args
            if not all(each.segment_id in self._made for each in swaps):
                self._swapped(key, swaps, result)
        elif name == f"{COMPACTION}claim_compaction":
            self.truth.marks.hit("compaction-claimed")

    def _swapped(self, key: LogKey, swaps: list[Swap], state: LogState) -> None:
        log = self.truth.logs[key]
        if (state.start_offset, state.high_watermark) != (log.start, log.high):
            raise Violation("CP1", "A swap moved a partition's ends.", {"key": key, "now": state})
        gone: dict[int, bool] = {}
        """Offsets that were dropped, and whether by the first pass that saw them."""
        for each in swaps:
            gone |= self._replaced(key, log, each)
        self.truth.marks.hit("compaction-swapped")
        present = self._present(key)
        self._check_latest(key, log, present)
        self._check_tombstones(key, log, gone)
        self.tiering.check_places(key)

    def _replaced(self, key: LogKey, log: TrueLog, swap: Swap) -> dict[int, bool]:
        new = self._content(key, swap.segment_id)
        old = [(each, self._content(key, each)) for each in swap.replaced]
        held = {at: text for _, each in old for at, text in each.written.items()}
        for offset, text in new.written.items():
            is_within = new.start_offset <= offset < new.end_offset
            if not is_within or held.get(offset) != text or log.values[offset] != text:
                sentence = "A new segment has a record that those that it replaced had not."
                raise Violation("CP1", sentence, {"key": key, "offset": offset})
        self._made.add(swap.segment_id)
        return {
            offset: segment_id not in self._made
            for segment_id, each in old
            for offset in each.written
            if offset not in new.written
        }

    def _check_latest(self, key: LogKey, log: TrueLog, present: dict[int, bytes]) -> None:
        tiered_end = self._tiered_end(key)
        latest: dict[bytes | None, int] = {}
        for offset in range(max(log.start, 0), tiered_end):
            latest[log.keys[offset]] = offset
        for offset in present:
            of_key = log.keys[offset]
            if offset < log.start or of_key is None:
                continue
            newest = latest[of_key]
            if newest not in present and log.is_tombstone(newest):
                sentence = "A tombstone has gone before a record that it deletes."
                raise Violation("CP2", sentence, {"key": key, "record": of_key, "offset": offset})
        for of_key, offset in latest.items():
            if offset not in present and not log.is_tombstone(offset):
                sentence = "The latest record of a key cannot be read."
                raise Violation("CP2", sentence, {"key": key, "record": of_key, "offset": offset})

    def _check_tombstones(self, key: LogKey, log: TrueLog, gone: dict[int, bool]) -> None:
        topic = self.cluster.image.topic_by_id(key.topic_id)
        stay = topic is not None and topic.name in self._keeps
        tiered_end = self._tiered_end(key)
        for offset, is_first in gone.items():
            if not log.is_tombstone(offset) or log.newest_before(offset, tiered_end) != offset:
                continue
            self.truth.marks.hit("compaction-tombstone-gone")
            if is_first or stay:
                sentence = "A tombstone has gone too early."
                raise Violation("CP3", sentence, {"key": key, "offset": offset, "first": is_first})

    # What the store and the coordinator have.

    def _tiered_end(self, key: LogKey) -> int:
        query = "SELECT tiered_end_offset FROM logs WHERE topic_id = ? AND partition = ?"
        return int(self.truth.coordinator.tables.rows(query, key)[0][0])

    def _present(self, key: LogKey) -> dict[int, bytes]:
        rows = self.truth.coordinator.tables.rows(
            "SELECT segment_id FROM remote_segments WHERE topic_id = ? AND partition = ? "
            "AND state = ?",
            (*key, SegmentState.COPY_SEGMENT_FINISHED),
        )
        found: dict[int, bytes] = {}
        for (segment_id,) in rows:
            found |= self._content(key, bytes(segment_id)).written
        return found

    def _content(self, key: LogKey, segment_id: bytes) -> Content:
        held = self._contents.get(segment_id)
        if held is None:
            held = self._contents[segment_id] = self._read(key, segment_id)
        return held

    def _read(self, key: LogKey, segment_id: bytes) -> Content:
        ((start, end),) = self.truth.coordinator.tables.rows(
            "SELECT start_offset, end_offset FROM remote_segments WHERE segment_id = ?",
            (segment_id,),
        )
        folder = segment_folder(self.cluster.cluster_id, key, segment_id)  # type: ignore[arg-type]
        stored = self.truth.store.objects.get(folder + offset_name(start, LOG))
        if stored is None:
            raise Violation("CP1", "A segment is FINISHED without its records.", {"key": key})
        written: dict[int, bytes] = {}
        for position, header in walk(stored.data):
            if not header.is_control:
                for record in decode_records(stored.data, position):
                    written[record.offset] = written_as(record)
        return Content(start, end, written)
