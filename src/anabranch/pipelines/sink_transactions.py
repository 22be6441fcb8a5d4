"""Exactly once: each attempt of a task prepares a transaction, and the driver ends them.

    task     its batches and, where the write can be repeated, how far its slot is: one transaction,
             which is left open when all is acknowledged
    driver   commit: commits the transactions of the attempts that Spark chose, and aborts others
             abort: aborts them all

A slot is a partition of the DataFrame. How far it is stands in the offsets of a group of its own:
the number of the next micro-batch, committed in the transaction of the one before. So a micro-batch
of which a killed driver had committed some transactions is written again only in the other slots.
A task that finds such an offset in a transaction that is not over ends those of earlier drivers
first, one way or the other; only then the offset says what was committed.

    transactional id   NAME/RUN/SLOT/ATTEMPT    RUN: the driver's run of a stream
    group              NAME/QUERY/SLOT          QUERY: the checkpoint's own id of a stream

Rule kept: only the driver commits, and it commits one attempt a slot. What it costs, and what it
does not hold: decision 87. Not here: writing rows (sink_task.py).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from typing import NamedTuple

from pyspark import TaskContext

from anabranch.client.cluster import Cluster, check
from anabranch.client.connection import ConnectionLost
from anabranch.client.groups import coordinated
from anabranch.client.prepared_transactions import (
    Prepared,
    check_open,
    each_of,
    end_prepared,
    settle,
)
from anabranch.client.producer import ProducerSettings
from anabranch.client.transaction_requests import Position
from anabranch.client.transactional_producer import RETRY_BACKOFF_MS, TransactionalProducer
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchResponse,
)
from anabranch.pipelines.faults import PipelineFault
from anabranch.pipelines.sink_scope import Scope, hashed

_log = logging.getLogger(__name__)

BATCH_ID = "streaming.sql.batchId"
QUERY_ID = "sql.streaming.queryId"
RUN_ID = "spark.jobGroup.id"
"""Local properties that Spark gives to the tasks of a stream; the job group of a query is its run.
A checkpoint that was deleted and made again has another query id."""


class Attempt(NamedTuple):
    """An attempt of a task."""

    scope: Scope
    slot: int
    batch: int
    run: str
    number: int
    query: str = ""

    @property
    def transactional_id(self) -> str:
        """Another one for each attempt of a slot, and the same ones in the next micro-batch, so
        that brokers keep few."""
        return f"{self.scope.name}/{self.run}/{self.slot}/{self.number}"

    @property
    def group(self) -> str:
        """Whose offsets say how far the slot is."""
        return f"{self.scope.name}/{self.query}/{self.slot}"

    async def was_committed(self, cluster: Cluster) -> bool:
        """Whether an earlier driver committed this slot of the micro-batch."""
        if not self.scope.lasts:
            return False
        found = await self._next_batch(cluster, stable=True)
        if found is None:
            await settle(cluster, f"{self.scope.name}/", but=f"{self.scope.name}/{self.run}/")
            found = await self._next_batch(cluster, stable=False)
        return (found or 0) > self.batch

    async def _next_batch(self, cluster: Cluster, *, stable: bool) -> int | None:
        """The slot's offset; with `stable`, None where a transaction may change it."""
        wanted = OffsetFetchRequestGroup(group_id=self.group, topics=None)
        request = OffsetFetchRequest(groups=[wanted], require_stable=stable)

        async def ask(broker_id: int) -> int | None:
            response: OffsetFetchResponse = await cluster.send_to(broker_id, request)
            (group,) = response.groups
            check(group.error_code, of=self.group)
            found = [each for topic in group.topics for each in topic.partitions]
            if any(each.error_code == ErrorCode.UNSTABLE_OFFSET_COMMIT for each in found):
                return None
            for each in found:
                check(each.error_code, of=self.group)
            return max((each.committed_offset for each in found), default=0)

        return await coordinated(cluster, self.group, ask)

    async def begin(self, cluster: Cluster, settings: ProducerSettings) -> TransactionalProducer:
        """A producer in a transaction."""
        lane = settings.lane._replace(retry_backoff_ms=RETRY_BACKOFF_MS)
        producer = TransactionalProducer(
            cluster, self.transactional_id, settings._replace(lane=lane),
            transaction_timeout_ms=self.scope.timeout_ms,
        )  # fmt: skip
        await producer.init()
        producer.begin()
        return producer

    async def prepare(self, producer: TransactionalProducer, topic: str) -> Prepared | None:
        """Note how far the slot is, and wait until all is acknowledged."""
        if self.scope.lasts:
            await producer.send_offsets(self.group, {(topic, 0): Position(self.batch + 1)})
        return await producer.prepare()


def this_attempt(scope: Scope) -> Attempt:
    """The attempt that this process runs."""
    context = TaskContext.get()
    assert context is not None, "this is not a task"
    slot, number = context.partitionId(), context.attemptNumber()
    if scope.run:
        return Attempt(scope, slot, 0, scope.run, number)
    run, query = hashed(_property(context, RUN_ID)), hashed(_property(context, QUERY_ID))
    return Attempt(scope, slot, int(_property(context, BATCH_ID)), run, number, query)


def _property(context: TaskContext, name: str) -> str:
    text = context.getLocalProperty(name)
    if text is None:
        raise PipelineFault(
            f"Spark does not tell its tasks {name}, without which exactlyOnce cannot know what was "
            "written: use a version of Spark that this package supports, or leave exactlyOnce out."
        )
    return str(text)


async def commit(cluster: Cluster, scope: Scope, chosen: Sequence[Prepared]) -> None:
    """On the driver: make the chosen transactions visible, and abort what other attempts of this
    write left open. Nothing becomes visible where one of them is no longer open. Raises ApiError or
    ConnectionLost."""
    await each_of(chosen, lambda each: check_open(cluster, each))
    await each_of(chosen, lambda each: end_prepared(cluster, each, commits=True))
    try:
        await settle(cluster, f"{scope.name}/")
    except (ApiError, ConnectionLost) as fault:
        _log.warning(
            "Everything was committed. What other attempts left open ends after "
            "transaction.timeout.ms; readers of committed records wait for it: %s", fault,
        )  # fmt: skip


async def abort(cluster: Cluster, scope: Scope) -> None:
    """On the driver: have nothing of this write be visible."""
    await settle(cluster, f"{scope.name}/")
