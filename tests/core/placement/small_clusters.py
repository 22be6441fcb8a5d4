"""Clusters for tests of placement, written shortly, and what is counted about lists."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from itertools import chain

from hypothesis import strategies as st

from anabranch.core.placement.placer import UsableBroker

Row = tuple[int, ...]


def brokers(*racks: str) -> list[UsableBroker]:
    """`"1: 10 11f"` is rack 1 with broker 10 and the fenced broker 11; without a colon: no rack."""
    found = []
    for written in racks:
        rack, colon, words = written.rpartition(":")
        for word in words.split():
            name = rack.strip() if colon else None
            found.append(UsableBroker(int(word.rstrip("f")), name, word.endswith("f")))
    return found


def difference(rows: Iterable[Row], ids: Sequence[int]) -> int:
    """Replicas of the busiest broker less those of the idlest."""
    counts = Counter(chain.from_iterable(rows))
    return max(counts[each] for each in ids) - min(counts[each] for each in ids)


def led_difference(rows: Iterable[Row], ids: Sequence[int]) -> int:
    """The same of first replicas."""
    return difference(((row[0],) for row in rows), ids)


def most_in_a_rack(row: Row, cluster: Sequence[UsableBroker]) -> int:
    """The replicas of a list in the rack that has most of them."""
    rack = {broker.broker_id: broker.rack for broker in cluster}
    return max(Counter(rack[each] for each in row).values())


@st.composite
def clusters(draw: st.DrawFn, *, fenced: bool = True) -> list[UsableBroker]:
    """Up to 12 brokers in up to 4 racks, or without; at least one is not fenced."""
    ids = draw(st.lists(st.integers(0, 200), min_size=1, max_size=12, unique=True))
    labels = draw(st.sampled_from([("a",), ("a", "b"), ("a", "b", "c", "d"), (None,)]))
    found = [
        UsableBroker(each, draw(st.sampled_from(labels)), fenced and draw(st.booleans()))
        for each in ids
    ]
    lit = draw(st.integers(0, len(found) - 1))
    found[lit] = found[lit]._replace(fenced=False)
    return found
