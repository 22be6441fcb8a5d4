"""Which partition rows go to."""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from kafka.partitioner.default import murmur2

from anabranch.client.partitioner import partition_for
from anabranch.pipelines.arrow_columns import absent, column_of
from anabranch.pipelines.encoder import encoder
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.partitioner import Chooser, Topics

COUNTS = {"a": 3, "b": 5, "c": 1}


def chooser(**how):
    return Chooser(encoder(), COUNTS.__getitem__, **{"batch_bytes": 100, **how})


def chosen(how, topics, partition, key, sizes):
    """(topic, partition) of each row."""
    lanes = how.lanes_of(topics, partition, key, np.array(sizes, np.int64))
    return [tuple(how.lanes[lane]) for lane in lanes.tolist()]


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"), st.none() | st.binary(max_size=20), st.none() | st.just(0)
        ),
        min_size=1, max_size=30,
    )
)  # fmt: skip
def test_a_row_goes_to_its_own_partition_else_where_java_puts_its_key(rows):
    names = ["c", "a", "b"]
    codes = np.array([names.index(topic) for topic, _, _ in rows])
    own = np.ma.MaskedArray([0] * len(rows), [each is None for _, _, each in rows])
    key = column_of(pa.array([key for _, key, _ in rows], pa.binary()))
    found = chosen(chooser(), Topics(names, codes), own, key, [10] * len(rows))
    for (topic, key_bytes, partition), (to_topic, to_partition) in zip(rows, found):
        assert to_topic == topic
        assert 0 <= to_partition < COUNTS[topic]
        if partition is not None:
            assert to_partition == partition
        elif key_bytes is not None:
            assert to_partition == partition_for(key_bytes, COUNTS[topic])
            assert to_partition == (murmur2(key_bytes) & 0x7FFFFFFF) % COUNTS[topic]


def test_rows_without_a_key_stay_until_a_batch_is_full_and_then_go_on():
    how = chooser()
    found = []
    for _ in range(6):  # a call is what was gathered: what went before counts on
        found += chosen(how, Topics(["a"], None), None, absent(5), [30] * 5)
    runs = [1]
    for (_, before), (_, after) in pairwise(found):
        if before == after:
            runs[-1] += 1
        else:
            assert after == (before + 1) % 3
            runs.append(1)
    assert set(runs[:-1]) <= {3, 4}
    assert len(runs) == 9


def test_rows_without_a_key_are_spread_by_bytes_whatever_their_sizes():
    how = chooser(batch_bytes=1000)
    sizes = np.random.default_rng(1).integers(1, 5000, 3000)
    found = chosen(how, Topics(["a"], None), None, absent(3000), sizes)
    total = np.zeros(3)
    for (_, partition), size in zip(found, sizes.tolist()):
        total[partition] += size
    assert total.max() / total.min() < 1.3


def test_keys_may_be_ignored_and_rows_may_go_in_turn():
    keys = column_of(pa.array([b"same"] * 9))
    together = chosen(chooser(ignores_keys=True), Topics(["a"], None), None, keys, [50] * 9)
    assert len({partition for _, partition in together}) == 3
    turn = [p for _, p in chosen(chooser(in_turn=True), Topics(["a"], None), None, keys, [50] * 9)]
    assert all(after == (before + 1) % 3 for before, after in pairwise(turn))


@pytest.mark.parametrize("number", [-1, 3, 2**31 - 1])
def test_a_partition_that_is_not_there_is_told(number):
    own = np.ma.MaskedArray([0, number], [False, False])
    with pytest.raises(PipelineFault, match=rf"partition {number}, and topic 'a' .* 0 to 2"):
        chooser().lanes_of(Topics(["a"], None), own, absent(2), np.array([1, 1]))
