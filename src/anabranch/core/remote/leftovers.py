"""Objects in the store that no fact names: which of them are removed, and when.

What: folders of tries, as one listing shows them, a bounded window at a time. Such a folder is left
where a put arrived after its removal was over, or where a coordinator was restored from an older
copy. Rules kept: facts are asked for after the listing, so that a try that began meanwhile is
known; a folder that has a sidecar is a whole segment, which is only told of: the coordinator may be
the one that is wrong; any other folder goes when it was unknown for as long as a put may take, and
only after it was listed once more by itself: a store need not list by name. Not here: listing,
deleting.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

from anabranch.core.remote.keys import SIDECAR, place_of
from anabranch.core.remote.segments import SegmentId
from anabranch.core.remote.unfinished import PUTS_END_MS

LOOK_MS = 6 * 3_600_000
"""How often the whole store is listed for them."""
WINDOW = 500
"""Folders that are looked at in one go: what is held of a listing, whatever the store has."""
MOST_WATCHED = 10_000
"""Unknown folders whose age is known at once; others have their turn after these."""


class Folder(NamedTuple):
    """The objects of a try that were listed."""

    segment_id: SegmentId
    prefix: str
    keys: list[str]

    @property
    def is_whole(self) -> bool:
        """Whether it has a sidecar."""
        return is_whole(self.keys)


class Found(NamedTuple):
    """What came of a listing."""

    gone: int
    """Folders that were to be deleted."""
    whole: int
    """Whole segments that no fact names."""
    next_look_ms: int
    """In how much time to list again."""


class Leftovers:
    """Since when one process has known of each, by its steady clock."""

    def __init__(self) -> None:
        self._since_ms: dict[SegmentId, int] = {}

    def begin(self) -> Listing:
        """A listing begins; only one that ends counts."""
        return Listing(self, self._since_ms)

    def ended(self, since_ms: dict[SegmentId, int]) -> None:
        """What a whole listing has shown."""
        self._since_ms = since_ms


class Listing:
    """One listing of the store, while it goes on."""

    def __init__(self, of: Leftovers, before_ms: dict[SegmentId, int]) -> None:
        self._of, self._before_ms = of, before_ms
        self._since_ms: dict[SegmentId, int] = {}
        self._window: dict[SegmentId, Folder] = {}
        self._gone = self._whole = self._waiting = 0

    def windows(self, object_keys: Iterable[str]) -> Iterator[list[Folder]]:
        """Take a page; gives the windows that are full now."""
        for each in object_keys:
            place = place_of(each)
            if place is None:
                continue
            if place.segment_id not in self._window and len(self._window) >= WINDOW:
                yield self.rest()
            folder = Folder(place.segment_id, each.removesuffix(place.name), [])
            self._window.setdefault(place.segment_id, folder).keys.append(each)

    def rest(self) -> list[Folder]:
        """What was taken and not given."""
        folders, self._window = list(self._window.values()), {}
        return folders

    def look(
        self, window: Iterable[Folder], known: Collection[SegmentId], now_ms: int
    ) -> list[Folder]:
        """Those that are due; `known` are those of the window that have a fact."""
        due: list[Folder] = []
        for each in window:
            if each.segment_id in known:
                continue
            if each.is_whole:
                self._whole += 1
            elif self._age_ms(each.segment_id, now_ms) >= PUTS_END_MS:
                due.append(each)
        return due

    def goes(self, folder: Folder, listed: Collection[str]) -> bool:
        """Whether a folder that is due may be deleted, after it was listed by itself."""
        self._since_ms.pop(folder.segment_id, None)
        may_go = not is_whole(listed)
        self._gone += may_go
        self._whole += not may_go
        return may_go

    def end(self) -> Found:
        """All pages were looked at."""
        self._of.ended(self._since_ms)
        has_more = self._since_ms or self._waiting
        return Found(self._gone, self._whole, PUTS_END_MS if has_more else LOOK_MS)

    def _age_ms(self, segment_id: SegmentId, now_ms: int) -> int:
        since_ms = self._before_ms.get(segment_id, now_ms)
        if len(self._since_ms) < MOST_WATCHED:
            self._since_ms[segment_id] = since_ms
        else:
            self._waiting += 1
        return now_ms - since_ms


def is_whole(object_keys: Iterable[str]) -> bool:
    """Whether a sidecar is among the objects of a folder."""
    return any(each.endswith(f"/{SIDECAR}") for each in object_keys)
