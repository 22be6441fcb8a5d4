"""The shell around `groups.lags` of core: rounds when metrics are asked for, and who is asked.

What: `refreshed` makes a round if the newest one is older than ROUND_SECONDS, and waits a moment
for it; `newest` is what the last one found. Rules kept: nobody asks, no round; a round takes the
loop in slices, and leaders that do not answer within ASK_MS cost their lags alone.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from typing import Any

from anabranch.core.api.context import Broker
from anabranch.core.coordination.groups.lags import GroupLags, LagRound
from anabranch.core.wire.messages.list_offsets import ListOffsetsRequest, ListOffsetsResponse
from anabranch.server.own_faults import tell_unexpected
from anabranch.server.peers import PeerConnections, Post

LANE = "lags"
"""The purpose of its connections: what it asks holds up nobody else's answers."""
ROUND_SECONDS = 5.0
"""How old lags may be: several who scrape share a round."""
ASK_MS = 3_000
WAIT_SECONDS = 1.0
"""How long a page waits for a round: a leader that hangs must not cost who monitors."""
SLICE_S = 0.005
"""What a round may take from the loop before others have their turn."""


class GroupLagShell:
    """The lags of the groups that a broker coordinates. Calls are for its loop."""

    def __init__(self, broker: Broker, connections: PeerConnections) -> None:
        self.newest = GroupLags()
        self._broker = broker
        self._connections = connections
        self._made_at: float | None = None
        self._round: asyncio.Task[None] | None = None

    async def refreshed(self) -> None:
        """Return once `newest` is at most ROUND_SECONDS old, or a page should not wait longer; the
        round then goes on."""
        now = time.monotonic()
        if self._made_at is not None and now - self._made_at < ROUND_SECONDS:
            return
        if self._round is None or self._round.done():
            self._round = asyncio.get_running_loop().create_task(self._make())
        await asyncio.wait((self._round,), timeout=WAIT_SECONDS)

    def stop(self) -> None:
        """Make no more rounds."""
        if self._round is not None:
            self._round.cancel()

    async def _make(self) -> None:
        try:
            looked = LagRound(self._broker.groups)
            await _sliced(looked.walk())
            await asyncio.gather(*(self._ask(looked, *each) for each in looked.asks()))
            self.newest = await asyncio.to_thread(looked.result)
            self._made_at = time.monotonic()
        except Exception as fault:  # the page has all else
            tell_unexpected(fault, "measuring the lag of groups")

    async def _ask(self, looked: LagRound, leader: int, request: ListOffsetsRequest) -> None:
        answer: asyncio.Future[Any] = asyncio.get_running_loop().create_future()

        def answered(response: Any) -> None:
            if not answer.done():
                answer.set_result(response)

        self._connections.post(leader, LANE, Post(request, None, answered, ASK_MS))
        try:
            response = await asyncio.wait_for(answer, ASK_MS / 1000)
        except TimeoutError:
            return
        if isinstance(response, ListOffsetsResponse):
            looked.answered(response)


async def _sliced(steps: Iterator[None]) -> None:
    """Go through steps in slices."""
    until = time.perf_counter() + SLICE_S
    for _ in steps:
        if time.perf_counter() >= until:
            await asyncio.sleep(0)
            until = time.perf_counter() + SLICE_S
