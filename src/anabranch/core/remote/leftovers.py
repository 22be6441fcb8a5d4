"""Objects in the store that no fact names: which of them are removed, and when.

What: folders of tries, as they were listed. Such a folder is left where a put arrived after its
removal was over, or where a coordinator was restored from an older copy. Rules kept: facts are
asked for after the listing, so that a try that began meanwhile is known; a folder that has a
sidecar is a whole segment, which is only told of: the coordinator may be the one that is wrong; any
other folder goes when it was unknown for as long as a put may take. Not here: listing, deleting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import NamedTuple

from anabranch.core.remote.keys import SIDECAR, place_of
from anabranch.core.remote.segments import SegmentId
from anabranch.core.remote.unfinished import PUTS_END_MS

LOOK_MS = 6 * 3_600_000
"""How often the whole store is listed for them."""


class Folders:
    """What one listing has shown."""

    def __init__(self, object_keys: Iterable[str]) -> None:
        self.by_id: dict[SegmentId, list[str]] = {}
        """The objects of each try."""
        self.whole: set[SegmentId] = set()
        """Those with a sidecar."""
        for each in object_keys:
            place = place_of(each)
            if place is not None:
                self.by_id.setdefault(place.segment_id, []).append(each)
                if place.name == SIDECAR:
                    self.whole.add(place.segment_id)


class Found(NamedTuple):
    """What comes of a listing."""

    gone: list[list[str]]
    """The objects of folders that are to be deleted."""
    whole: list[SegmentId]
    """Whole segments that no fact names."""
    next_look_ms: int
    """In how much time to list again."""


class Leftovers:
    """Since when one process has known of each, by its steady clock."""

    def __init__(self) -> None:
        self._since_ms: dict[SegmentId, int] = {}

    def look(self, folders: Folders, known: Collection[SegmentId], now_ms: int) -> Found:
        """`known` are those of the listed tries that have a fact."""
        unknown = [each for each in folders.by_id if each not in known]
        parts = [each for each in unknown if each not in folders.whole]
        since = {each: self._since_ms.get(each, now_ms) for each in parts}
        gone = [each for each in parts if now_ms - since[each] >= PUTS_END_MS]
        self._since_ms = {each: at for each, at in since.items() if each not in gone}
        return Found(
            [folders.by_id[each] for each in gone],
            [each for each in unknown if each in folders.whole],
            PUTS_END_MS if self._since_ms else LOOK_MS,
        )
