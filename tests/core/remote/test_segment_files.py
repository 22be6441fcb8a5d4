"""A closed segment is described as it is, and a log that is made of its files is the same log."""

from __future__ import annotations

from random import Random

import pytest
from tests.core.log.support import (
    FOLDER,
    KEY,
    NOW_MS,
    TOPIC_ID,
    append,
    batch,
    marker,
    new_log,
    patiently,
    read_batches,
)

from anabranch.core.errors import StorageFault
from anabranch.core.log.checkpoints import PARTITION_METADATA, format_partition_metadata
from anabranch.core.log.log import Log
from anabranch.core.log.producer_replay import state_at
from anabranch.core.log.producer_snapshot import encode_snapshot
from anabranch.core.remote.keys import file_names
from anabranch.core.remote.local_log import LocalSegment
from anabranch.core.remote.segment_files import SegmentFiles, Try, describe, local_segments
from anabranch.core.remote.segments import RemoteSegment, SegmentId

TRY = Try(SegmentId(bytes(16)), 3, 7)


def write_history(random: Random, log: Log, steps: int = 60) -> None:
    """Appends of plain and idempotent producers and of transactions that end either way, in several
    epochs, with rolls between them."""
    epoch, sequences, is_open = 0, {1: 0, 2: 0, 3: 0}, set()
    for step in range(steps):
        kind = random.random()
        if kind < 0.1:
            epoch += random.randint(1, 2)
        elif kind < 0.25:
            roll(log)
        elif kind < 0.5:
            append(log, batch(random.randint(1, 4), tag=step), leader_epoch=epoch)
        elif kind < 0.65 and is_open:
            producer_id = random.choice(sorted(is_open))
            is_open.discard(producer_id)
            ended = marker(producer_id, committed=random.random() < 0.5)
            log.append_as_leader(ended, leader_epoch=epoch, now_ms=NOW_MS, client=False)
        else:
            producer_id, count = random.choice((1, 2, 3)), random.randint(1, 3)
            is_transactional = producer_id > 1
            records = batch(
                count,
                tag=step,
                producer_id=producer_id,
                producer_epoch=0,
                base_sequence=sequences[producer_id],
                transactional=is_transactional,
            )
            append(log, records, leader_epoch=epoch)
            sequences[producer_id] += count
            if is_transactional:
                is_open.add(producer_id)
    roll(log)


def roll(log: Log) -> None:
    if log.active is not None and log.active.size:
        log.roll(NOW_MS)


def closed(log: Log) -> list[LocalSegment]:
    return [each for each in patiently(lambda: local_segments(log)) if not each.is_active]


def described(log: Log, local: LocalSegment) -> tuple[RemoteSegment, SegmentFiles]:
    found = patiently(lambda: describe(log, local, TRY))
    assert found is not None
    return found


def folder_of(log: Log, segments: list[LocalSegment], folder: str) -> None:
    """Write the files of segments as a broker has them."""
    files = log.files
    files.make_dirs(folder)
    files.write_atomic(
        f"{folder}/{PARTITION_METADATA}", format_partition_metadata(TOPIC_ID), sync=False
    )
    for each in segments:
        segment, held = described(log, each)
        names = file_names(segment, has_aborted=segment.has_aborted)
        assert sorted(held.others) == sorted(names[1:])
        records = bytes(files.open(held.log_path).read_blocking(0, segment.byte_size))
        assert len(records) == segment.byte_size
        for name, content in {names[0]: records, **held.others}.items():
            files.write_atomic(f"{folder}/{name}", content, sync=False)


@pytest.mark.parametrize("seed", range(40))
def test_a_log_of_the_files_is_the_same_log(seed):
    random = Random(seed)
    log = new_log(index_interval_bytes=100)
    write_history(random, log)
    segments = closed(log)
    folder_of(log, segments, "copy/flights-0")
    again = Log.open(
        log.files, "copy/flights-0", KEY, TOPIC_ID, log.config, now_ms=NOW_MS,
        recovery_point=log.end_offset, clean=True,
    )  # fmt: skip
    assert read_batches(again) == read_batches(log)
    end = log.end_offset
    assert again.aborted_transactions(0, end) == log.aborted_transactions(0, end)
    assert again.epochs.entries == log.epochs.begun_before(end)
    assert encode_snapshot(again.producers) == encode_snapshot(log.producers)
    for timestamp in (NOW_MS, NOW_MS + 1, NOW_MS + 3):
        found = patiently(lambda at=timestamp: again.offset_for_timestamp(at, upto=end))
        assert found == log.offset_for_timestamp(timestamp, upto=end)


@pytest.mark.parametrize("seed", range(40))
def test_each_segment_is_described_by_what_is_in_it(seed):
    random = Random(seed)
    log = new_log(index_interval_bytes=100)
    write_history(random, log)
    for each in closed(log):
        segment, held = described(log, each)
        epochs = {log.epochs.epoch_of(at) for at in range(each.start_offset, each.end_offset)}
        assert {entry.epoch for entry in segment.leader_epochs} == epochs
        assert segment.leader_epochs[0].start_offset == each.start_offset
        for entry in segment.leader_epochs[1:]:
            assert log.epochs.epoch_of(entry.start_offset) == entry.epoch
            assert log.epochs.epoch_of(entry.start_offset - 1) != entry.epoch
        snapshot = held.others[f"{each.end_offset:020d}.snapshot"]
        assert snapshot == encode_snapshot(state_at(log, each.end_offset, []))
        assert segment.max_timestamp == each.newest_ms
        assert (segment.key.topic_id, segment.key.partition) == (TOPIC_ID, KEY.partition)


def test_what_is_missing_beside_the_batches_is_made_again():
    log = new_log()
    write_history(Random(4), log)
    expected = [described(log, each) for each in closed(log)]
    log.close(clean=True)
    again = Log.open(log.files, FOLDER, KEY, TOPIC_ID, log.config, now_ms=NOW_MS,
                     recovery_point=log.end_offset, clean=True)  # fmt: skip
    for name in again.files.list(FOLDER):
        if name.endswith((".snapshot", "index")):
            again.files.remove(f"{FOLDER}/{name}")
    assert [described(again, each)[0] for each in closed(again)] == [one for one, _ in expected]
    for each, (_, held) in zip(closed(again), expected, strict=True):
        assert described(again, each)[1].others == held.others


def test_a_segment_that_is_no_longer_as_it_was_is_not_described():
    log = new_log()
    for tag in range(3):
        append(log, batch(4, tag=tag))
        log.roll(NOW_MS)
    first, second, third = closed(log)
    active = local_segments(log)[-1]
    assert describe(log, active, TRY) is None
    log.truncate_to(8)
    assert describe(log, second, TRY) is None
    assert describe(log, third, TRY) is None
    assert describe(log, first, TRY) is not None
    append(log, batch(4, tag=9))
    log.roll(NOW_MS)
    assert describe(log, second, TRY) is None


def test_the_epochs_of_a_segment_reach_back_where_the_log_starts_within_it():
    log = new_log()
    append(log, batch(4), leader_epoch=1)
    append(log, batch(4), leader_epoch=5)
    log.roll(NOW_MS)
    log.delete_records_before(6)
    [only] = closed(log)
    segment, _ = described(log, only)
    assert segment.leader_epochs == ((5, 0),)


def test_a_segment_whose_epochs_nobody_knows_is_refused():
    log = new_log()
    append(log, batch(4))
    log.roll(NOW_MS)
    log.epochs.forget()
    with pytest.raises(StorageFault, match="leader epochs of its records are not known"):
        describe(log, closed(log)[0], TRY)
