"""A batch that a leader or a follower accepts is read again, also by a process that recovers the log.

Whatever stands in its header: the checksum is right, and what it claims is at a limit of the format.
"""

from __future__ import annotations

import struct
from itertools import pairwise

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from tests.core.log.support import append, batch, new_log, read_batches, reopen

from anabranch.core.errors import ApiError
from anabranch.core.wire.batch import ATTRIBUTES_AT, read_header, renew_crc

BITS = {16: "h", 32: "i", 64: "q"}
HEADER = [(16, "attributes"), (32, "delta"), (64, "base"), (64, "max"), (64, "producer"),
          (16, "epoch"), (32, "sequence"), (32, "count")]  # fmt: skip
LAYOUT = ">" + "".join(BITS[bits] for bits, _ in HEADER)
ROOMS = {"segment_bytes": 2_000, "index_interval_bytes": 100}


def edge(bits: int) -> st.SearchStrategy[int]:
    """Numbers at the limits of a field, and small ones."""
    most = (1 << (bits - 1)) - 1
    return st.sampled_from([-most - 1, -2, -1, 0, 1, 2, 3, 7, 1 << (bits - 2), most - 1, most])


def claiming(changes: dict[int, int], count: int, base_offset: int) -> bytearray:
    """A batch of so many records, with these fields of its header changed."""
    made = batch(count)
    fields = list(struct.unpack_from(LAYOUT, made, ATTRIBUTES_AT))
    for index, value in changes.items():
        fields[index] = value
    struct.pack_into(LAYOUT, made, ATTRIBUTES_AT, *fields)
    struct.pack_into(">q", made, 0, base_offset)
    renew_crc(made, 0, len(made))
    return made


CHANGES = st.dictionaries(st.integers(0, len(HEADER) - 1), st.none(), max_size=4).flatmap(
    lambda keys: st.fixed_dictionaries({key: edge(HEADER[key][0]) for key in keys})
)


@pytest.mark.parametrize("follows", [False, True])
@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(CHANGES, st.integers(1, 3), st.integers(0, 5)), max_size=6))
@example([({}, 1, 0), ({1: 2**31 - 2}, 1, 2)])
@example([({1: 2**31 - 1}, 1, 1)])
def test_what_is_accepted_is_read_again(follows, drawn):
    """Offsets may be left out before a batch, where a leader compacts."""
    log, offset, accepted = new_log(**ROOMS), 0, []
    for changes, count, gap in drawn:
        made = claiming(changes, count, log.end_offset + gap if follows else 0)
        try:
            if follows:
                log.append_as_follower(bytearray(made), now_ms=0)
            else:
                append(log, bytearray(made))
        except ApiError:
            continue
        if log.end_offset > offset:  # else it was known already
            accepted.append(bytes(made[ATTRIBUTES_AT:]))
        offset = log.end_offset
    if log.end_offset < 1 << 62:
        last = claiming({}, 1, log.end_offset if follows else 0)
        if follows:
            log.append_as_follower(bytearray(last), now_ms=0)
        else:
            append(log, bytearray(last))
        accepted.append(bytes(last[ATTRIBUTES_AT:]))
    for _ in range(2):
        found = read_batches(log)
        assert [each[ATTRIBUTES_AT:] for each in found] == accepted
        headers = list(map(read_header, found))
        assert all(one.next_offset <= two.base_offset for one, two in pairwise(headers))
        end = log.end_offset
        log = reopen(log)
        assert (log.end_offset, log.recovery.cut_bytes) == (end, 0)
