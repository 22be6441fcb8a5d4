"""A timestamp that is accepted is read: by decoding, by time look-ups and by compaction.

Every 64-bit timestamp is one, as in Kafka: sums of a base and a delta wrap as its `long` does."""

from __future__ import annotations

import struct

from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.log.compacting import batches_of, compact
from tests.core.log.support import END, append, new_log, sync

from anabranch.core.log.record_walk import first_not_older
from anabranch.core.wire.batch import TIMESTAMPS_AT, read_header, renew_crc
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records

MOST = (1 << 63) - 1
LEAST = -MOST
"""Kafka and we take no time before that: `message.timestamp.before.max.ms` is at most a long."""
EVER = {"message_timestamp_after_max_ms": MOST, "message_timestamp_before_max_ms": MOST}
NEAR = [-1, 0, 1, 1_700_000_000_000, 1 << 60, 1 << 61, (1 << 61) + 1, 1 << 62, MOST - 1, MOST]
TIMES = st.one_of(
    st.sampled_from([*NEAR, *(-time for time in NEAR), LEAST]), st.integers(LEAST, MOST)
)


def wrapped(number: int) -> int:
    """As Java adds."""
    low = number.to_bytes(16, "little", signed=True)[:8]
    return int.from_bytes(low, "little", signed=True)


def batch_at(times: list[int], codec: Codec = Codec.NONE, *, has_values: bool = True) -> bytearray:
    value = b"v" if has_values else None
    records = [Record(at, time, b"k%d" % at, value) for at, time in enumerate(times)]
    return build_batch(records, codec=codec)


@settings(max_examples=200, deadline=None)
@given(st.lists(TIMES, min_size=1, max_size=4), st.sampled_from(["delete", "compact"]))
@example([(1 << 61) + 1], "delete")
@example([MOST, -5], "compact")
def test_every_64_bit_time_that_is_accepted_is_read_again(times: list[int], policy: str) -> None:
    earliest_ms = max(min(times), 0)
    log = new_log(cleanup_policy=(policy,), **EVER)
    append(log, batch_at(times), now_ms=earliest_ms)
    assert [record.timestamp for record in decode_records(batches_of(log)[0])] == times
    for wanted in (0, 1, *times):
        first = next((at for at, time in enumerate(times) if time >= wanted), None)
        found = log.offset_for_timestamp(max(wanted, 0), upto=END)
        if wanted >= 0 and max(times) >= wanted:
            assert found is not None and first is not None
            assert (found.timestamp, found.offset) == (times[first], first)


@settings(max_examples=100, deadline=None)
@given(st.lists(TIMES, min_size=2, max_size=4), TIMES)
def test_compaction_keeps_every_time(times: list[int], newer: int) -> None:
    """A tombstone stays and has its horizon as the base of the times."""
    log = new_log(cleanup_policy=("compact",), delete_retention_ms=1000, **EVER)
    append(log, batch_at(times, has_values=False), now_ms=0)
    append(log, build_batch([Record(0, newer, b"k0", b"newer")]), now_ms=0)
    log.roll(0)
    sync(log)
    compact(log, 0)
    kept = [record for batch in batches_of(log) for record in decode_records(batch)]
    assert [record.timestamp for record in kept] == [*times[1:], newer]


@settings(max_examples=200, deadline=None)
@given(TIMES, TIMES, TIMES, st.sampled_from([Codec.NONE, Codec.LZ4]))
def test_readers_agree_whatever_a_header_claims(
    base: int, first: int, second: int, codec: Codec
) -> None:
    """A header is taken at its word when a batch is appended, so its base may be any."""
    made = batch_at([first, second], codec)
    struct.pack_into(">qq", made, TIMESTAMPS_AT, base, MOST)
    renew_crc(made, 0, len(made))
    read = decode_records(made)
    expected_times = [base, wrapped(base + wrapped(second - first))]
    assert [record.timestamp for record in read] == expected_times
    for wanted in (LEAST, *NEAR):
        expected = next(
            ((one.timestamp, one.offset) for one in read if one.timestamp >= wanted), None
        )
        assert first_not_older(bytes(made), read_header(made), wanted, 0) == expected
