"""How much of each row's work is done: all of it, or a part of it (`--quick`, `--part`)."""

from __future__ import annotations

QUICK = 10


class Scale:
    """One number for the whole run; `run.py` sets it before anything is measured."""

    divisor = 1


def scaled(amount: int) -> int:
    """`amount` of records, bytes or partitions, or a part of it; one at least."""
    return max(1, amount // Scale.divisor)


def scaled_seconds(seconds: float) -> float:
    """A time to measure for, or a third of it where only a part is measured; a second at least."""
    return seconds if Scale.divisor == 1 else max(1.0, seconds / 3)
