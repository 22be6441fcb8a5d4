"""What a row of the table is: a tool and a scenario, as a function of one peer.

The function returns what it observed, with nothing in it that may differ between two correct
servers (`normal.py` takes out addresses, ids and times). It raises `Failed` where the tool or the
server did not do what was asked. A row passes when it returns from both and the values are equal.

`owed` names the feature that Anabranch lacks so far: such a row may fail at Anabranch, and must not
pass, or the mark is stale.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

OWED = frozenset({"quotas"})
"""Features that rows of the table wait for."""


class Failed(Exception):
    """The tool or the server did not do what the scenario asks; the sentence says what."""


@dataclass(frozen=True)
class Row:
    """One line of the table; `what` is the first sentence of the function's docstring."""

    name: str
    what: str
    observe: Callable[[Any], Any]
    owed: str | None = None
    prepare: Callable[[], None] | None = None
    """Fetches what the row's tool needs, once for all rows that name the same function."""


@dataclass
class Seen:
    """What one peer gave: a value, or why not; `said` are sentences for people, compared softly."""

    value: Any = None
    failure: str | None = None
    said: list[str] = field(default_factory=list)
    seconds: float = 0.0


ROWS: dict[str, Row] = {}
"""Every row by name, in the order in which the families register them."""


def row(
    name: str, *, owed: str | None = None, prepare: Callable[[], None] | None = None
) -> Callable[[Callable[[Any], Any]], Callable[[Any], Any]]:
    """Register the function as a row called `name`, which is unique."""
    if name in ROWS:
        raise ValueError(f"two rows are called {name}")
    if owed is not None and owed not in OWED:
        raise ValueError(f"{name}: owed={owed!r} is no feature that a row waits for")

    def register(observe: Callable[[Any], Any]) -> Callable[[Any], Any]:
        what = inspect.getdoc(observe)
        if not what:
            raise ValueError(f"{name}: the function's docstring is the row's sentence")
        ROWS[name] = Row(name, " ".join(what.split("\n\n")[0].split()), observe, owed, prepare)
        return observe

    return register


def chosen(names: list[str]) -> list[Row]:
    """The rows that are meant: all of them, or those named, or whose name begins so (`topics-`)."""
    if not names:
        return list(ROWS.values())
    for name in names:
        if not any(known.startswith(name) for known in ROWS):
            raise SystemExit(f"no row is called {name}, nor begins so; --list names them all")
    return [each for name, each in ROWS.items() if any(name.startswith(one) for one in names)]
