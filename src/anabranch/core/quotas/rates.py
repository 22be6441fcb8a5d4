"""How much was used of late: Kafka's sampled rate, and its token bucket.

What: `Rate` counts an amount in samples of a window; a limit that is exceeded tells how long
nothing may be used until the rate is at the limit again. `TokenBucket` (KIP-599) fills at the
limit's rate, and holds at most what the limit allows in all samples: a burst may overdraw it once.
Source: Kafka's Rate, SampledStat, TokenBucket and QuotaUtils. Times are milliseconds of a clock
that never goes back. Not here: whose rate it is (`client_quotas.py`).
"""

from __future__ import annotations

from collections import deque
from typing import NamedTuple

MOST_REST_MS = 2**31 - 1
"""What an answer can say."""

SECOND_MS = 1000


class Window(NamedTuple):
    """`quota.window.num` samples of `quota.window.size.seconds`."""

    samples: int
    sample_ms: int

    @property
    def full_ms(self) -> int:
        """What a rate looks back at, at least: all samples but the newest, if there are others."""
        return max(1, self.samples - 1) * self.sample_ms


class _Sample:
    __slots__ = ("amount", "begin_ms", "last_ms")

    def __init__(self, now_ms: int) -> None:
        self.begin_ms = self.last_ms = now_ms
        self.amount = 0.0


class Rate:
    """Amounts in samples, the oldest first."""

    __slots__ = ("_samples",)

    def __init__(self) -> None:
        self._samples: deque[_Sample] = deque()

    def record(self, amount: float, now_ms: int, window: Window) -> None:
        """Count an amount; one below 0 takes back what was counted."""
        samples = self._samples
        if not samples or now_ms - samples[-1].begin_ms >= window.sample_ms:
            samples.append(_Sample(now_ms))
            if len(samples) > window.samples + 1:
                samples.popleft()
        samples[-1].amount += amount
        samples[-1].last_ms = now_ms

    def measure(self, now_ms: int, window: Window) -> tuple[float, int]:
        """The amount a second, and over how many milliseconds it was taken."""
        samples = self._samples
        oldest_ms = now_ms - window.samples * window.sample_ms
        while samples and samples[0].last_ms <= oldest_ms:
            samples.popleft()
        elapsed_ms = now_ms - samples[0].begin_ms if samples else 0
        missing = window.full_ms // window.sample_ms - elapsed_ms // window.sample_ms
        elapsed_ms += max(0, missing) * window.sample_ms
        return self.total * SECOND_MS / elapsed_ms, elapsed_ms

    @property
    def total(self) -> float:
        """All that is counted."""
        return sum(each.amount for each in self._samples)

    def rest_ms(self, limit: float, now_ms: int, window: Window) -> int:
        """How long nothing may be used until the rate is at the limit; 0 if it is not above."""
        rate, elapsed_ms = self.measure(now_ms, window)
        return rounded_ms((rate - limit) / limit * elapsed_ms) if rate > limit else 0


class TokenBucket:
    """Tokens that come at the limit's rate."""

    __slots__ = ("_filled_ms", "tokens")

    def __init__(self) -> None:
        self.tokens = float("inf")
        """Full at first, whatever the limit."""
        self._filled_ms = 0

    def rest_ms(self, limit: float, now_ms: int, window: Window) -> int:
        """How long nothing may be taken; 0 while tokens are not overdrawn."""
        self._fill(limit, now_ms, window)
        return rounded_ms(-self.tokens / limit * SECOND_MS) if self.tokens < 0 else 0

    def take(self, amount: float, limit: float, now_ms: int, window: Window) -> None:
        """Take tokens, also more than there are."""
        self._fill(limit, now_ms, window)
        self.tokens -= amount

    def _fill(self, limit: float, now_ms: int, window: Window) -> None:
        most = limit * window.samples * window.sample_ms / SECOND_MS
        elapsed_ms = now_ms - self._filled_ms
        self.tokens = min(most, self.tokens + limit * elapsed_ms / SECOND_MS)
        self._filled_ms = now_ms


def rounded_ms(milliseconds: float) -> int:
    """Whole milliseconds, half of one up, at most what an answer can say."""
    return int(min(MOST_REST_MS, milliseconds + 0.5))
