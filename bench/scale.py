"""How much of each row's work is done: all of it, or a tenth while a row is written (`--quick`)."""

from __future__ import annotations

QUICK = 10


class Scale:
    """One number for the whole run; `run.py` sets it before anything is measured."""

    divisor = 1


def scaled(amount: int) -> int:
    """`amount` of records, bytes or partitions, or a tenth of it in a quick run; one at least."""
    return max(1, amount // Scale.divisor)


def scaled_seconds(seconds: float) -> float:
    """A time to measure for, or a third of it in a quick run; a second at least."""
    return seconds if Scale.divisor == 1 else max(1.0, seconds / 3)
