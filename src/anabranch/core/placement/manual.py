"""A replica assignment that a person wrote: the file, and every way in which it can be wrong.

What: `read_assignment` takes the text of a file, a JSON array of `{"id": 0, "replicas": [0, 1]}`,
and gives one list of brokers a partition; the first of each is the preferred leader. Goals: that
exactly what was written is what happens. Constraints and guarantees: ids are 0, 1, 2 … in order;
as many replicas in each; distinct, none negative. Each criterion has its own error, they are tried
in the order of the criteria, partition by partition, and each names line and field. Other keys in
an entry are ignored.

Worked example: [{"id": 0, "replicas": [0, 1, 2]}, {"id": 1, "replicas": [1, 2, 0]}] makes two
partitions led by brokers 0 and 1. Trade-off: nothing is balanced for you, and a topic that grows
needs a list for each new partition.

Source: Fluvio's manual replica assignment (document 000). Not here: whether the brokers exist,
which only the controller knows (`core/controller/assignments.py`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

MOST_ID = (1 << 31) - 1
BLANKS = " \t\r\n"
DECODER = json.JSONDecoder()


class AssignmentFault(ValueError):
    """What is wrong in an assignment file; the text names the line and the field."""


class Entry(NamedTuple):
    """One partition as it was written."""

    id: int
    replicas: tuple[int, ...]
    line: int


def read_assignment(text: str) -> list[tuple[int, ...]]:
    """The brokers of each partition. Raises AssignmentFault."""
    entries = list(_entries(text))
    if not entries:
        raise AssignmentFault("no partitions are assigned: the array is empty")
    for position, entry in enumerate(entries):
        _check(entries, position, entry)
    return [entry.replicas for entry in entries]


def _check(entries: Sequence[Entry], position: int, entry: Entry) -> None:
    """The criteria, in their order."""
    at = f"line {entry.line}"
    first = entries[0]
    if position == 0 and entry.id != 0:
        raise AssignmentFault(f"{at}, id: ids must start with 0, not with {entry.id}")
    if not first.replicas:
        raise AssignmentFault(f"line {first.line}, replicas: at least one broker is needed")
    if entry.id != position:
        raise AssignmentFault(
            f"{at}, id: ids must follow each other without gaps: {position} was due, "
            f"{entry.id} stands there"
        )
    if len(entry.replicas) != len(first.replicas):
        raise AssignmentFault(
            f"{at}, replicas: every partition must have as many replicas as the first, "
            f"{len(first.replicas)}; partition {entry.id} has {len(entry.replicas)}"
        )
    for place, broker_id in enumerate(entry.replicas):
        if broker_id in entry.replicas[:place]:
            raise AssignmentFault(
                f"{at}, replicas[{place}]: broker {broker_id} is named twice in partition "
                f"{entry.id}"
            )
    for place, broker_id in enumerate(entry.replicas):
        if broker_id < 0:
            raise AssignmentFault(
                f"{at}, replicas[{place}]: {broker_id} is no broker id in partition {entry.id}: "
                "ids are 0 or more"
            )


def _entries(text: str) -> Iterator[Entry]:
    """The array's entries with the lines where they begin."""
    at = _skip(text, 0)
    if text[at : at + 1] != "[":
        raise _fault(text, at, 'an array of {"id": …, "replicas": […]} is expected')
    at = _skip(text, at + 1)
    while text[at : at + 1] != "]":
        try:
            found, end = DECODER.raw_decode(text, at)
        except (json.JSONDecodeError, RecursionError) as problem:
            where = problem.pos if isinstance(problem, json.JSONDecodeError) else at
            raise _fault(text, where, f"this is not JSON ({_said(problem)})") from None
        yield _entry(text, at, found)
        at = _skip(text, end)
        if text[at : at + 1] == ",":
            at = _skip(text, at + 1)
        elif text[at : at + 1] != "]":
            raise _fault(text, at, "a comma or the end of the array is expected")
    rest = _skip(text, at + 1)
    if rest != len(text):
        raise _fault(text, rest, "nothing may follow the array")


def _entry(text: str, at: int, found: Any) -> Entry:
    line = text.count("\n", 0, at) + 1
    if not isinstance(found, dict):
        raise AssignmentFault(f'line {line}: {{"id": …, "replicas": […]}} is expected')
    for field in ("id", "replicas"):
        if field not in found:
            raise AssignmentFault(f"line {line}, {field}: it is missing")
    if not _is_whole(found["id"], 0):
        raise AssignmentFault(
            f"line {line}, id: a whole number from 0 to {MOST_ID} is expected, not "
            f"{json.dumps(found['id'])[:40]}"
        )
    replicas = found["replicas"]
    if not isinstance(replicas, list):
        raise AssignmentFault(f"line {line}, replicas: an array of broker ids is expected")
    for place, each in enumerate(replicas):
        if not _is_whole(each, -MOST_ID - 1):
            raise AssignmentFault(
                f"line {line}, replicas[{place}]: a broker id is expected, not "
                f"{json.dumps(each)[:40]}"
            )
    return Entry(found["id"], tuple(replicas), line)


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= MOST_ID


def _skip(text: str, at: int) -> int:
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def _said(problem: Exception) -> str:
    return problem.msg if isinstance(problem, json.JSONDecodeError) else "it is nested too deep"


def _fault(text: str, at: int, what: str) -> AssignmentFault:
    line = text.count("\n", 0, at) + 1
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return AssignmentFault(f"line {line}, column {column}: {what}")
