"""Looking up a time in a batch says what reading all of its records would."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.errors import ProtocolError
from anabranch.core.log.record_walk import first_not_older
from anabranch.core.wire.batch import BATCH_OVERHEAD, patch, patch_log_append_time, read_header
from anabranch.core.wire.compression import Codec
from anabranch.core.wire.records import Record, build_batch, decode_records

NOW_MS = 1_700_000_000_000
TIMES = st.one_of(
    st.integers(NOW_MS - 200, NOW_MS + 200),
    st.integers(NOW_MS - 10**6, NOW_MS + 10**10),
    st.sampled_from([-1, 0, NOW_MS]),
)


def batch_of(times, size_bytes, codec, base_offset, appended_ms):
    records = [
        Record(number, each, b"k" * (number % 3), b"v" * size_bytes, ())
        for number, each in enumerate(times)
    ]
    made = build_batch(records, codec=codec)
    patch(made, 0, base_offset, 5)
    if appended_ms is not None:
        patch_log_append_time(made, 0, len(made), appended_ms)
    return made


def expected(made, timestamp, first_offset):
    for record in decode_records(made):
        if record.timestamp >= timestamp and record.offset >= first_offset:
            return record.timestamp, record.offset
    return None


BATCHES = st.builds(
    batch_of,
    st.lists(TIMES, min_size=1, max_size=20),
    st.sampled_from([0, 1, 50, 70, 9000]),
    st.sampled_from(list(Codec)),
    st.sampled_from([0, 7, 2**40]),
    st.one_of(st.none(), TIMES),
)


@given(BATCHES, TIMES, st.integers(-1, 25))
@settings(max_examples=300, deadline=None)
def test_the_first_record_that_is_not_older(made, timestamp, beyond):
    header = read_header(made)
    first_offset = header.base_offset + beyond
    found = first_not_older(bytes(made), header, timestamp, first_offset)
    assert found == expected(made, timestamp, first_offset)


@given(BATCHES, TIMES, st.data())
@settings(max_examples=300, deadline=None)
def test_damage_is_a_protocol_error_or_makes_another_record(made, timestamp, data):
    """Whatever is found lies within the batch, and can be answered."""
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(BATCH_OVERHEAD, len(made) - 1))
        made[at] = data.draw(st.integers(0, 255))
    header = read_header(made)
    try:
        found = first_not_older(bytes(made), header, timestamp, header.base_offset)
    except ProtocolError:
        return
    if found is not None:
        assert -(2**63) <= found[0] < 2**63
        assert header.base_offset <= found[1] <= header.last_offset
