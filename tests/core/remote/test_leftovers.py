"""What no fact names goes after a while, but for whole segments."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.rows import LogKey
from anabranch.core.remote.keys import SIDECAR, segment_folder
from anabranch.core.remote.leftovers import LOOK_MS, Folders, Leftovers
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
)


@given(LOOKS)
def test_any_listings(looks):
    leftovers, now_ms, since = Leftovers(), 0, {}
    for tries, known, later_ms in looks:
        now_ms += later_ms
        found = leftovers.look(Folders([*listed(tries), "cluster/other/thing"]), known, now_ms)
        parts = {each for each, is_whole in tries.items() if not is_whole and each not in known}
        since = {each: since.get(each, now_ms) for each in parts}
        due = {each for each in parts if now_ms - since[each] >= PUTS_END_MS}
        gone = [key for keys in found.gone for key in keys]
        assert sorted(gone) == sorted(listed(dict.fromkeys(due, False)))
        assert not any(key.endswith(SIDECAR) for key in gone)
        assert set(found.whole) == {each for each in tries if tries[each]} - known
        for each in due:
            del since[each]
        assert found.next_look_ms == (PUTS_END_MS if since else LOOK_MS)
