"""Managed placement: one replica in each rack, on who carries least, leaders even."""

from __future__ import annotations

from collections import Counter
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.errors import ClientFault
from anabranch.core.placement.managed import UNKNOWN_RACK, managed, rack_name
from anabranch.core.placement.placer import Ask, Loads, UsableBroker

BROKERS = st.lists(
    st.tuples(st.sampled_from([None, "", "a", "b", "c"]), st.booleans()), min_size=1, max_size=9
)
COUNTS = st.dictionaries(st.integers(1, 9), st.integers(0, 5))


@given(BROKERS, st.integers(1, 12), COUNTS, COUNTS)
def test_every_rack_with_a_broker_has_one_replica_of_each_partition(described, count, have, led):
    brokers = [UsableBroker(i, rack, dead) for i, (rack, dead) in enumerate(described, 1)]
    racks = {each.broker_id: rack_name(each.rack) for each in brokers}
    open_racks = {rack_name(each.rack) for each in brokers if not each.fenced}
    ask = Ask(count, 0, loads=Loads(have, led))
    if not open_racks:
        with pytest.raises(ClientFault, match="No broker can get replicas"):
            managed(brokers, ask, Random(1))
        return
    placement = managed(brokers, ask, Random(1))
    assert len(placement.rows) == count
    carried = Counter(have)
    for row in placement.rows:
        assert sorted(racks[each] for each in row) == sorted(open_racks)
        for each in row:
            rivals = [b for b in brokers if racks[b.broker_id] == racks[each] and not b.fenced]
            assert carried[each] == min(carried[b.broker_id] for b in rivals)
        carried.update(row)
    closed = set(racks.values()) - open_racks
    assert sorted(remark.split()[1] for remark in placement.remarks) == sorted(closed)


def test_leaders_are_spread_over_racks_and_a_broker_without_a_rack_is_of_rack_unknown():
    brokers = [UsableBroker(1, "a", False), UsableBroker(2, "b", False), UsableBroker(3, None, False),
               UsableBroker(4, "", False)]  # fmt: skip
    rows = managed(brokers, Ask(12, 0), Random(1)).rows
    assert rack_name(None) == rack_name("") == UNKNOWN_RACK == "unknown"
    assert Counter(row[0] for row in rows) == {1: 3, 2: 3, 3: 3, 4: 3}
    assert Counter(len(row) for row in rows) == {3: 12}
