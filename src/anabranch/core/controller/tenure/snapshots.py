"""When the active controller stores a snapshot of the metadata, and what is in it.

Owns the newest committed image and how old the last snapshot is. Rules kept: only what is committed
is in a snapshot; one is written at a time. Source: KIP-630.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from anabranch.core.controller.controller import Controller
from anabranch.core.controller.history import carrying
from anabranch.core.controller.tenure.effects import Troubled, WriteSnapshot
from anabranch.core.controller.tenure.events import SnapshotStored, StoreFailed
from anabranch.core.controller.tenure.state import TenureState
from anabranch.core.metadata.batches import snapshot_parts
from anabranch.core.metadata.committed_log import SnapshotView
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import level_of
from anabranch.core.metadata.snapshot import snapshot_is_due, snapshot_records
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

    def committed(self, now_ms: int) -> None:
        """The log is committed further: perhaps up to all that was decided, and a snapshot due."""
        if self._controller.image.next_offset == self._controller.log.end_offset:
            self._committed = self._controller.image
            self._write_if_due(now_ms)

    def _write_if_due(self, now_ms: int) -> None:
        log, image = self._controller.log, self._committed
        if self._is_due(log.bytes_since_snapshot, now_ms):
            self._begun_ms, self._is_under_way = now_ms, True
            said = tuple(self._controller.history.newest(image.next_offset))
            keep_from = log.snapshot.end_offset if log.snapshot is not None else 0
            self._state.call(WriteSnapshot(log, image, said, keep_from))

    def _is_due(self, new_bytes: int, now_ms: int) -> bool:
        if self._is_under_way:
            return False
        return snapshot_is_due(self._controller.config, new_bytes, now_ms - self._begun_ms)

    def stored(self, event: SnapshotStored, _now_ms: int) -> None:
        """The one under way is stored: followers may begin with it."""
        self._is_under_way = False
        if event.asked.log is self._controller.log:
            self._controller.log.take_snapshot(SnapshotView(*event.snapshot))

    def failed(self, event: StoreFailed) -> None:
        """The one under way was not stored: the next is due as if it had been."""
        self._is_under_way = False
        why = f"no snapshot of the metadata was stored: {event.why}"
        self._state.do(Troubled(why))


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
