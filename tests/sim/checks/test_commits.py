"""What a batch of the offsets topic commits is read from its bytes, if they are sound."""

from __future__ import annotations

from anabranch.core.coordination.groups.classic.group_records import group_deleted
from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.offset_records import offset_record
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import build_batch
from anabranch.sim.checks.commits import Committed, commits_in
from anabranch.sim.checks.entries import Entry
from anabranch.sim.checks.truth import Truth


def batch() -> bytearray:
    kept = CommittedOffset(7, -1, "", 1000, -1)
    records = [
        offset_record("g", "t", 1, kept, 1000),
        offset_record("g", "t", 2, None, 1000),
        group_deleted("g", 1000),
    ]
    return build_batch([each._replace(offset=at) for at, each in enumerate(records)])


WHAT = (Committed("g", TopicPartition("t", 1), 7),)


def test_a_batch_says_which_offsets_it_commits():
    assert commits_in(batch()) == WHAT


def test_a_batch_that_rotted_says_nothing_and_its_sound_copy_does():
    rotten = batch()
    rotten[-1] ^= 1
    assert commits_in(rotten) is None
    truth, entry = Truth((b"", 0), has_offsets=True), Entry(0, 3, 0, 1, -1, -1, -1)
    truth.note_commits(entry, rotten)
    truth.note_commits(entry, batch())
    truth.note_commits(entry, b"")
    assert truth.times_committed(WHAT[0]) == 0
    truth.commit([entry], 3)
    assert truth.times_committed(WHAT[0]) == 1


def test_other_topics_are_not_read():
    truth, entry = Truth((b"", 0)), Entry(0, 3, 0, 1, -1, -1, -1)
    truth.note_commits(entry, b"no batch")
    truth.commit([entry], 3)
    assert truth.times_committed(WHAT[0]) == 0
