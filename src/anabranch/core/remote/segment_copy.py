"""One try to copy a local segment: its calls, in order.

What: `copy_segment` is a generator, performed like a round (`rounds.py`): STARTED, the objects,
FINISHED. Rules kept: the coordinator knows of a try before the store does, so that whatever is
stored has a fact that names it; the lease of a try begins when its start was asked for, however
late the first put comes; a try whose end has no answer is left to the next round, which reads what
became of it. A fault leaves the try STARTED: the next round gives it up. Not here: reading files,
puts.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import Any, NamedTuple, TypeAlias

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.local_log import LocalSegment
from anabranch.core.remote.segments import RemoteSegment, SegmentId


class Describe(NamedTuple):
    """Gives a RemoteSegment with a new id for a local segment; None where that is no longer as it
    was, for example because the log was truncated."""

    key: LogKey
    leader_epoch: int
    segment: LocalSegment


class StartSegment(NamedTuple):
    """Have the coordinator know of a try. Gives when that was asked, by the steady clock. Refused
    where a newer leader has been there, or where the topic is gone."""

    segment: RemoteSegment


class UploadFiles(NamedTuple):
    """Store the segment's objects in the order of `upload_names`, and ask meanwhile whether the try
    still stands; begin none once `may_go_on` says no."""

    segment: RemoteSegment
    asked_ms: int


class FinishSegment(NamedTuple):
    """Have the try become FINISHED. Refused where it was given up, or where a newer leader has been
    there."""

    segment: RemoteSegment


Step: TypeAlias = Describe | StartSegment | UploadFiles | FinishSegment


def copy_segment(
    key: LogKey, leader_epoch: int, local: LocalSegment, running: set[SegmentId]
) -> Generator[Step, Any, bool]:
    """Copy a segment; whether it is FINISHED. False where it is not there any more."""
    segment: RemoteSegment | None = yield Describe(key, leader_epoch, local)
    if segment is None:
        return False
    running.add(segment.segment_id)
    try:
        asked_ms: int = yield StartSegment(segment)
        yield UploadFiles(segment, asked_ms)
        yield FinishSegment(segment)
    finally:
        running.discard(segment.segment_id)
    return True
