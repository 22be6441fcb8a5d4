"""JSON that people write, with the line of each entry: for errors that name their place.

What: `items` walks an array and `fields` an object, each with where its values begin; values are
decoded by the standard library. Rule kept: whatever is wrong is an `InputFault` whose text begins
with line and column, or line and field. Not here: what the entries mean (`manual.py`,
`reassignment_file.py`, `plan_file.py`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from anabranch.core.types import TopicPartition

MOST_ID = (1 << 31) - 1
SHOWN_CHARACTERS = 40
BLANKS = " \t\r\n"
DECODER = json.JSONDecoder()
SURROGATE = re.compile("[\ud800-\udfff]")
"""Half a character: JSON can write it, UTF-8 cannot."""


class InputFault(ValueError):
    """What is wrong in a file; the text names the place."""


class Item(NamedTuple):
    """A value of an array, where it begins, and on which line."""

    value: Any
    at: int
    line: int


def items(text: str, at: int, expected: str) -> Iterator[Item]:
    """The values of the array that begins at `at`, blanks left aside. Raises InputFault."""
    at = skip(text, at)
    if text[at : at + 1] != "[":
        raise fault(text, at, f"{expected} is expected")
    at = skip(text, at + 1)
    line, counted = line_of(text, at), at
    while text[at : at + 1] != "]":
        value, end = decode(text, at)
        line, counted = line + text.count("\n", counted, at), at
        yield Item(value, at, line)
        at = _next(text, end, "]", "the array")


def fields(text: str, at: int, expected: str) -> dict[str, int]:
    """Where the values of the object that begins at `at` begin, by name. Raises InputFault."""
    at = skip(text, at)
    if text[at : at + 1] != "{":
        raise fault(text, at, f"{expected} is expected")
    found: dict[str, int] = {}
    at = skip(text, at + 1)
    while text[at : at + 1] != "}":
        name, end = decode(text, at)
        if not isinstance(name, str):
            raise fault(text, at, "a name in quotes is expected")
        colon = skip(text, end)
        if text[colon : colon + 1] != ":":
            raise fault(text, colon, "a colon is expected")
        found[name] = skip(text, colon + 1)
        _, end = decode(text, found[name])
        at = _next(text, end, "}", "the object")
    return found


def check_end(text: str, at: int, what: str) -> None:
    """Raise InputFault when more than blanks follows the value that begins at `at`."""
    _, end = decode(text, skip(text, at))
    rest = skip(text, end)
    if rest != len(text):
        raise fault(text, rest, f"nothing may follow the {what}")


def decode(text: str, at: int) -> tuple[Any, int]:
    """The value at `at`, and where it ends. Raises InputFault."""
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError as problem:
        raise fault(text, problem.pos, f"this is not JSON ({problem.msg})") from None
    except ValueError:
        raise fault(text, at, "a number in what begins here is too long") from None
    except RecursionError:
        raise fault(text, at, "this is not JSON (it is nested too deep)") from None


def _next(text: str, at: int, closing: str, what: str) -> int:
    at = skip(text, at)
    if text[at : at + 1] == ",":
        return skip(text, at + 1)
    if text[at : at + 1] != closing:
        raise fault(text, at, f"a comma or the end of {what} is expected")
    return at


def skip(text: str, at: int) -> int:
    """The first place from `at` on that is not blank."""
    while at < len(text) and text[at] in BLANKS:
        at += 1
    return at


def line_of(text: str, at: int) -> int:
    """The line of a place, from 1."""
    return text.count("\n", 0, at) + 1


def fault(text: str, at: int, what: str) -> InputFault:
    """What is wrong at a place."""
    column = at - (text.rfind("\n", 0, at) + 1) + 1
    return InputFault(f"line {line_of(text, at)}, column {column}: {what}")


def needed(item: Item, names: tuple[str, ...], expected: str) -> dict[str, Any]:
    """The object that an item must be, with these fields. Raises InputFault."""
    if not isinstance(item.value, dict):
        raise InputFault(f"line {item.line}: {expected} is expected")
    for name in names:
        if name not in item.value:
            raise InputFault(f"line {item.line}, {name}: it is missing")
    return item.value


def no_others(item: Item, names: tuple[str, ...]) -> None:
    """Raise InputFault for a field of another name: a slip that would have no effect."""
    for name in item.value:
        if name not in names:
            raise InputFault(f"line {item.line}, {_unknown(name, names)}")


def no_other_fields(text: str, where: Mapping[str, int], names: tuple[str, ...]) -> None:
    """The same for an object of which `fields` gave the places. Raises InputFault."""
    for name, at in where.items():
        if name not in names:
            raise InputFault(f"line {line_of(text, at)}, {_unknown(name, names)}")


def _unknown(name: str, names: tuple[str, ...]) -> str:
    return f"{shown(name)}: no such field; known are {', '.join(names)}"


def whole(item: Item, name: str, least: int = 0) -> int:
    """A field that must be a whole number of 32 bits. Raises InputFault."""
    value = item.value[name]
    if not _is_whole(value, least):
        raise InputFault(
            f"line {item.line}, {name}: a whole number from {least} to {MOST_ID} is expected, not "
            f"{shown(value)}"
        )
    return int(value)


def broker_ids(item: Item, name: str) -> tuple[int, ...]:
    """A field that must be an array of whole numbers of 32 bits. Raises InputFault."""
    value = item.value[name]
    if not isinstance(value, list):
        raise InputFault(f"line {item.line}, {name}: an array of broker ids is expected")
    for place, each in enumerate(value):
        if not _is_whole(each, -MOST_ID - 1):
            raise InputFault(
                f"line {item.line}, {name}[{place}]: a broker id is expected, not {shown(each)}"
            )
    return tuple(value)


def replicas(item: Item, name: str, place: TopicPartition) -> tuple[int, ...]:
    """A field that must name a partition's brokers, at least one, each once. Raises InputFault."""
    row = broker_ids(item, name)
    at = f"line {item.line}, {name}"
    if not row:
        raise InputFault(f"{at}: {place} needs at least one broker")
    known: set[int] = set()
    for position, broker_id in enumerate(row):
        if broker_id < 0:
            raise InputFault(f"{at}[{position}]: {broker_id} is no broker id; ids are 0 or more")
        if broker_id in known:
            raise InputFault(f"{at}[{position}]: broker {broker_id} is named twice for {place}")
        known.add(broker_id)
    return row


def written(value: Any, where: str, what: str = "a text") -> str:
    """A value that must be a text which can be sent. Raises InputFault."""
    if not isinstance(value, str) or not value or SURROGATE.search(value):
        raise InputFault(f"{where}: {what} is expected, not {shown(value)}")
    return value


def shown(value: Any) -> str:
    """A value as it may stand in a sentence."""
    return json.dumps(value)[:SHOWN_CHARACTERS]


def _is_whole(value: Any, least: int) -> bool:
    return type(value) is int and least <= value <= MOST_ID
