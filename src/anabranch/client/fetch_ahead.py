"""Several fetches of one partition in flight: where the next ones begin is guessed.

Why: a fetch begins where the one before ended, which is known when it has arrived; one at a time, a
partition gives one part for each round trip. What: `FetchAhead.next_answer` gives the answer for
the offset that comes next, and keeps up to `in_flight` fetches under way at offsets that are
guessed from how many offsets the last full part had. A guess that falls short brings batches twice,
which `after` cuts off; one that goes too far leaves a gap, which is fetched then.

Rules kept: an answer is used only from the wanted offset on; a fault or an empty answer of a guess
is dropped, and the offset is asked for again; nothing is guessed behind the end that the leader
told. Not here: leaders, patience and what is lost (ranges.py).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine, Iterable
from typing import Any, NamedTuple

from anabranch.client.committed import Committed
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import Fetched, whole_batches
from anabranch.core.errors import ApiError
from anabranch.core.types import Buffer
from anabranch.core.wire.batch import walk

FULL = 0.5
"""Of the size asked for: a smaller answer ends at the log's end, and tells nothing of the next."""
OVERLAP = 1 / 16
"""Of a part: a guess falls short by so much, as batches vary and a gap costs a round trip."""

Aborted = tuple[tuple[int, int], ...]
"""Aborted transactions: (producer id, first offset)."""


class _Guess(NamedTuple):
    offset: int
    answer: asyncio.Task[Fetched]


class FetchAhead:
    """The fetches of one range that are under way; `fetch` asks for one offset."""

    def __init__(
        self,
        fetch: Callable[[int], Coroutine[Any, Any, Fetched]],
        until: int,
        in_flight: int,
        part_bytes: int,
    ) -> None:
        self._fetch = fetch
        self._until = until
        self._in_flight = in_flight
        self._full_bytes = int(part_bytes * FULL)
        self._step = 0
        self._end = 0
        """Where the leader's records for this reader end, as far as it has told."""
        self._under_way: deque[_Guess] = deque()

    async def next_answer(self, offset: int) -> tuple[Fetched, int]:
        """An answer with `offset`, and the offset that was asked for: `offset`, or one before.
        Raises what `fetch` raises at that very offset."""
        while True:
            self._fill(offset)
            guess = self._under_way.popleft()
            try:
                answer = await guess.answer
            except (ApiError, ConnectionLost):
                self.drop()
                if guess.offset == offset:
                    raise
                continue
            if guess.offset == offset or _reaches(answer, offset):
                return answer, guess.offset
            if not len(answer.records):
                self.drop()

    def _fill(self, offset: int) -> None:
        if not self._under_way or self._under_way[0].offset > offset:
            self._under_way.appendleft(self._begin(offset))
        last = self._under_way[-1].offset
        while self._step and len(self._under_way) < self._in_flight:
            last += self._step
            if last >= min(self._until, self._end):
                return
            self._under_way.append(self._begin(last))

    def _begin(self, offset: int) -> _Guess:
        return _Guess(offset, asyncio.create_task(self._fetch(offset)))

    def learn(self, next_offset: int, *, offsets: int, size_bytes: int, end: int) -> None:
        """How many offsets and bytes the last answer had, where it ended, and where the leader's
        records end; the next fetches begin now."""
        self._end = end
        is_full = size_bytes >= self._full_bytes
        self._step = int(offsets * (1 - OVERLAP)) if is_full else 0
        if self._step and self._in_flight > 1 and next_offset < min(self._until, end):
            self._fill(next_offset)

    def drop(self) -> None:
        """Give up what is under way."""
        while self._under_way:
            task = self._under_way.popleft().answer
            task.cancel()
            task.add_done_callback(_looked_at)
        self._step = 0


def after(
    records: Buffer, aborted: Iterable[tuple[int, int]], offset: int
) -> tuple[Buffer, Aborted]:
    """The whole batches from the one with `offset` on, and the aborted transactions in them: one
    whose marker is cut off must hide nothing of the producer's next transaction."""
    hidden = Committed(aborted)
    for position, header in walk(records):
        if header.next_offset > offset:
            return memoryview(records)[position:], hidden.left
        hidden.shows(header, records, position)
    return memoryview(records)[len(records) :], ()


def _reaches(answer: Fetched, offset: int) -> bool:
    return whole_batches(answer.records)[1] > offset


def _looked_at(task: asyncio.Task[Fetched]) -> None:
    if not task.cancelled():
        task.exception()
