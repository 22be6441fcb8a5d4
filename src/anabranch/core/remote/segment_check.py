"""Compares the facts of remote segments with what lies in the store.

What: findings about segments, each with its partition, offsets and folder. Rules kept: nothing is
changed; an object that is missing or has another size is damage where its segment is FINISHED; what
a copy or a removal under way, or a topic that was deleted, has left is named and is none. Not here:
reading the store (`stores/objects/remote_verification.py`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping

from anabranch.core.diskless.findings import Finding, Kind
from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import LEADER_EPOCHS, parse_epochs
from anabranch.core.log.indexes import InvalidIndex, OffsetIndex, TimeIndex, decode_aborted
from anabranch.core.log.producer_snapshot import decode_snapshot
from anabranch.core.log.scan import BadBatch
from anabranch.core.log.segment import OFFSETS, SNAPSHOT, TIMES, TRANSACTIONS
from anabranch.core.remote.facts import HeldRemoteLog
from anabranch.core.remote.keys import SIDECAR, place_of, segment_folder, upload_names
from anabranch.core.remote.segments import RemoteSegment, SegmentState
from anabranch.core.remote.sidecar import Described
from anabranch.core.sentences import number_of
from anabranch.core.types import topic_id_text
from anabranch.core.wire.batch import BatchHeader

NO_EPOCH = -1
"""Of a batch that is older than leader epochs."""


class SegmentCheck:
    """What is compared, partition by partition; then `unknown` tells what is left."""

    def __init__(
        self,
        cluster_id: str,
        listed: Mapping[str, int],
        sidecars: Mapping[str, Described | StorageFault],
    ) -> None:
        self._cluster_id, self._listed, self._sidecars = cluster_id, listed, sidecars
        self._folders: dict[str, list[str]] = {}
        for object_key in listed:
            place = place_of(object_key)
            if place is not None:
                folder = object_key.removesuffix(place.name)
                self._folders.setdefault(folder, []).append(place.name)
        self._known: set[str] = set()

    def look(self, log: HeldRemoteLog) -> Iterator[Finding]:
        """What is wrong with a partition's segments."""
        for each in log.segments:
            folder = segment_folder(self._cluster_id, each.key, each.segment_id)
            self._known.add(folder)
            place = place_text(log, each)
            if each.is_finished:
                yield from self._finished(each, folder, place)
            elif folder in self._folders:
                what = "copied" if each.state is SegmentState.COPY_SEGMENT_STARTED else "removed"
                detail = f"{folder}: it was being {what}; brokers go on with it"
                yield Finding(Kind.SEGMENT_UNFINISHED, place, detail)

    def _finished(self, segment: RemoteSegment, folder: str, place: str) -> Iterator[Finding]:
        names = upload_names(segment)
        missing = [name for name in names if folder + name not in self._listed]
        if missing:
            detail = f"{folder}: {', '.join(missing)} missing"
            yield Finding(Kind.SEGMENT_MISSING, place, detail)
        held = self._listed.get(folder + names[0], segment.byte_size)
        if held != segment.byte_size:
            detail = f"{folder}{names[0]} has {held} bytes, and {segment.byte_size} were copied"
            yield Finding(Kind.SEGMENT_CHANGED, place, detail)
        told = self._sidecars.get(folder + SIDECAR)
        if isinstance(told, StorageFault):
            yield Finding(Kind.DESCRIPTION_DAMAGED, place, str(told))
        elif told is not None and not _is_of(told.segment, segment):
            detail = f"object {folder}{SIDECAR}: it tells something else than the coordinator"
            yield Finding(Kind.DESCRIPTION_DAMAGED, place, detail)

    def unknown(self) -> Iterator[Finding]:
        """Folders that no partition named."""
        for folder, names in sorted(self._folders.items()):
            if folder not in self._known:
                detail = f"not known to the coordinator: {number_of(len(names), 'object')}"
                yield Finding(Kind.SEGMENT_UNKNOWN, folder, detail)


def _is_of(told: RemoteSegment, known: RemoteSegment) -> bool:
    """Whether a description is that of a segment: the state and its time came later."""
    same = told._replace(state=known.state, event_ms=known.event_ms)
    return same._replace(custom_metadata=known.custom_metadata) == known


def place_text(log: HeldRemoteLog, segment: RemoteSegment) -> str:
    """A segment for people: its partition and offsets."""
    topic = log.topic or topic_id_text(log.key.topic_id)
    last = max(segment.start_offset, segment.end_offset - 1)
    return f"{topic}-{log.key.partition} offsets {segment.start_offset} to {last}"


def check_file(segment: RemoteSegment, name: str, held: bytes) -> None:
    """Whether a file other than the batches can be used. Raises ValueError with what is wrong."""
    try:
        if name.endswith(OFFSETS):
            OffsetIndex.decode(held, segment.byte_size)
        elif name.endswith(TIMES):
            TimeIndex.decode(held)
        elif name.endswith(TRANSACTIONS):
            decode_aborted(held)
        elif name.endswith(SNAPSHOT) and decode_snapshot(held) is None:
            raise ValueError("its checksum does not match")
        elif name == LEADER_EPOCHS:
            _check_epochs(segment, parse_epochs(held))
    except InvalidIndex as problem:
        raise ValueError(str(problem)) from None


def _check_epochs(segment: RemoteSegment, entries: Iterable[tuple[int, int]]) -> None:
    within = {epoch for epoch, _ in entries}
    if not within >= {each.epoch for each in segment.leader_epochs}:
        raise ValueError("it lacks leader epochs of the segment")


def check_batches(segment: RemoteSegment, batches: Iterable[tuple[int, BatchHeader]]) -> None:
    """Whether batches with sound checksums are those of a segment. Raises BadBatch."""
    following, newest = segment.start_offset, segment.leader_epochs[-1].epoch
    for position, header in batches:
        if not NO_EPOCH <= header.leader_epoch <= newest:
            raise BadBatch(position, f"leader epoch {header.leader_epoch} is none of the segment's")
        if not following <= header.base_offset <= header.last_offset < segment.end_offset:
            raise BadBatch(position, f"offset {header.base_offset} does not belong there")
        following = header.last_offset + 1
