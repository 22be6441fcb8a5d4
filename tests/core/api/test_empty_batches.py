"""An answer to a consumer holds a record as long as one follows; a follower gets what is there."""

from __future__ import annotations

import itertools

import pytest
from tests.core.api.in_memory_node import InMemoryNode
from tests.core.api.test_p01_fetch import append, fetch, only, part

from anabranch.core.api.empty_batches import MOST_READS_PAST
from anabranch.core.log.batch_filter import rewritten
from anabranch.core.wire.batch import crc_is_valid, walk
from anabranch.core.wire.records import Record, build_batch


def append_empty(node, roll):
    """What compaction leaves of a batch, in a segment of its own or not."""
    log = node.replica().log
    if roll:
        log.roll(node.now_ms)
    whole = build_batch([Record(log.end_offset, 1, None, b"x")], base_offset=log.end_offset)
    [(_, header)] = walk(whole)
    empty = rewritten(header._replace(leader_epoch=0), b"", [], None)
    log.append_as_follower(empty, now_ms=node.now_ms)


def read(node, offset, **how):
    """(offset, whether it has records) of each batch in the answer."""
    answer = only(node.send(fetch(part(offset=offset), **how), 12))
    assert not answer.error_code
    return [(header.base_offset, header.record_count > 0) for _, header in walk(answer.records)]


@pytest.mark.parametrize("kinds", list(itertools.product(["full", "empty", "rolled"], repeat=4)))
def test_a_consumer_is_given_a_record_while_one_follows_and_passes_over_none(kinds):
    node = InMemoryNode()
    node.topic(configs={"cleanup.policy": "compact"})
    for kind in kinds:
        if kind == "full":
            append(node)
        else:
            append_empty(node, roll=kind == "rolled")
    node.replica().advance()
    full = [offset for offset, kind in enumerate(kinds) if kind == "full"]
    for offset in range(len(kinds)):
        given = read(node, offset)
        left = [each for each in full if each >= offset]
        assert any(has_records for _, has_records in given) == bool(left)
        assert not left or left[0] in dict(given)
        assert given[-1][0] >= offset, "it goes on"
        assert read(node, offset, replica_id=1)[0][0] == offset, "a follower copies all of it"


def test_one_request_looks_at_so_many_segments_and_goes_on_from_there():
    node = InMemoryNode()
    node.topic()
    for _ in range(2 * MOST_READS_PAST):
        append_empty(node, roll=True)
    append(node)
    node.replica().advance()
    first = read(node, 0)
    assert not first[-1][1]
    assert first[-1][0] >= MOST_READS_PAST
    assert read(node, first[-1][0] + 1)[-1][1]


@pytest.mark.parametrize("at", [26, 60])
def test_a_batch_whose_header_rotted_is_given_as_it_is(at):
    """A bit of the last offset delta of an empty batch, or of the count of one with a record."""
    node = InMemoryNode()
    node.topic()
    append_empty(node, roll=False) if at == 26 else append(node)
    node.replica().log.roll(node.now_ms)
    append(node)
    append(node)
    node.replica().advance()
    segment = node.replica().log.segments[0]
    [rotten] = segment.file.read(0, segment.size)[at : at + 1]
    segment.file.write(at, [bytes([rotten ^ 1])])
    answer = only(node.send(fetch(part(offset=0)), 12))
    position, header = next(walk(answer.records))
    assert header.base_offset == 0, "nothing is passed over"
    assert not crc_is_valid(answer.records, position, header.size_bytes)
