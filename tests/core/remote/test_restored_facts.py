"""Facts that are made again from a store, after the coordinator that had them was lost."""

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.remote.remote_kit import KEY, remote
from tests.core.remote.remote_world import World

from anabranch.core.diskless.objects import ObjectMissing
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import StorageFault
from anabranch.core.remote.keys import SIDECAR, segment_folder, upload_names
from anabranch.core.remote.restored_facts import restored_facts
from anabranch.core.remote.segments import RemoteSegment, SegmentState
from anabranch.core.remote.sidecar import Described

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
REMOVED = SegmentState.DELETE_SEGMENT_STARTED


def folder(segment: RemoteSegment) -> str:
    return segment_folder(CLUSTER, segment.key, segment.segment_id)


def stored(*segments: RemoteSegment) -> tuple[dict[str, int], dict[str, Described | StorageFault]]:
    listed = {
        folder(each) + name: each.byte_size if name.endswith(".log") else 7
        for each in segments
        for name in upload_names(each)
    }
    return listed, {folder(each) + SIDECAR: Described("creek", each) for each in segments}


@pytest.mark.parametrize("seed", range(20))
def test_a_coordinator_that_was_lost_loses_no_record_and_leaves_no_garbage(seed):
    world = World(Random(seed))
    for steps in (350, 250):
        for _ in range(steps):
            world.step()
            world.check()
        if steps == 350:
            world.lose_coordinator()
            world.check()
    world.settle()


def test_whole_segments_are_finished_again():
    other = LogKey(KEY.topic_id, 6)
    segments = [
        remote(5, 9, (2, 5), number=1),
        remote(9, 20, (2, 9), (4, 11), number=2, leader_epoch=6),
        remote(0, 3, number=3)._replace(key=other),
    ]
    found = restored_facts(*stored(*segments))
    assert found.findings == []
    first, second = found.logs
    assert first[:4] == ("creek", KEY, 6, 5)
    assert set(first.segments) == set(segments[:2])
    assert (second.key, second.log_start, second.segments) == (other, 0, (segments[2],))


def test_a_segment_of_which_something_is_gone_is_named_and_kept():
    whole, short, lacking = (remote(at, at + 9, number=at) for at in (10, 20, 30))
    listed, sidecars = stored(whole, short, lacking)
    listed[f"{folder(short)}{upload_names(short)[0]}"] -= 2
    del listed[f"{folder(lacking)}leader-epoch-checkpoint"]
    found = restored_facts(listed, sidecars)
    [log] = found.logs
    assert log.segments == (whole,)
    assert log.log_start == 10
    assert len(found.findings) == 2
    texts = " ".join(found.findings)
    assert folder(short) in texts and "2 bytes of 00000000000000000020.log missing" in texts
    assert folder(lacking) in texts and "leader-epoch-checkpoint missing" in texts


def test_what_a_try_or_a_removal_has_left_is_removed():
    begun = remote(40, 50, number=4)
    listed, _ = stored(begun)
    del listed[folder(begun) + SIDECAR]
    found = restored_facts(listed, {})
    assert len(found.logs) == 1
    [left] = found.logs[0].segments
    assert found.findings == []
    assert (left.segment_id, left.start_offset, left.state) == (begun.segment_id, 40, REMOVED)


def test_a_damaged_sidecar_is_named_and_nothing_deletes_its_folder():
    segment = remote(0, 9, number=1)
    listed, _ = stored(segment)
    place = folder(segment) + SIDECAR
    found = restored_facts(listed, {place: StorageFault(f"object {place}: it is nothing")})
    assert len(found.findings) == 1 and found.logs == []
    assert found.findings[0].startswith(
        f"object {place}: it is nothing; its other objects are kept"
    )


def test_a_sidecar_that_went_while_the_store_was_listed_is_that_of_a_removal():
    segment = remote(0, 9, number=1)
    listed, _ = stored(segment)
    place = folder(segment) + SIDECAR
    found = restored_facts(listed, {place: ObjectMissing(place)})
    assert found.findings == []
    assert [each.state for each in found.logs[0].segments] == [REMOVED]


@given(st.data())
def test_whatever_a_store_has_lost_nothing_whole_or_damaged_is_removed(data):
    """A fact that says remove is of a folder without a sidecar alone."""
    segments = [remote(at * 10, at * 10 + 9, number=at + 1) for at in range(4)]
    listed, sidecars = stored(*segments)
    for key in data.draw(st.sets(st.sampled_from(sorted(listed)), max_size=6)):
        if key in sidecars and data.draw(st.booleans()):
            sidecars[key] = StorageFault(f"object {key}: it is nothing")
        else:
            del listed[key]
            sidecars.pop(key, None)
    found = restored_facts(listed, sidecars)
    known = {each.segment_id: each for log in found.logs for each in log.segments}
    for each in segments:
        names = {name for name in upload_names(each) if folder(each) + name in listed}
        told, fact = sidecars.get(folder(each) + SIDECAR), known.get(each.segment_id)
        is_named = any(folder(each) in finding for finding in found.findings)
        if told is None:
            assert (fact.state == REMOVED) if names else fact is None
        elif isinstance(told, Described) and len(names) == len(upload_names(each)):
            assert fact == each and not is_named
        else:
            assert fact is None and is_named


def test_other_objects_are_left_alone():
    assert restored_facts({"anabranch-cluster.json": 3, f"{CLUSTER}/wal/00/1": 5}, {}).logs == []
