"""Tiering: aged batches of diskless topics become segments of the remote store, on Spark.

What: the driver takes the claim of the cluster's coordinator through a broker, asks for the next
segments page by page, cuts them into tasks that each have a range of (topic, partition) keys, and
goes on until the claim covers nothing more that is old enough. Rules kept: the job asks brokers and
the store, never the database; what it holds is lost with it, and nothing else: whatever a task that
died has stored is removed, and its rows stay; a job that has lost the claim ends. Not here: a
task's work (`tiering_task.py`), what is decided (`core/tiering`).
"""

from __future__ import annotations

import asyncio
import os
import secrets
import socket
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.core.diskless.claim import CLAIM_KEY, check_claim, check_place
from anabranch.core.diskless.objects import ObjectMissing
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.messages.plan_segments import (
    PlannedPartition,
    PlanSegmentsRequest,
    PlanSegmentsResponse,
)
from anabranch.pipelines.tiering_task import Part, Task, tier_task
from anabranch.pipelines.waves import Pace, waves
from anabranch.stores.objects.engines import open_objects

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

TASK_BYTES = 128 << 20
"""Of all segments of a task, unless one is larger: a task has one segment and what it reads of the
objects in memory."""
ROUND_BYTES = 4 << 30
"""Planned at once: the runs of some 100,000 rows are in the driver's memory."""


class Where(NamedTuple):
    """The cluster, and the store of its diskless records."""

    bootstrap: str
    storage_url: str


@dataclass(slots=True)
class Tiered:
    """What a wave has done."""

    commit_number: int = -1
    segments: int = 0
    bytes_tiered: int = 0
    bytes_read: int = 0
    rows_freed: int = 0
    given_up: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    """By partition."""
    left: set[str] = field(default_factory=set)
    """Partitions that this wave does not try again."""
    seconds: float = 0.0


def tier(
    spark: SparkSession, where: Where, tell: Callable[[str], None] = lambda _line: None
) -> Tiered:
    """One wave: tier what was committed before it and is old enough. Raises ApiError
    (CONCURRENT_TRANSACTIONS while another job is at work), ConnectionLost and StorageFault."""
    begin = time.monotonic()
    claim_id = secrets.randbits(62) + 1
    done = Tiered()
    try:
        while planned := asyncio.run(_plan(where, claim_id, done)):
            _round(spark, _tasks(where, claim_id, planned), done, tell)
    finally:
        asyncio.run(_release(where, claim_id))
    done.seconds = time.monotonic() - begin
    return done


def _round(
    spark: SparkSession, tasks: Sequence[Task], done: Tiered, tell: Callable[[str], None]
) -> None:
    pace = Pace(len(tasks), "tasks", tell)
    for wave in waves(spark, tasks, tier_task):
        for _, answer in wave:
            done.segments += answer["segments"]
            done.bytes_tiered += answer["bytes_tiered"]
            done.bytes_read += answer["bytes_read"]
            done.rows_freed += answer["rows_freed"]
            done.given_up += len(answer["given_up"])
            done.faults.update(answer["faults"])
            done.left.update([*answer["given_up"], *answer["faults"]])
        pace.advance(len(wave), done.bytes_tiered)


async def _plan(where: Where, claim_id: int, done: Tiered) -> list[tuple[str, Part]]:
    """The next segments, by key, with the cluster's id."""
    found: list[tuple[str, Part]] = []
    size = 0
    topic_id, partition, is_last = ZERO_TOPIC_ID, -1, False
    async with Cluster(where.bootstrap) as cluster:
        while not is_last and size < ROUND_BYTES:
            answer = await _page(cluster, claim_id, topic_id, partition)
            if done.commit_number < 0:
                await check_store(where, answer.cluster_id, answer.store_id)
            done.commit_number = answer.commit_number
            for each in answer.partitions:
                part = _part(answer, each)
                if part.name not in done.left:
                    found.append((answer.cluster_id, part))
                    size += part.byte_size
            is_last = answer.is_last
            topic_id, partition = answer.last_topic_id, answer.last_partition
    return found


async def _page(
    cluster: Cluster, claim_id: int, topic_id: TopicId, partition: int
) -> PlanSegmentsResponse:
    request = PlanSegmentsRequest(
        claim_id=claim_id,
        owner=f"{socket.gethostname()}:{os.getpid()}",
        after_topic_id=topic_id,
        after_partition=partition,
    )
    answer: PlanSegmentsResponse = await page_of_plan(cluster, request, is_first=partition < 0)
    return answer


async def page_of_plan(cluster: Cluster, request: Any, *, is_first: bool) -> Any:
    """A page of a job's plan. What may pass is waited for, unless it is the first page: then the
    job fails at once, with the reason. Raises ConnectionLost and ApiError, without a wait where
    another job has the claim."""

    async def ask() -> Any:
        answer = await cluster.send(request)
        if answer.error_code == ErrorCode.CONCURRENT_TRANSACTIONS:  # clients would ask again
            return ApiError(ErrorCode(answer.error_code), answer.error_message)
        check(answer.error_code, answer.error_message)
        return answer

    answer = await cluster.retrying(ask, seconds=0 if is_first else None)
    if isinstance(answer, ApiError):
        raise answer
    return answer


async def check_store(where: Where, cluster_id: str, held_store_id: str) -> None:
    """Whether the store is that of this cluster's coordinator. Raises StorageFault."""
    objects = await open_objects(where.storage_url)
    try:
        held = (await objects.read(CLAIM_KEY, [(0, await objects.size(CLAIM_KEY))]))[0]
    except ObjectMissing:
        raise StorageFault(
            f"{objects.url}: there is no object {CLAIM_KEY}: it is not the store of cluster "
            f"{cluster_id}; give that of diskless.storage.url of its brokers"
        ) from None
    finally:
        await objects.close()
    store_id = check_claim(held, cluster_id, objects.url)
    check_place(store_id, held_store_id, objects.url)


async def _release(where: Where, claim_id: int) -> None:
    async with Cluster(where.bootstrap) as cluster:
        await cluster.send(PlanSegmentsRequest(claim_id=claim_id, is_done=True))


def _part(answer: PlanSegmentsResponse, each: PlannedPartition) -> Part:
    return Part(
        each.topic_id,
        each.topic_name,
        each.partition_index,
        each.leader_id,
        each.start_offset,
        each.end_offset,
        each.before_segment_id,
        each.before_start_offset,
        each.before_end_offset,
        tuple(
            (
                answer.object_keys[run.object_index], run.base_offset, run.end_offset,
                run.byte_offset, run.byte_size, run.max_timestamp, run.timestamp_type,
            )
            for run in each.runs
        ),
        each.records_epoch,
    )  # fmt: skip


def _tasks(where: Where, claim_id: int, planned: Sequence[tuple[str, Part]]) -> list[Task]:
    cluster_id = planned[0][0]
    return [
        Task(where.bootstrap, where.storage_url, cluster_id, claim_id, tuple(parts))
        for parts in key_ranges([part for _, part in planned], TASK_BYTES)
    ]


def key_ranges(parts: Sequence[Part], most_bytes: int) -> Iterator[list[Part]]:
    """Neighbours by key together, up to a size or one part."""
    taken: list[Part] = []
    size = 0
    for part in parts:
        if taken and size + part.byte_size > most_bytes:
            yield taken
            taken, size = [], 0
        taken.append(part)
        size += part.byte_size
    if taken:
        yield taken


def told(done: Tiered) -> dict[str, Any]:
    """As JSON has it."""
    return {name: getattr(done, name) for name in Tiered.__slots__ if name != "left"}
