"""Sources of chance that draw as java.util.Random does: its own, and that of Kafka's tests."""

from __future__ import annotations

from abc import abstractmethod
from random import Random
from typing import Any


class JavaDraws(Random):
    """What java.util.Random and Collections.shuffle make of the bits of a generator."""

    def __init__(self, state: int) -> None:
        super().__init__()
        self.state = state

    @abstractmethod
    def next_bits(self, bits: int) -> int:
        """The next draw's top bits."""

    def randrange(self, bound: int) -> int:  # type: ignore[override]
        """nextInt(bound): a whole number from 0 up to the bound, which is left out."""
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


class JavaRandom(JavaDraws):
    """java.util.Random: 48 bits, of which the upper ones are given."""

    MULTIPLIER, INCREMENT, MASK = 0x5DEECE66D, 0xB, (1 << 48) - 1

    def __init__(self, seed: int) -> None:
        super().__init__((seed ^ self.MULTIPLIER) & self.MASK)

    def next_bits(self, bits: int) -> int:
        """The next draw's top bits."""
        self.state = (self.state * self.MULTIPLIER + self.INCREMENT) & self.MASK
        return self.state >> (48 - bits)


class MockRandom(JavaDraws):
    """The linear generator of Kafka's own placement tests, as data."""

    def __init__(self) -> None:
        super().__init__(17)

    def next_bits(self, bits: int) -> int:
        """The next draw's top bits."""
        self.state = (self.state * 2862933555777941757 + 3037000493) % (1 << 64)
        return self.state >> (64 - bits)
