"""What one sync round of a log covers, as objects whose `sync` may run in a thread.

Order: closed segments with their indexes, the active segment (with its own at the end of a clean
stop), whose the log is, the epoch table, the mark of a failed sync (`failed_sync`), then the names
of files that are new. The recovery point moves only after all of them.

The epoch table is written when a round begins that may take the recovery point out of the segment
in which an epoch began: recovery reads the recovery point's segment whole, and finds again what
began there. So neither an append nor most rounds write it.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS, PARTITION_METADATA
from anabranch.core.log.failed_sync import UnmarkSync, Watched
from anabranch.core.log.files import Files, Syncable
from anabranch.core.log.segment import (
    OFFSETS,
    SNAPSHOT,
    TIMES,
    TRANSACTIONS,
    Segment,
    offset_name,
)
from anabranch.core.log.side_files import save_aborted, save_epochs, save_snapshot
from anabranch.core.log.state import LogState
from anabranch.core.types import Offset


class PathSync:
    """A file that is not held open."""

    __slots__ = ("_files", "_path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self._path = path

    def sync(self) -> None:
        self._files.sync_path(self._path)


class SegmentSync:
    """A segment's batches; nothing when retention takes it away before its turn comes."""

    __slots__ = ("_segment",)

    def __init__(self, segment: Segment) -> None:
        self._segment = segment

    def sync(self) -> None:
        try:
            self._segment.file.sync()
        except StorageFault:
            if not self._segment.is_dropped:
                raise


class NamesSync:
    """The names in a folder."""

    __slots__ = ("_files", "path")

    def __init__(self, files: Files, path: str) -> None:
        self._files = files
        self.path = path

    def sync(self) -> None:
        self._files.sync_dir(self.path)


class ClosingRound(NamedTuple):
    """What has to be synced before a log may be closed as clean."""

    log: LogState
    end_offset: int
    files: tuple[Syncable, ...]


def closing_round(log: LogState) -> ClosingRound | None:
    """Write what a clean close leaves, and what is then to be synced; None: nothing.

    The name of the log's own folder is left out: it stands in the folder of all logs, which is
    synced once, after the rounds. Raises StorageFault."""
    save_beside(log)
    target = sync_target(log)
    if target is None:
        return None
    shared = log.folder.rpartition("/")[0]
    own = (one for one in target[1] if not isinstance(one, NamesSync) or one.path != shared)
    return ClosingRound(log, target[0], tuple(own))


def close_cleanly(log: LogState) -> None:
    """Have a log closed as clean. Raises StorageFault."""
    save_beside(log)
    target = sync_target(log)
    if target is not None:
        for one in target[1]:
            one.sync()
        log.synced(target[0])


def sync_names(log: LogState) -> None:
    """Make names of new and removed files survive, before anything relies on them."""
    if log.names_unsynced or log.names_syncing:
        log.files.sync_dir(log.folder)


def sync_whose(log: LogState) -> None:
    """Make it survive whose the log is, before anything of it is promised without a round."""
    if not log.is_named or log.names_syncing:
        Watched(log, PathSync(log.files, f"{log.folder}/{PARTITION_METADATA}")).sync()
        log.is_named = True


def save_beside(log: LogState) -> None:
    """Write indexes and producer state of the active segment, and the epoch table, for a clean
    close: the next opening trusts them, so they belong to the last round."""
    segment = log.active
    if segment is None:
        return
    is_saved = segment.index_saved and log.epochs.unsaved_from >= log.end_offset
    if not segment.index_saved:
        segment.save_indexes(log.files)
        save_aborted(log, segment)
        save_snapshot(log)
    save_epochs_before(log, log.end_offset)
    if not is_saved:
        log.unsynced_segments.append((log.end_offset, segment))
        log.names_unsynced = True


def save_epochs_before(log: LogState, offset: int) -> None:
    """Have the epoch table right for what lies before an offset. Raises DiskFull."""
    if log.epochs.unsaved_from < offset:
        save_epochs(log, sync=False)


def sync_targets(log: LogState) -> tuple[Syncable, ...]:
    """Everything that must be on stable storage before the recovery point may be the log's end."""
    files = log.files
    targets: list[Syncable] = []
    log.segments_syncing = tuple(log.unsynced_segments)
    for end_offset, segment in log.segments_syncing:
        beside = [segment.stem + suffix for suffix in (OFFSETS, TIMES, TRANSACTIONS)]
        beside.append(f"{log.folder}/{offset_name(end_offset, SNAPSHOT)}")
        targets.append(SegmentSync(segment))
        targets += [PathSync(files, path) for path in beside]
    if log.active is not None and all(log.active is not one[1] for one in log.unsynced_segments):
        targets.append(SegmentSync(log.active))
    if not log.is_named:
        targets.append(PathSync(files, f"{log.folder}/{PARTITION_METADATA}"))
        log.is_named = True
    if log.epochs.unsynced:
        targets.append(PathSync(files, f"{log.folder}/{LEADER_EPOCHS}"))
        log.epochs.unsynced = False
    targets = [Watched(log, each) for each in targets]
    targets.append(UnmarkSync(log))
    if log.names_unsynced:
        targets.append(NamesSync(files, log.folder))
        targets.append(NamesSync(files, log.folder.rpartition("/")[0]))
        log.names_unsynced, log.names_syncing = False, True
    return tuple(targets)


def sync_target(log: LogState) -> tuple[Offset, tuple[Syncable, ...]] | None:
    """What to sync, in order and in any thread, before `synced(end_offset)`; None: nothing.

    One round a log at a time. When a sync raises, give the fault to `fail`. Raises DiskFull where
    there is no room for the epoch table: ask again when there is."""
    if log.fault is not None:
        raise log.fault
    if log.end_offset <= log.flushed_offset and not log.unsynced_segments:
        return None
    if log.active is not None:
        save_epochs_before(log, log.active.base_offset)
    log.sync_ceiling = log.end_offset
    log.decided_ceiling = log.decided_before(log.end_offset)
    log.unsynced_since_ms = -1
    return Offset(log.end_offset), sync_targets(log)
