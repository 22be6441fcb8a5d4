"""How a check says that something is wrong.

A violation has an id (M1, L6, lost-write, liveness ...), a sentence, and details; it prints on one
line. Not here: what is wrong.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any


class Violation(Exception):
    """An invariant does not hold."""

    def __init__(self, id: str, sentence: str, details: Mapping[str, Any]) -> None:
        super().__init__(id, sentence, details)
        self.id = id
        self.sentence = sentence
        self.details = dict(details)

    def __str__(self) -> str:
        told = " ".join(f"{key}={_text(value)}" for key, value in self.details.items())
        line = f"{self.id}: {self.sentence}" + (f" ({told})" if told else "")
        return " ".join(line.split())


def _text(value: Any) -> str:
    if isinstance(value, (set, frozenset)):
        value = sorted(value)
    if isinstance(value, (list, tuple)) and not hasattr(value, "_fields"):
        return "[" + ",".join(map(str, value)) + "]"
    return str(value)
