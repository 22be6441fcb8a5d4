"""How much of what is there the next batch of a stream takes.

`maxOffsetsPerTrigger` is shared out among partitions by what each has waiting, as Spark's Kafka
source does. `minOffsetsPerTrigger` lets a trigger pass without a batch until so much is there or
`maxTriggerDelay` is over since the last batch; the first batch waits for nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import ceil

from anabranch.pipelines.offset_ranges import Offsets


def share_out(begins: Offsets, ends: Offsets, most: int) -> Offsets:
    """Ends of a batch of about `most` offsets; every partition with offsets waiting gets some."""
    waiting = {place: end - begins[place] for place, end in ends.items()}
    total = sum(size for size in waiting.values() if size > 0)
    if total <= most:
        return dict(ends)
    taken = {}
    for place, size in waiting.items():
        share = most * size / total
        part = ceil(share) if share < 1 else int(share)
        taken[place] = begins[place] + min(max(part, 0), size) if size > 0 else ends[place]
    return taken


@dataclass
class Patience:
    """When a batch may be smaller than the least that is asked for."""

    max_delay_ms: int
    last_batch_ms: int | None = None

    def lets_pass(self, waiting: int, least: int, now_ms: int) -> bool:
        """Whether this trigger passes without a batch; a batch is remembered."""
        is_due = self.last_batch_ms is None or now_ms - self.last_batch_ms > self.max_delay_ms
        if waiting < least and not is_due:
            return True
        self.last_batch_ms = now_ms
        return False
