"""The order of a try's calls and puts, and its lease."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.keys import SIDECAR, segment_folder
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.remote.sidecar import decode_sidecar
from anabranch.core.remote.unfinished import CONFIRM_MS, LEASE_MS
from anabranch.core.tiering.built_segment import BuiltSegment
from anabranch.core.tiering.tries import Call, Lease, PutFiles, one_try
from anabranch.core.types import TopicId
from anabranch.core.wire.messages.tier_segment import FINISH, START

KEY = LogKey(TopicId(b"t" * 16), 3)
SEGMENT = RemoteSegment(SegmentId(b"s" * 16), KEY, 5, 9, 100, (EpochStart(0, 5),), 4, -1, -1)
BUILT = BuiltSegment(SEGMENT, {"05.log": [b"logs"], "05.index": [b"i"]})
FOLDER = segment_folder("cluster", KEY, SEGMENT.segment_id)


def test_a_try_is_known_before_it_is_stored_and_finished_once_it_is_described():
    steps = one_try("cluster", "river", BUILT)
    assert next(steps) == Call(START)
    files = steps.send((70, SimpleNamespace(broker_id=4, leader_epoch=8)))
    assert isinstance(files, PutFiles)
    assert dict(files.files) == {FOLDER + "05.log": [b"logs"], FOLDER + "05.index": [b"i"]}
    described = steps.send(None)
    assert isinstance(described, PutFiles) and described.lease is files.lease
    ((key, (sidecar,)),) = described.files.items()
    told = decode_sidecar(sidecar, key)
    assert (key, told.topic) == (FOLDER + SIDECAR, "river")
    assert (told.segment.broker_id, told.segment.leader_epoch) == (4, 8)
    assert steps.send(None) == Call(FINISH)
    with pytest.raises(StopIteration):
        steps.send(None)


@given(st.lists(st.tuples(st.integers(0, LEASE_MS * 2), st.booleans()), max_size=20))
def test_no_put_begins_a_lease_after_the_last_word_that_the_try_stands(waits):
    now_ms = heard_ms = 1_000
    lease = Lease(now_ms)
    for wait_ms, is_confirmed in waits:
        now_ms += wait_ms
        assert lease.is_old(now_ms) is (now_ms - heard_ms >= CONFIRM_MS)
        if is_confirmed:
            lease.stands(now_ms)
            heard_ms = now_ms
        if now_ms - heard_ms < LEASE_MS:
            lease.check(now_ms)
        else:
            with pytest.raises(StorageFault, match="given up"):
                lease.check(now_ms)
