"""Whether any transaction is still open when those who began them have ended.

What: after the longest timeout and a round of the search for late transactions, no partition may
hold one open; `find-hanging` must find none, and no coordinator may have one under way. Not here:
what readers were shown (`check_transactions.py`).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Sequence

from anabranch.client import partition_producers, transactions
from anabranch.client.cluster import Cluster
from anabranch.core.coordination.groups.offsets_topic import OFFSETS_TOPIC
from anabranch.core.errors import ApiError
from chaos import secure
from chaos.transfers import TIMEOUT_MS

WAIT_SECONDS = TIMEOUT_MS / 1000 + 60
"""A timeout, a round of the search, and a machine that others use, too."""
UNDER_WAY = ("Ongoing", "PrepareCommit", "PrepareAbort")
LOOK_SECONDS = 1.0


def left_open(bootstrap: str, topics: Iterable[str]) -> list[str]:
    """A sentence for each transaction that is open when none may be any more."""
    return asyncio.run(_left_open(bootstrap, (*topics, OFFSETS_TOPIC)))


async def _left_open(bootstrap: str, topics: Sequence[str]) -> list[str]:
    until = time.monotonic() + WAIT_SECONDS
    while True:
        try:
            async with Cluster(bootstrap, deadline_seconds=10.0, security=secure.own()) as cluster:
                found = await _open(cluster, topics)
        except (ApiError, OSError) as fault:
            found = [f"it cannot be asked: {fault}"]
        if not found or time.monotonic() > until:
            return found
        await asyncio.sleep(LOOK_SECONDS)


async def _open(cluster: Cluster, topics: Sequence[str]) -> list[str]:
    places = [(topic, index) for topic in topics for index in await cluster.leaders(topic)]
    now_ms = time.time_ns() // 1_000_000
    hanging = await transactions.find_hanging(cluster, places, now_ms=now_ms, longest_ms=0)
    under_way = await transactions.list_transactions(cluster, states=UNDER_WAY)
    producers = await partition_producers.producers(cluster, places)
    return [
        *(f"hanging: {each}" for each in hanging),
        *(f"under way: {each}" for each in under_way.ids),
        *(f"broker {number} cannot tell: {each}" for number, each in under_way.faults.items()),
        *(f"open: {each}" for each in producers if each.start_offset >= 0),
    ]
