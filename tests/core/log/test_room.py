"""When a folder takes records, and when again."""

from __future__ import annotations

from itertools import product

import pytest
from tests.core.log.support import KEY, NOW_MS, TOPIC_ID, append, batch, tags

from anabranch.core.errors import Bug
from anabranch.core.log.config import LogConfig
from anabranch.core.log.files import DiskFull
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles
from anabranch.core.log.room import (
    FULL_AT_LEAST_MS,
    RESERVE_BYTES,
    TRANSITIONS,
    Event,
    Room,
    State,
    reserve_bytes,
)
from anabranch.core.types import TopicPartition


def room_in(state: State) -> Room:
    room = Room(1 << 40)
    room.state, room.is_full = state, state is not State.ROOMY
    return room


def step(room: Room, event: Event) -> bool | None:
    steps = {
        Event.REFUSED: room.refused,
        Event.RETURNS: room.returns,
        Event.RESERVED: room.reserved,
        Event.NOT_RESERVED: room.not_reserved,
    }
    return steps[event](0)


@pytest.mark.parametrize(("state", "event"), list(product(State, Event)))
def test_the_table_is_the_machine_and_an_unknown_pair_is_a_bug(state, event):
    room = room_in(state)
    following = TRANSITIONS.get((state, event))
    if following is None:
        with pytest.raises(Bug):
            step(room, event)
        return
    told = step(room, event)
    assert room.state is following
    assert room.is_full is (following is not State.ROOMY)
    is_news = (state is State.ROOMY) is not (following is State.ROOMY)
    assert told is (is_news if event in (Event.REFUSED, Event.RESERVED) else None)


def test_a_large_volume_keeps_a_fixed_reserve_and_a_small_one_a_share():
    assert reserve_bytes(1 << 40) == RESERVE_BYTES
    assert reserve_bytes(24 << 20) == 24 << 16
    assert reserve_bytes(0) == 0


@pytest.mark.parametrize("free_bytes", [0, RESERVE_BYTES, 2 * RESERVE_BYTES])
def test_a_folder_has_no_room_again_where_only_the_reserve_fits(free_bytes):
    room = Room(1 << 40)
    room.refused(1_000)
    assert not room.may_return(free_bytes, 1_000 + FULL_AT_LEAST_MS)
    assert room.may_return(2 * RESERVE_BYTES + 1, 1_000 + FULL_AT_LEAST_MS)


def test_a_folder_does_not_change_its_state_at_once():
    room = Room(1 << 40)
    assert not room.may_return(1 << 40, 10_000), "it is not full"
    room.refused(1_000)
    assert not room.may_return(1 << 40, 999 + FULL_AT_LEAST_MS)
    room.refused(2_000)
    assert room.may_return(1 << 40, 1_000 + FULL_AT_LEAST_MS), "counted from the first refusal"
    assert isinstance(room.refusal("t-0"), DiskFull)


def test_the_logs_of_a_full_folder_take_no_records_and_are_read():
    folder = LogFolder(MemoryFiles(), "data")
    old = folder.create_log(KEY, TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    append(old, batch(tag=1))
    end_offset = old.end_offset
    folder.room.refused(0)
    new = folder.create_log(TopicPartition("new", 0), TOPIC_ID, LogConfig(), now_ms=NOW_MS)
    for log in (old, new):
        with pytest.raises(DiskFull):
            append(log, batch(tag=2))
    assert (old.end_offset, new.end_offset) == (end_offset, 0)
    assert tags(old) == [1], "what is there is read"
    old.truncate_to(0)
    folder.room.returns(1)
    folder.room.reserved(1)
    append(old, batch(tag=3))
    assert tags(old) == [3]
