"""What no fact names goes after a while, but for whole segments."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.keys import SIDECAR, segment_folder
from anabranch.core.remote.leftovers import LOOK_MS, Leftovers
from anabranch.core.remote.segments import SegmentId
from anabranch.core.remote.unfinished import PUTS_END_MS
from anabranch.core.types import TopicId

KEY = LogKey(TopicId(bytes(16)), 0)
IDS = [SegmentId(bytes(15) + bytes([each])) for each in range(6)]


def listed(tries):
    """Objects of tries; True: with a sidecar."""
    return [
        segment_folder("cluster", KEY, each) + name
        for each, is_whole in tries.items()
        for name in ("00000000000000000000.log", *([SIDECAR] if is_whole else []))
    ]


LOOKS = st.lists(
    st.tuples(
        st.dictionaries(st.sampled_from(IDS), st.booleans()),
        st.sets(st.sampled_from(IDS)),
        st.integers(0, PUTS_END_MS),
    ),
    min_size=1,
    max_size=4,
)


@given(LOOKS, st.integers(1, 4), st.integers(1, 3), st.integers(0, 99))
def test_any_listings(looks, page, window, seed):
    """Also where a store lists in any order, so that a folder is in several windows."""
    leftovers, now_ms, since = Leftovers(), 0, {}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("anabranch.core.remote.leftovers.WINDOW", window)
        for tries, known, later_ms in looks:
            now_ms += later_ms
            keys = [*listed(tries), "cluster/other/thing"]
            Random(seed).shuffle(keys)
            gone, found, most = cleared(leftovers, keys, known, now_ms, page)
            assert most <= window
            parts = {each for each, is_whole in tries.items() if not is_whole and each not in known}
            due = {each for each in parts if now_ms - since.get(each, now_ms) >= PUTS_END_MS}
            assert sorted(gone) == sorted(listed(dict.fromkeys(due, False)))
            assert found.gone == len(due)
            shown = {each for each in tries if tries[each]} - known
            assert found.whole >= len(shown) and bool(found.whole) == bool(shown)
            since = {each: since.get(each, now_ms) for each in parts - due}
            if not shown:
                assert found.next_look_ms == (PUTS_END_MS if since else LOOK_MS)


def cleared(leftovers, keys, known, now_ms, page):
    """What goes, as a broker does it; what came of it; the most folders that were held."""
    listing, gone, sizes = leftovers.begin(), [], [0]

    def clear(window):
        sizes.append(len(window))
        for folder in listing.look(window, known, now_ms):
            there = [each for each in keys if each.startswith(folder.prefix) and each not in gone]
            if there and listing.goes(folder, there):
                gone.extend(there)

    for at in range(0, len(keys), page):
        for window in listing.windows(keys[at : at + page]):
            clear(window)
    clear(listing.rest())
    return gone, listing.end(), max(sizes)


def test_a_folder_in_two_windows_is_listed_by_itself_before_it_goes(monkeypatch):
    """Its sidecar comes behind another folder, in a window of its own."""
    monkeypatch.setattr("anabranch.core.remote.leftovers.WINDOW", 1)
    leftovers = Leftovers()
    (part,) = listed({IDS[0]: False})
    assert cleared(leftovers, [part], set(), 0, 9)[0] == []
    (_, sidecar), (other,) = listed({IDS[0]: True}), listed({IDS[1]: False})
    gone, found, _ = cleared(leftovers, [part, other, sidecar], set(), PUTS_END_MS, 9)
    assert gone == []
    assert (found.gone, found.whole) == (0, 2)  # once in the first window, and once in the last


def test_a_listing_that_breaks_off_forgets_nothing_and_what_is_watched_is_bounded(monkeypatch):
    monkeypatch.setattr("anabranch.core.remote.leftovers.MOST_WATCHED", 2)
    leftovers, keys = Leftovers(), listed(dict.fromkeys(IDS, False))
    cleared(leftovers, keys, (), 0, 3)
    broken = leftovers.begin()
    assert not list(broken.windows(keys[:1]))
    gone, found, _ = cleared(leftovers, keys, (), PUTS_END_MS, 3)
    assert gone == keys[:2]
    assert (found.gone, found.next_look_ms) == (2, PUTS_END_MS)
