"""What a fuzz target is: bytes in, features out, and how its inputs are made and changed."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from random import Random
from typing import Any

Features = set[Any]
AFTER, REFUSED = "after", "refused"
"""First words of features that guide a run but are too many for the corpus of the repository."""


@dataclass(frozen=True, slots=True)
class Target:
    """One thing to fuzz.

    `run` says what the input did beside reaching branches (any hashable values), and raises when a
    rule is broken. `make` makes an input from nothing, `change` one from another and a third to
    cross it with. `share` is its part of all inputs.
    """

    name: str
    run: Callable[[bytes], Features]
    make: Callable[[Random], bytes]
    change: Callable[[Random, bytes, bytes], bytes]
    share: int
    steps: Callable[[bytes], int] = lambda _input: 1
    """How many requests (or the like) an input holds."""
    parts: Callable[[bytes], list[bytes]] = lambda entry: [entry]
    """Pieces that joined give the input, for making it smaller."""
    seeds: Callable[[], Iterable[bytes]] = tuple
    """Inputs to begin with."""
