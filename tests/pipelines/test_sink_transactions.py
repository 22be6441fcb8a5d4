"""What attempts, twins and drivers leave that die at any moment: each row once, for every reader of
committed records. The cluster is real; Spark's part is played by the test."""

from __future__ import annotations

import asyncio
import random

import pytest
from tests.client.transaction_kit import batch_of, committed, create, running

from anabranch.client.cluster import Cluster
from anabranch.client.producer import ProducerSettings
from anabranch.core.errors import ClientFault
from anabranch.pipelines import sink_transactions
from anabranch.pipelines.sink_scope import Scope
from anabranch.pipelines.sink_transactions import Attempt, abort, commit

SLOTS, PARTITIONS = 4, 2


class Killed(Exception):
    """A process that ends here."""


@pytest.fixture(scope="module", params=[2, 1], ids=lambda level: f"level-{level}")
def bootstrap(request, tmp_path_factory):
    with running(tmp_path_factory.mktemp("cluster"), request.param) as servers:
        yield servers


class Job:
    """A stream's driver and its tasks, on one topic."""

    def __init__(self, cluster, topic, chance, *, rate):
        self.cluster = cluster
        self.topic = topic
        self.chance = chance
        self.rate = rate
        self.scope = Scope(topic, True, "", 60_000)
        self.run = 0

    def die(self, rate=None):
        if self.chance.random() < (self.rate if rate is None else rate):
            raise Killed

    async def attempt(self, batch, slot, number):
        """A task; None where it or its message is lost."""
        attempt = Attempt(self.scope, slot, batch, str(self.run), number, "query")
        try:
            if await attempt.was_committed(self.cluster):
                return True
            self.die()
            producer = await attempt.begin(self.cluster, ProducerSettings())
            for each in range(3):
                value = b"%d-%d-%d" % (batch, slot, each)
                await producer.produce(self.topic, each % PARTITIONS, batch_of(value))
                self.die()
            prepared = await attempt.prepare(producer, self.topic)
            self.die()
            return prepared
        except Killed:
            return None

    async def micro_batch(self, batch, monkeypatch):
        """A driver's life: it may end at any point. Whether Spark notes that it is done."""
        self.run += 1
        chosen = []
        for slot in range(SLOTS):
            twins = [self.attempt(batch, slot, each) for each in range(self.chance.choice((1, 2)))]
            done = [each for each in await asyncio.gather(*twins) if each is not None]
            for number in range(2, 5):
                if not done:
                    done = [each] if (each := await self.attempt(batch, slot, number)) else []
            if not done:
                await abort(self.cluster, self.scope)
                return False
            chosen.append(self.chance.choice(done))
        chosen = [each for each in chosen if each is not True]
        end = sink_transactions.end_prepared

        async def dying(*given, **named):
            self.die()
            await end(*given, **named)
            self.die()

        with monkeypatch.context() as patched:
            patched.setattr(sink_transactions, "end_prepared", dying)
            await commit(self.cluster, self.scope, chosen)
        self.die()
        return True


@pytest.mark.parametrize("seed", range(10))
async def test_every_row_is_there_once_whatever_dies(bootstrap, monkeypatch, seed):
    chance = random.Random(seed)
    async with Cluster(bootstrap) as cluster:
        topic = f"rows-{seed}"
        await create(cluster, topic, PARTITIONS)
        job = Job(cluster, topic, chance, rate=0.06)
        for batch in range(3):
            is_done = False
            while not is_done:
                try:
                    is_done = await job.micro_batch(batch, monkeypatch)
                except Killed:
                    continue
        await abort(cluster, job.scope)
        found = sorted((await committed(cluster, topic, PARTITIONS)).values())
    assert found == sorted(
        b"%d-%d-%d" % (batch, slot, each)
        for batch in range(3) for slot in range(SLOTS) for each in range(3)
    )  # fmt: skip


async def test_nothing_is_committed_where_one_transaction_is_no_longer_open(bootstrap):
    async with Cluster(bootstrap) as cluster:
        topic = "one-is-lost"
        await create(cluster, topic, PARTITIONS)
        job = Job(cluster, topic, random.Random(0), rate=0)
        chosen = [await job.attempt(0, slot, 0) for slot in range(2)]
        await job.attempt(0, 1, 0)  # fences the one before
        with pytest.raises(ClientFault, match="is no longer open"):
            await commit(cluster, job.scope, chosen)
        await abort(cluster, job.scope)
        assert await committed(cluster, topic, PARTITIONS) == {}


async def test_the_transactions_of_another_name_are_left_alone(bootstrap):
    async with Cluster(bootstrap) as cluster:
        await create(cluster, "name", PARTITIONS)
        await create(cluster, "name-too", PARTITIONS)
        other = Job(cluster, "name-too", random.Random(0), rate=0)
        prepared = await other.attempt(0, 0, 0)
        await abort(cluster, Job(cluster, "name", random.Random(0), rate=0).scope)
        await commit(cluster, other.scope, [prepared])
        assert len(await committed(cluster, "name-too", PARTITIONS)) == 3
