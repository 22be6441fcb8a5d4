"""A replica assignment that a person wrote: the file, and every way in which it can be wrong.

What: `read_assignment` takes the text of a file, a JSON array of `{"id": 0, "replicas": [0, 1]}`,
and gives one list of brokers a partition; the first of each is the preferred leader. Goals: that
exactly what was written is what happens. Constraints and guarantees: ids are 0, 1, 2 … in order;
as many replicas in each; distinct, none negative. Each criterion has its own error, they are tried
in the order of the criteria, partition by partition, and each names line and field. Other keys in
an entry are refused.

Worked example: [{"id": 0, "replicas": [0, 1, 2]}, {"id": 1, "replicas": [1, 2, 0]}] makes two
partitions led by brokers 0 and 1. Trade-off: nothing is balanced for you, and a topic that grows
needs a list for each new partition.

Source: Fluvio's manual replica assignment. Not here: whether the brokers exist,
which only the controller knows (`core/controller/topics/assignments.py`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from anabranch.core.placement.json_places import (
    InputFault,
    broker_ids,
    check_end,
    items,
    needed,
    no_others,
    whole,
)

FIELDS = ("id", "replicas")
EXPECTED = '{"id": …, "replicas": […]}'


class Entry(NamedTuple):
    """One partition as it was written."""

    id: int
    replicas: tuple[int, ...]
    line: int


def read_assignment(text: str) -> list[tuple[int, ...]]:
    """The brokers of each partition. Raises InputFault."""
    entries = list(_entries(text))
    if not entries:
        raise InputFault("no partitions are assigned: the array is empty")
    for position, entry in enumerate(entries):
        _check(entries, position, entry)
    return [entry.replicas for entry in entries]


def _check(entries: Sequence[Entry], position: int, entry: Entry) -> None:
    """The criteria, in their order."""
    at = f"line {entry.line}"
    first = entries[0]
    if position == 0 and entry.id != 0:
        raise InputFault(f"{at}, id: ids must start with 0, not with {entry.id}")
    if not first.replicas:
        raise InputFault(f"line {first.line}, replicas: at least one broker is needed")
    if entry.id != position:
        raise InputFault(
            f"{at}, id: ids must follow each other without gaps: {position} was due, "
            f"{entry.id} stands there"
        )
    if len(entry.replicas) != len(first.replicas):
        raise InputFault(
            f"{at}, replicas: every partition must have as many replicas as the first, "
            f"{len(first.replicas)}; partition {entry.id} has {len(entry.replicas)}"
        )
    known: set[int] = set()
    for place, broker_id in enumerate(entry.replicas):
        if broker_id in known:
            raise InputFault(
                f"{at}, replicas[{place}]: broker {broker_id} is named twice in partition "
                f"{entry.id}"
            )
        known.add(broker_id)
    for place, broker_id in enumerate(entry.replicas):
        if broker_id < 0:
            raise InputFault(
                f"{at}, replicas[{place}]: {broker_id} is no broker id in partition {entry.id}: "
                "ids are 0 or more"
            )


def _entries(text: str) -> Iterator[Entry]:
    """The array's entries with the lines where they begin."""
    for item in items(text, 0, f"an array of {EXPECTED}"):
        needed(item, FIELDS, EXPECTED)
        no_others(item, FIELDS)
        yield Entry(whole(item, "id"), broker_ids(item, "replicas"), item.line)
    check_end(text, 0, "array")
