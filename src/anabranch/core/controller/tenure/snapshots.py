"""When the active controller stores a snapshot of the metadata, and what is in it.

Owns the newest committed image and how old the last snapshot is. Rules kept: only what is committed
is in a snapshot; one is written at a time; what came meanwhile counts for the next, which may be
due when the other ends. Source: KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.history import carrying
from anabranch.core.controller.tenure.effects import Troubled, WriteSnapshot
from anabranch.core.controller.tenure.events import SnapshotStored
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.metadata.batches import snapshot_parts
from anabranch.core.metadata.committed_log import SnapshotView
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import level_of
from anabranch.core.metadata.snapshot import snapshot_is_due, snapshot_records, time_is_over
from anabranch.core.metadata.store import Snapshot


class Snapshots:
    """See the module."""

    def __init__(self, state: TenureState, controller: Controller) -> None:
        self._state = state
        self._controller = controller
        self._committed = MetadataImage.empty()
        self._begun_ms = 0
        self._is_under_way = False

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """A term begins with this committed image."""
        self._committed, self._begun_ms = image, now_ms
        self._is_under_way = False

    def committed(self, image: MetadataImage, now_ms: int) -> None:
        """The log is committed up to this state, and perhaps a snapshot due. More may have been
        decided since, which does not wait for a snapshot, nor a snapshot for it."""
        self._committed = image
        self._write_if_due(self._controller.log.bytes_since_snapshot, now_ms)

    def time_has_passed(self, now_ms: int) -> None:
        """What was committed may have waited long enough: perhaps nothing follows it."""
        if time_is_over(self._controller.config, now_ms - self._begun_ms):
            self.committed(self._committed, now_ms)

    def _write_if_due(self, new_bytes: int, now_ms: int) -> None:
        log, image = self._controller.log, self._committed
        if self._is_due(new_bytes, now_ms):
            self._begun_ms, self._is_under_way = now_ms, True
            said = tuple(self._controller.history.newest(image.next_offset))
            keep_from = log.snapshot.end_offset if log.snapshot is not None else 0
            self._state.call(WriteSnapshot(log, image, said, keep_from))

    def _is_due(self, new_bytes: int, now_ms: int) -> bool:
        if self._is_under_way:
            return False
        return snapshot_is_due(self._controller.config, new_bytes, now_ms - self._begun_ms)

    def stored(self, event: SnapshotStored, now_ms: int) -> None:
        """The one under way is stored: followers may begin with it."""
        if event.asked.log is self._controller.log:
            self._controller.log.take_snapshot(SnapshotView(*event.snapshot))
        self._ended(event.asked, now_ms)

    def failed(self, asked: WriteSnapshot, why: str, now_ms: int) -> None:
        """The one under way was not stored: it is tried again with the next commit."""
        self._state.do(Troubled(f"no snapshot of the metadata was stored: {why}"))
        self._ended(asked, now_ms)

    def _ended(self, asked: WriteSnapshot, now_ms: int) -> None:
        """What was committed meanwhile may be enough for another one."""
        self._is_under_way = False
        end_offset = asked.image.next_offset
        if self._committed.next_offset > end_offset:
            self._write_if_due(self._controller.log.bytes_after(end_offset), now_ms)


def encoded(wanted: WriteSnapshot, wall_ms: int) -> Snapshot:
    """The snapshot that is to be stored."""
    return made_of(wanted, encoded_parts(wanted, wall_ms))


def encoded_parts(wanted: WriteSnapshot, wall_ms: int) -> Iterator[bytes]:
    """Its parts. They take long where there is much: decisions go on meanwhile, since the image is
    immutable."""
    image = wanted.image
    return snapshot_parts(
        carrying(snapshot_records(image), wanted.said),
        epoch=image.epoch,
        last_contained_ms=wall_ms,
        now_ms=wall_ms,
        level=level_of(image),
    )


def made_of(wanted: WriteSnapshot, parts: Iterable[bytes]) -> Snapshot:
    """The snapshot that these parts are."""
    return Snapshot(wanted.image.next_offset, wanted.image.epoch, b"".join(parts))
