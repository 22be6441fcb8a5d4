"""An acknowledged commit that the offsets topic does not have is found; what may be is not told."""

from __future__ import annotations

import json

import pytest
from tests.chaos.test_replicas import Disks

from anabranch.core.coordination.groups.committed_offset import CommittedOffset
from anabranch.core.coordination.groups.offset_records import offset_record
from anabranch.core.log import checkpoints
from anabranch.core.types import TopicPartition
from anabranch.core.wire.records import build_batch
from chaos import check, check_commits

PLACE = TopicPartition(check_commits.OFFSETS_TOPIC, 2)


@pytest.fixture
def disks(tmp_path):
    return Disks(tmp_path, PLACE)


def commits(*offsets: int | None, partition: int = 7) -> list[bytes]:
    """One batch a commit of g1, in this order; None deletes the offset."""
    batches = []
    for base, offset in enumerate(offsets):
        committed = None if offset is None else CommittedOffset(offset, -1, "", 1000, -1)
        record = offset_record("g1", "wide", partition, committed, 1000)
        record = record._replace(offset=base)
        batches.append(bytes(build_batch([record], base_offset=base, leader_epoch=0)))
    return batches


def history(tmp_path, *told: tuple[int, int, int], ok: bool = True):
    """(asked, told, offset) of one member of g1."""
    path = tmp_path / "member.jsonl"
    lines = [
        {"op": "commit", "t": t, "client": "m", "group": "g1", "at": "wide-7", "offset": offset,
         "asked": asked, "ok": ok, "why": "" if ok else "NOT_COORDINATOR"}
        for asked, t, offset in told
    ]  # fmt: skip
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))
    return [path]


def forgotten(histories, disks) -> list[int]:
    return [found.details["offset"] for found in check_commits.judge(histories, disks.folders)]


def write(disks, *batches: bytes) -> None:
    for folder in disks.folders:
        disks.write(folder.name, *batches)


def test_the_commit_that_chaos_saw_lost_is_found(disks, tmp_path):
    """Seed 3004: the log has 6619 and what another broker wrote; 7165 was acknowledged too."""
    write(disks, *commits(6619, 6641, 7241))
    told = history(tmp_path, (1, 2, 6619), (3, 90, 7115), (5, 90, 7165))
    assert forgotten(told, disks) == [7115, 7165]


def test_the_verdict_counts_it(disks, tmp_path):
    write(disks, *commits(1, 2))
    verdict = check.judge(history(tmp_path, (1, 2, 3)), disks.folders)
    assert verdict.counts == {"forgotten": 1, "unread": 1}
    assert any("group-commit" in line for line in verdict.lines())
    assert check.judge(history(tmp_path, (1, 2, 3))).counts == {"unread": 1}, "not without logs"


def test_what_is_there_in_order_is_clean(disks, tmp_path):
    write(disks, *commits(5, 9, 5, 12))
    assert forgotten(history(tmp_path, (1, 2, 5), (3, 4, 9), (5, 6, 5), (7, 8, 12)), disks) == []


def test_two_commits_one_after_the_other_need_two_records(disks, tmp_path):
    write(disks, *commits(5, 9))
    assert forgotten(history(tmp_path, (1, 2, 5), (3, 4, 9), (5, 6, 5)), disks) == [5]


def test_commits_in_another_order_than_acknowledged(disks, tmp_path):
    write(disks, *commits(9, 5))
    assert forgotten(history(tmp_path, (1, 2, 5), (3, 4, 9)), disks) == [9]


def test_commits_that_were_under_way_together_may_stand_in_any_order(disks, tmp_path):
    write(disks, *commits(9, 5))
    assert forgotten(history(tmp_path, (1, 4, 5), (2, 3, 9)), disks) == []


def test_a_commit_that_was_refused_may_be_there_or_not(disks, tmp_path):
    write(disks, *commits(5, 6))
    assert forgotten(history(tmp_path, (1, 2, 7), (3, 4, 6), ok=False), disks) == []


def test_what_a_later_commit_replaced_may_be_compacted_away(disks, tmp_path):
    write(disks, *commits(5, 12))
    told = history(tmp_path, (1, 2, 5), (3, 4, 9), (7, 8, 12))
    assert forgotten(told, disks) == [9]
    disks.mark(checkpoints.CLEAN_POINTS, 2)
    assert forgotten(told, disks) == []


def test_the_last_commit_is_never_compacted_away(disks, tmp_path):
    write(disks, *commits(5, 12))
    disks.mark(checkpoints.CLEAN_POINTS, 2)
    assert forgotten(history(tmp_path, (1, 2, 12), (3, 4, 13)), disks) == [13]


def test_a_deletion_replaces_too(disks, tmp_path):
    write(disks, *commits(5, None))
    disks.mark(checkpoints.CLEAN_POINTS, 1)
    assert forgotten(history(tmp_path, (1, 2, 4), (3, 4, 5)), disks) == []


def test_the_longest_replica_counts(disks, tmp_path):
    """The nodes that are left write on while others are stopped."""
    write(disks, *commits(5, 6))
    disks.write("two", *commits(5, 6, 7))
    assert forgotten(history(tmp_path, (1, 2, 7)), disks) == []


def test_commits_of_another_partition_do_not_count(disks, tmp_path):
    write(disks, *commits(7, 8, partition=1))
    assert forgotten(history(tmp_path, (1, 2, 7)), disks) == [7]
