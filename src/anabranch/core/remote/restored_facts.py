"""The facts of remote segments, made again from what lies in the store.

What: for a coordinator that was lost. A folder with a sidecar and all objects that it tells of is a
finished segment, unless compacted ones have all of its offsets: then, as one without a sidecar, it
is a removal, so that the next leader deletes what is left. Rules kept: a segment whose sidecar is
damaged, or of which something else is gone, is named and gets no fact: nothing deletes it, and a
restore finds it again once its objects are whole; a log start is not known here, and is taken to be
that of the oldest segment: the leader's own one is later, and counts. Not here: reading the store.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from anabranch.core.diskless.objects import ObjectMissing
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.log.segment import LOG, offset_of
from anabranch.core.remote.facts import HeldRemoteLog
from anabranch.core.remote.keys import SIDECAR, place_of, upload_names
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState
from anabranch.core.remote.sidecar import Described
from anabranch.core.remote.superseded import without_superseded

KEPT = (
    "its other objects are kept and not read; put the object back from a copy of the store, and "
    "restore into an empty database again"
)


class RestoredFacts(NamedTuple):
    """What a coordinator is given, and what was found to be wrong."""

    logs: list[HeldRemoteLog]
    findings: list[str]
    """Sentences, each with the object that it is about."""


def restored_facts(
    listed: Mapping[str, int], sidecars: Mapping[str, Described | StorageFault]
) -> RestoredFacts:
    """The facts that a store tells of: `listed` are its objects and their sizes, `sidecars` what
    was read of those that it has."""
    folders: dict[tuple[LogKey, SegmentId], dict[str, int]] = {}
    prefixes: dict[tuple[LogKey, SegmentId], str] = {}
    for object_key, size in listed.items():
        place = place_of(object_key)
        if place is not None:
            whose = (place.key, place.segment_id)
            folders.setdefault(whose, {})[place.name] = size
            prefixes[whose] = object_key.removesuffix(place.name)
    findings: list[str] = []
    segments: dict[LogKey, list[RemoteSegment]] = {}
    topics: dict[LogKey, str] = {}
    for whose, held in sorted(folders.items()):
        prefix = prefixes[whose]
        told = sidecars.get(prefix + SIDECAR)
        if isinstance(told, Described):
            topics[whose[0]] = told.topic
            segment, problem = told.segment, _missing(told.segment, held, prefix)
        else:
            segment = _leftover(*whose, held)
            problem = "" if told is None or isinstance(told, ObjectMissing) else str(told)
        if problem:
            findings.append(f"{problem}; {KEPT}")
            continue
        segments.setdefault(whose[0], []).append(segment)
    logs = [
        _log(key, topics.get(key, ""), without_superseded(found))
        for key, found in sorted(segments.items())
    ]
    return RestoredFacts(logs, findings)


def _missing(segment: RemoteSegment, held: Mapping[str, int], prefix: str) -> str:
    """What is gone of a segment, as a sentence; "" where nothing is."""
    names = upload_names(segment)
    missing = [name for name in names if name not in held]
    if not missing and held[names[0]] != segment.byte_size:
        missing = [f"{segment.byte_size - held[names[0]]} bytes of {names[0]}"]
    if not missing:
        return ""
    return (
        f"segment {prefix}, offsets {segment.start_offset} to {segment.end_offset}: "
        f"{', '.join(missing)} missing"
    )


def _leftover(key: LogKey, segment_id: SegmentId, held: Mapping[str, int]) -> RemoteSegment:
    """What a try or a removal has left: only its objects count."""
    start = max((offset_of(name, LOG) for name in held), default=-1)
    start = max(start, 0)
    state = SegmentState.DELETE_SEGMENT_STARTED
    return RemoteSegment(segment_id, key, start, start, -1, (), 0, -1, -1, state=state)


def _log(key: LogKey, topic: str, segments: list[RemoteSegment]) -> HeldRemoteLog:
    finished = [each for each in segments if each.is_finished]
    epochs = [max(each.leader_epoch, each.leader_epochs[-1].epoch) for each in finished]
    start = min((each.start_offset for each in finished), default=0)
    return HeldRemoteLog(key=key, topic=topic, leader_epoch=max(epochs, default=-1),
                         log_start=start, segments=tuple(segments))  # fmt: skip
