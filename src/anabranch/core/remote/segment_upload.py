"""The objects of one try to copy a segment, in order, and the lease that lets it go on.

What: generators that a broker and the simulator carry out. `uploaded` asks for the batches first,
then the small files, then the sidecar; `Lease.checked` asks the coordinator whether the try stands,
when its last answer is old. Rules kept: the sidecar, which says that a folder is whole, is put only
if the log was not cut while its files were read; a coordinator that is away for less than a lease
ends no copy; a lease is as old as the question that was answered. Not here: reading files, puts.
"""

from __future__ import annotations

from collections.abc import Callable, Generator
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.diskless.coordinator import CoordinatorAway
from anabranch.core.remote.facts import TryEnded
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.sidecar import encode_sidecar
from anabranch.core.remote.unfinished import CONFIRM_MS, may_go_on

if TYPE_CHECKING:
    from anabranch.core.remote.segment_files import SegmentFiles
    from anabranch.core.remote.segments import RemoteSegment


class PutBatches(NamedTuple):
    """Put the first bytes of a file as an object."""

    object_key: str
    path: str
    byte_size: int


class PutFile(NamedTuple):
    """Put an object."""

    object_key: str
    content: bytes


class AskStands(NamedTuple):
    """Gives whether the try may go on, as the coordinator knows."""

    segment: RemoteSegment


class Lease:
    """Whether a try may go on, as far as is known. `clock` gives steady milliseconds."""

    def __init__(self, segment: RemoteSegment, asked_ms: int, clock: Callable[[], int]) -> None:
        self._segment, self._asked_ms, self._clock = segment, asked_ms, clock

    def checked(self) -> Generator[AskStands, bool, None]:
        """Look at it, before each request. Raises TryEnded."""
        now_ms = self._clock()
        if now_ms - self._asked_ms >= CONFIRM_MS:
            try:
                if not (yield AskStands(self._segment)):
                    raise TryEnded("the copy of this segment was given up, or has a newer leader")
                self._asked_ms = now_ms
            except CoordinatorAway:
                pass  # the lease tells for how long
        if not may_go_on(self._asked_ms, self._clock()):
            raise TryEnded("the coordinator has not confirmed the copy of this segment for a lease")


def uploaded(
    cluster_id: str,
    topic: str,
    segment: RemoteSegment,
    files: SegmentFiles,
    cuts: Callable[[], int],
) -> Generator[PutBatches | PutFile, None, None]:
    """Put all objects of a try; `cuts` gives how often the log was cut by now. Raises TryEnded, and
    what a put raises; what was put then is removed with the try."""
    folder = segment_folder(cluster_id, segment.key, segment.segment_id)
    first, *rest = upload_names(segment)
    yield PutBatches(folder + first, files.log_path, segment.byte_size)
    for name in rest:
        if name == SIDECAR:
            _refuse_cut(files, cuts())
            yield PutFile(folder + name, encode_sidecar(topic, segment))
        else:
            yield PutFile(folder + name, files.others[name])
    _refuse_cut(files, cuts())


def _refuse_cut(files: SegmentFiles, cuts: int) -> None:
    if cuts != files.cuts:
        raise TryEnded(f"{files.log_path}: it was truncated while it was copied")
