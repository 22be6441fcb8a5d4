"""A pause between the calls of a chain: a generator yields it, as it yields calls."""

from __future__ import annotations

from typing import NamedTuple


class Pause(NamedTuple):
    """Go on after so long; gives the wall clock by then, in milliseconds."""

    pause_ms: int
