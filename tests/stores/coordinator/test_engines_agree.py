"""PostgreSQL answers any row of calls as SQLite in memory does, which the simulator runs."""

from __future__ import annotations

from collections import Counter
from enum import IntEnum
from random import Random
from typing import Any

import pytest
from coordinator_kit import BROKER, CLUSTER, EPOCH, LEASE_MS, TOPICS, Engine, batch, placed
from tests.stores.coordinator.async_memory import AsyncMemoryCoordinator

from anabranch.core.diskless.coordinator import Coordinator, Deposed
from anabranch.core.diskless.rows import (
    VERDICTS_KEPT_MS,
    Batch,
    CommitState,
    Found,
    LogKey,
    NewLogs,
    Prepared,
    Run,
    Wanted,
)
from anabranch.core.errors import ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

KEYS = [LogKey(topic, number) for topic in TOPICS[:3] for number in range(2)]
CALLS = 200
GRACE_MS = LEASE_MS // 2
"""Between what a test takes and what the script lets pass: the server's clock goes on by itself."""
SEEN = (
    CommitState.COMMITTED,
    CommitState.REFUSED,
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
    ErrorCode.INVALID_PRODUCER_EPOCH,
)
"""Answers that the calls must reach."""


class Script:
    """Random calls, the same ones on two coordinators, whose objects are known by their ids."""

    def __init__(self, seed: int, engine: Engine, both: tuple[Coordinator, Coordinator]) -> None:
        self.random, self.engine, self.both = Random(seed), engine, both
        self.objects: list[tuple[Prepared, Prepared]] = []
        self.now_ms = 1_700_000_000_000
        self.epoch = EPOCH
        self.codes: Counter[IntEnum] = Counter()

    async def same(self, name: str, *arguments: Any, **named: Any) -> Any:
        """A call's answer, or the kind of its refusal, which both give."""
        answers = []
        for on in self.both:
            try:
                answers.append(plain(await getattr(on, name)(*arguments, **named)))
            except Deposed:
                answers.append(Deposed)
        assert answers[0] == answers[1], (name, arguments, named)
        return answers[0]

    async def prepare(self) -> None:
        prepared = [await on.prepare(BROKER, self.epoch, 2, LEASE_MS) for on in self.both]
        assert [each.object_id for each in prepared[0]] == [each.object_id for each in prepared[1]]
        self.objects += zip(*prepared, strict=True)

    def batch(self) -> Batch:
        made = batch(
            self.random.choice(KEYS),
            self.random.randint(1, 3),
            size=self.random.choice((10, 1 << 19)),
            timestamp=self.random.randrange(5000),
        )
        if self.random.random() < 0.6:
            made = made._replace(
                producer_id=self.random.randrange(2),
                producer_epoch=self.random.choice((0, 0, 0, 1)),
                base_sequence=self.random.randrange(6),
            )
        return made

    async def commit(self) -> None:
        if not self.objects or self.random.random() < 0.8:
            await self.prepare()
        pair = self.objects[-1] if self.random.random() < 0.9 else self.random.choice(self.objects)
        batches = [self.batch() for _ in range(self.random.randint(1, 12))]
        waited_for = frozenset(self.random.sample(range(len(batches)), len(batches) // 2))
        answers = [
            await on.commit(
                placed(each, *batches, epoch=self.epoch)._replace(waited_for=waited_for)
            )
            for on, each in zip(self.both, pair, strict=True)
        ]
        assert answers[0] == answers[1]
        self.codes.update(verdict.code for verdict in answers[0].verdicts)
        self.codes[answers[0].state] += 1

    async def outcome(self) -> None:
        if self.objects:
            pair = self.random.choice(self.objects)
            answers = [
                await on.outcome(each.object_key) for on, each in zip(self.both, pair, strict=True)
            ]
            assert answers[0] == answers[1]

    async def refuse(self) -> None:
        if self.objects:
            await self.same("refuse", [self.random.choice(self.objects)[0].object_id])

    async def read(self) -> None:
        key, random = self.random.choice(KEYS), self.random
        wanted = [
            Wanted(each, random.randrange(40), random.choice((0, 30, 1 << 30))) for each in KEYS
        ]
        await self.same("states", KEYS)
        await self.same("find", wanted)
        await self.same("by_time", key, random.randrange(6000), random.choice((0, 5, 20)))
        await self.same("newest", key)
        await self.same("topics", random.choice([ZERO_TOPIC_ID, *TOPICS]), random.randint(1, 3))

    async def shorten(self) -> None:
        random = self.random
        keys = random.sample(KEYS, 3)
        await self.same("delete_before", [(key, random.randrange(40)) for key in keys])
        await self.same(
            "expire",
            random.choice(KEYS),
            older_than_ms=random.choice((-1, 2500)),
            most_bytes=random.choice((-1, 0, 1 << 20)),
            most_runs=random.choice((1, 3, 100)),
        )

    async def control(self) -> None:
        topic = self.random.choice(TOPICS[:3])
        await self.same("create_logs", 1, [NewLogs(topic, "any", 0, self.random.randint(1, 2))])
        if self.random.random() < 0.1:
            await self.same("delete_topics", 1, [topic])
        await self.same("create_logs", 0, [])

    async def garbage(self) -> None:
        while await self.same("mark_expired", 10_000):
            pass
        waiting = [sorted(await on.to_delete(GRACE_MS, 10_000)) for on in self.both]
        ids = [[number for number, _ in each] for each in waiting]
        assert ids[0] == ids[1]
        await self.same("count_to_delete", GRACE_MS, self.random.randrange(5))
        await self.same("deleted", ids[0][: self.random.randrange(5)])
        await self.same("forget_producers", self.random.choice((LEASE_MS, 1 << 40)), 10_000)

    async def pass_time(self) -> None:
        by_ms = self.random.choice((100, LEASE_MS, VERDICTS_KEPT_MS // 2))
        self.engine.advance(by_ms)
        self.now_ms += by_ms

    async def register(self) -> None:
        self.epoch += self.random.random() < 0.3
        await self.same("register", BROKER, self.epoch)
        await self.same("register", BROKER, EPOCH - 1)


def plain(answer: Any) -> Any:
    """Without the names of objects, which hold the mark of each database."""
    if isinstance(answer, Run):
        return answer._replace(object_key="")
    if isinstance(answer, Found):
        return answer._replace(runs=tuple(map(plain, answer.runs)))
    return [plain(each) for each in answer] if isinstance(answer, list) else answer


@pytest.mark.parametrize("engine", ["postgres"], indirect=True)
async def test_any_row_of_calls_is_answered_as_in_memory(engine: Engine) -> None:
    tables = SqliteInMemory(CLUSTER, lambda: script.now_ms)
    script = Script(18, engine, (await engine.connect(), AsyncMemoryCoordinator(tables)))
    await script.same("take_control", 1)
    await script.same("create_logs", 1, [NewLogs(topic, "any", 0, 2) for topic in TOPICS[:3]])
    await script.same("register", BROKER, EPOCH)
    calls = [script.prepare, script.refuse, script.control, script.garbage, script.pass_time]
    often = [script.commit] * 8 + [script.read] * 3 + [script.outcome] * 2 + [script.shorten] * 2
    for _ in range(CALLS):
        await script.random.choice([*calls, *often, script.register])()
    await script.read()
    assert all(script.codes[each] >= 3 for each in SEEN), script.codes
