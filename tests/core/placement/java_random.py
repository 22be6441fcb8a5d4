"""The source of chance of Kafka's placement tests: its draws, as data of a generator."""

from __future__ import annotations

from random import Random
from typing import Any


class MockRandom(Random):
    """Draws as java.util.Random bounds them, from the linear generator of Kafka's tests."""

    def __init__(self) -> None:
        super().__init__()
        self.state = 17

    def next_bits(self, bits: int) -> int:
        """The next draw's top bits."""
        self.state = (self.state * 2862933555777941757 + 3037000493) % (1 << 64)
        return self.state >> (64 - bits)

    def randrange(self, bound: int) -> int:  # type: ignore[override]
        """A whole number from 0 up to the bound, which is left out."""
        drawn = self.next_bits(31)
        if bound & (bound - 1) == 0:
            return bound * drawn >> 31
        while drawn - drawn % bound + bound - 1 >= 1 << 31:
            drawn = self.next_bits(31)
        return drawn % bound

    def shuffle(self, items: list[Any]) -> None:  # type: ignore[override]
        """Collections.shuffle: from the end, each with one before it or itself."""
        for size in range(len(items), 1, -1):
            chosen = self.randrange(size)
            items[size - 1], items[chosen] = items[chosen], items[size - 1]
