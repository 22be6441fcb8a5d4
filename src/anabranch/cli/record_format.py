"""The format of `anabranch consume --format`: kcat's letters, so that scripts need not change.

What: `%t` topic, `%p` partition, `%o` offset, `%k` key, `%s` value, `%K` and `%S` their lengths in
bytes (-1 for null), `%T` time in milliseconds, `%h` headers as name=value with commas, `%%` a
percent sign; `\\n`, `\\r`, `\\t`, `\\0`, `\\\\` and `\\xHH` as in C. A null key or value prints
nothing, as in kcat without -Z. Rule kept: an unknown letter is refused before anything is read.
Source: kcat's manual page. Not here: `%R`, which prints bytes that are no text.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import TYPE_CHECKING

import click

if TYPE_CHECKING:
    from anabranch.core.wire.records import Record

Writer = Callable[[str, int, "Record"], str]

ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0", "\\": "\\"}
_PART = re.compile(r"%(.?)|\\(x[0-9a-fA-F]{2}|.)?|[^%\\]+", re.DOTALL)


def _text(value: bytes | None) -> str:
    return "" if value is None else value.decode("utf-8", "backslashreplace")


def _length(value: bytes | None) -> str:
    return str(-1 if value is None else len(value))


LETTERS: dict[str, Writer] = {
    "t": lambda topic, _partition, _record: topic,
    "p": lambda _topic, partition, _record: str(partition),
    "o": lambda _topic, _partition, record: str(record.offset),
    "k": lambda _topic, _partition, record: _text(record.key),
    "s": lambda _topic, _partition, record: _text(record.value),
    "K": lambda _topic, _partition, record: _length(record.key),
    "S": lambda _topic, _partition, record: _length(record.value),
    "T": lambda _topic, _partition, record: str(record.timestamp),
    "h": lambda _topic, _partition, record: ",".join(
        f"{name}={_text(value)}" for name, value in record.headers
    ),
    "%": lambda _topic, _partition, _record: "%",
}


class RecordFormat:
    """One format, read once."""

    def __init__(self, text: str) -> None:
        self._parts = [_part(each) for each in _PART.finditer(text)]

    def line(self, topic: str, partition: int, record: Record) -> str:
        """One record; what ends it is part of the format."""
        return "".join(
            part if isinstance(part, str) else part(topic, partition, record)
            for part in self._parts
        )


def _part(found: re.Match[str]) -> str | Writer:
    whole, letter, escape = found[0], found[1], found[2]
    if letter is not None:
        if letter not in LETTERS:
            known = " ".join(f"%{each}" for each in LETTERS)
            raise click.UsageError(f"--format: %{letter} is not known; known are {known}.")
        return LETTERS[letter]
    if not whole.startswith("\\"):
        return whole
    if escape and escape[0] == "x" and len(escape) == 3:
        return chr(int(escape[1:], 16))
    if escape not in ESCAPES:
        raise click.UsageError(
            f"--format: {whole} is not known; known are \\n \\r \\t \\0 \\\\ \\xHH."
        )
    return ESCAPES[escape]
