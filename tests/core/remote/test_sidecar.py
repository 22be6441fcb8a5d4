"""Names of a segment's objects, and its description among them."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.remote.remote_kit import KEY, epochs, remote

from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import Bug, StorageFault
from anabranch.core.remote.keys import (
    SIDECAR,
    file_names,
    object_keys,
    place_of,
    remote_prefix,
    segment_folder,
    upload_names,
)
from anabranch.core.remote.segments import RemoteSegment, SegmentId, SegmentState, check_step
from anabranch.core.remote.sidecar import decode_sidecar, encode_sidecar
from anabranch.core.types import TopicId
from anabranch.stores.objects.keys import check_key

CLUSTER = "kwC8bZ6oTn-4yqXqYkQ0Yw"
SEGMENT = remote(40, 90, (0, 40), (3, 55), number=7)
PLACE = segment_folder(CLUSTER, KEY, SEGMENT.segment_id) + SIDECAR


def test_a_folder_has_the_files_that_a_broker_has():
    assert file_names(SEGMENT, has_aborted=True) == [
        "00000000000000000040.log",
        "00000000000000000040.index",
        "00000000000000000040.timeindex",
        "00000000000000000040.txnindex",
        "00000000000000000090.snapshot",
        "leader-epoch-checkpoint",
    ]
    assert len(file_names(SEGMENT, has_aborted=False)) == 5


def test_the_sidecar_is_put_last_and_deleted_first():
    keys = object_keys(CLUSTER, SEGMENT)
    assert upload_names(SEGMENT)[-1] == SIDECAR
    assert keys[0] == PLACE
    assert len(keys) == 7
    for each in keys:
        check_key(each, "memory://test")
        assert each.startswith(remote_prefix(CLUSTER))


@given(st.binary(min_size=16, max_size=16), st.binary(min_size=16, max_size=16), st.integers(0))
def test_an_objects_name_tells_whose_it_is(topic_id, segment_id, partition):
    key, number = LogKey(TopicId(topic_id), partition), SegmentId(segment_id)
    folder = segment_folder(CLUSTER, key, number)
    for name in (SIDECAR, "00000000000000000040.log"):
        assert place_of(folder + name) == (key, number, name)


@given(st.text(max_size=80))
def test_other_names_are_of_no_segment(name):
    for each in (name, f"{name}/{SIDECAR}", f"{'z' * 32}-1/{name}/{SIDECAR}"):
        assert place_of(each) is None


@st.composite
def segments(draw: st.DrawFn) -> RemoteSegment:
    starts = sorted(draw(st.sets(st.integers(0, 2**62), min_size=2, max_size=5)))
    numbers = sorted(draw(st.sets(st.integers(0, 2**31 - 1), min_size=4, max_size=4)))
    entries = epochs(*zip(numbers, starts[:-1], strict=False))
    return RemoteSegment(
        SegmentId(draw(st.binary(min_size=16, max_size=16))), KEY, starts[0], starts[-1],
        draw(st.integers(-1, 2**62)), entries, draw(st.integers(0, 2**40)),
        draw(st.integers(0, 99)), draw(st.integers(0, 99)), draw(st.booleans()),
        SegmentState.COPY_SEGMENT_FINISHED, draw(st.integers(0, 2**50)),
        draw(st.binary(max_size=128)),
    )  # fmt: skip


@given(segments(), st.text(max_size=20))
def test_a_sidecar_tells_all_that_was_known(segment, topic):
    place = segment_folder(CLUSTER, segment.key, segment.segment_id) + SIDECAR
    described = decode_sidecar(encode_sidecar(topic, segment), place)
    assert described == (topic, segment)


WHOLE = json.loads(encode_sidecar("creek", SEGMENT))


@pytest.mark.parametrize(
    "changed",
    [
        {"version": 2},
        {"start_offset": 90},
        {"start_offset": -1, "leader_epochs": [[0, -1]]},
        {"byte_size": -1},
        {"leader_epochs": []},
        {"leader_epochs": [[0, 41]]},
        {"leader_epochs": [[3, 40], [0, 55]]},
        {"leader_epochs": [[0, 40], [3, 90]]},
        {"leader_epochs": [[0, 40], [3, 40]]},
        {"leader_epochs": [[0]]},
        {"custom_metadata": "00" * 129},
        {"custom_metadata": "no"},
        {"segment_id": "xx"},
        {"partition": "5"},
        {"partition": 6},
        {"segment_id": "00" * 16},
    ],
    ids=str,
)
def test_a_sidecar_that_cannot_be_is_named(changed):
    with pytest.raises(StorageFault, match=PLACE):
        decode_sidecar(json.dumps(WHOLE | changed).encode(), PLACE)


@pytest.mark.parametrize("encoded", [b"", b"{}", b"\xff\xfe", b'{"a":' + b"[" * 9000])
def test_what_is_no_sidecar_is_named(encoded):
    with pytest.raises(StorageFault, match=PLACE):
        decode_sidecar(encoded, PLACE)


def test_states_follow_one_another_as_in_kafka():
    may = {(0, 1), (0, 2), (1, 2), (2, 3)} | {(each, each) for each in range(4)}
    for state in SegmentState:
        for following in SegmentState:
            if (state, following) in may:
                check_step(state, following)
            else:
                with pytest.raises(Bug, match="cannot become"):
                    check_step(state, following)
