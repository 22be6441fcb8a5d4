"""Compaction of diskless topics: of each key only the newest record stays, on Spark.

What: the driver takes the claim of the cluster's coordinator through a broker and asks which
partitions are worth a pass; tasks read their segments and give hashes of keys with offsets, which
alone are shuffled; other tasks write the segments again, and the partition's leader puts them in
the place of the old ones, all of a pass in one transaction. Rules kept: the job asks brokers and
the store, never the database; a partition of which one segment could not be made stays as it is; a
job that dies leaves what there was, and its tries are removed by brokers; a job that has lost the
claim changes nothing. Not here: tasks (`compaction_task.py`), what is decided (`core/tiering`).
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import socket
import threading
import time
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.core.diskless.rows import LogKey
from anabranch.core.errors import ApiError, StorageFault
from anabranch.core.remote.segments import EpochStart, RemoteSegment, SegmentId
from anabranch.core.sentences import number_of
from anabranch.core.tiering.compaction_plan import grouped
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.core.wire.messages.compact_segment import (
    SWAP,
    CompactSegmentRequest,
    SegmentSwap,
)
from anabranch.core.wire.messages.plan_compaction import (
    LOOK,
    PLAN,
    RELEASE,
    RENEW,
    PartitionToCompact,
    PlanCompactionRequest,
    PlanCompactionResponse,
)
from anabranch.pipelines.compaction_task import (
    ALL_TOLD,
    HASH_BYTES,
    UNREAD,
    GroupTask,
    PlacedSegment,
    keys_task,
    rewrite_task,
)
from anabranch.pipelines.tiering import Where, check_store, page_of_plan
from anabranch.pipelines.tiering_task import GIVEN_UP, AtLeader, Place

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROUND_BYTES = 16 << 30
"""Of the segments of a round, unless one partition has more: its new segments take the place of the
old ones when all of them are stored."""
RENEW_SECONDS = 30.0
KEYS = "log int, high long, low long, offset long, group int"
ANSWER = "answer string"


class Waiting(NamedTuple):
    """A compacted partition, and what compaction could do to it."""

    name: str
    tiered_bytes: int
    dirty_bytes: int
    untiered_records: int
    is_due: bool


@dataclass(slots=True)
class Compacted:
    """What a job has done."""

    partitions: int = 0
    segments: int = 0
    """That it has written."""
    replaced: int = 0
    bytes_before: int = 0
    """Of all partitions that it has compacted."""
    bytes_after: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    """All compacted partitions, before."""
    given_up: int = 0
    faults: dict[str, str] = field(default_factory=dict)
    """By partition."""
    seconds: float = 0.0


def compact(
    spark: SparkSession, where: Where, tell: Callable[[str], None] = lambda _line: None
) -> Compacted:
    """Compact what is worth it. Raises ApiError (CONCURRENT_TRANSACTIONS while another job is at
    work), ConnectionLost and StorageFault."""
    begin = time.monotonic()
    claim_id, done = secrets.randbits(62) + 1, Compacted()
    try:
        planned = asyncio.run(_plan(where, claim_id, done))
        with _kept(where, claim_id):
            for passes in _rounds(planned):
                _round(spark, where, claim_id, passes, done, tell)
    finally:
        with suppress(ApiError, ConnectionLost):
            asyncio.run(_ask(where, claim_id, RELEASE))
    done.seconds = time.monotonic() - begin
    return done


async def waiting_of(cluster: Cluster) -> list[Waiting]:
    """What a job would look at, without a claim. Raises ApiError and ConnectionLost."""
    return [_waiting(each) async for each in _planned(cluster, -1, LOOK)]


# Planning.


class PlannedPass(NamedTuple):
    """A partition that is compacted."""

    cluster_id: str
    part: PartitionToCompact

    @property
    def name(self) -> str:
        """Of the partition."""
        return f"{self.part.topic_name}-{self.part.partition_index}"

    @property
    def byte_size(self) -> int:
        """Of its segments."""
        return sum(each.byte_size for each in self.part.segments)


async def _plan(where: Where, claim_id: int, done: Compacted) -> list[PlannedPass]:
    found: list[PlannedPass] = []
    async with Cluster(where.bootstrap) as cluster:
        async for each in _planned(cluster, claim_id, PLAN, where):
            done.waiting.append(_waiting(each))
            if each.part.segments:
                found.append(each)
    return found


async def _planned(
    cluster: Cluster, claim_id: int, ask: int, where: Where | None = None
) -> AsyncIterator[PlannedPass]:
    """All compacted partitions; the store is compared with the coordinator's first."""
    topic_id, partition, is_last = ZERO_TOPIC_ID, -1, False
    while not is_last:
        answer = await _page(cluster, claim_id, ask, topic_id, partition)
        if where is not None:
            await check_store(where, answer.cluster_id, answer.store_id)
            where = None
        for part in answer.partitions:
            yield PlannedPass(answer.cluster_id, part)
        is_last = answer.is_last
        topic_id, partition = answer.last_topic_id, answer.last_partition


def _waiting(each: PlannedPass) -> Waiting:
    part = each.part
    return Waiting(
        each.name, part.tiered_bytes, part.dirty_bytes, part.untiered_records, bool(part.segments)
    )


async def _page(
    cluster: Cluster,
    claim_id: int,
    ask: int,
    topic_id: TopicId = ZERO_TOPIC_ID,
    partition: int = -1,
) -> PlanCompactionResponse:
    request = PlanCompactionRequest(
        claim_id=claim_id,
        owner=f"{socket.gethostname()}:{os.getpid()}",
        ask=ask,
        after_topic_id=topic_id,
        after_partition=partition,
    )
    answer: PlanCompactionResponse = await page_of_plan(cluster, request, is_first=partition < 0)
    return answer


async def _ask(where: Where, claim_id: int, ask: int) -> None:
    async with Cluster(where.bootstrap) as cluster:
        await _page(cluster, claim_id, ask)


@contextmanager
def _kept(where: Where, claim_id: int) -> Iterator[None]:
    """Renew the claim now and then: what is shuffled asks no broker."""
    over = threading.Event()

    def renew() -> None:
        while not over.wait(RENEW_SECONDS):
            with suppress(ApiError, ConnectionLost):  # a swap tells that it was lost
                asyncio.run(_ask(where, claim_id, RENEW))

    keeper = threading.Thread(target=renew, name="anabranch-claim", daemon=True)
    keeper.start()
    try:
        yield
    finally:
        over.set()
        keeper.join()


def _rounds(planned: Iterable[PlannedPass]) -> Iterator[list[PlannedPass]]:
    taken: list[PlannedPass] = []
    size = 0
    for each in planned:
        if taken and size + each.byte_size > ROUND_BYTES:
            yield taken
            taken, size = [], 0
        taken.append(each)
        size += each.byte_size
    if taken:
        yield taken


# A round.


def _round(
    spark: SparkSession,
    where: Where,
    claim_id: int,
    passes: Sequence[PlannedPass],
    done: Compacted,
    tell: Callable[[str], None],
) -> None:
    tasks = list(_tasks(where, claim_id, passes))
    size = sum(each.byte_size for each in passes)
    tell(
        f"{number_of(len(passes), 'partition')}, {size / 1e6:,.0f} MB in "
        f"{number_of(len(tasks), 'group')} of segments"
    )
    by_log: dict[int, list[tuple[GroupTask, dict[str, Any]]]] = {}
    for answer in run_groups(spark, tasks):
        task = tasks[answer["group"]]
        by_log.setdefault(task.log, []).append((task, answer))
    for log, each in enumerate(passes):
        _finish(where, claim_id, each, by_log.get(log, []), done)
    tell(f"{number_of(done.partitions, 'partition')} compacted")


def _tasks(where: Where, claim_id: int, passes: Sequence[PlannedPass]) -> Iterator[GroupTask]:
    secret, number = secrets.token_bytes(HASH_BYTES), 0
    for log, (cluster_id, part) in enumerate(passes):
        placed = {each.segment_id: _placed(each) for each in part.segments}
        all_of_it = list(placed.values())
        before: PlacedSegment | None = None
        for group in grouped(map(_segment, all_of_it), part.most_bytes):
            own = tuple(placed[each.segment_id] for each in group)
            yield GroupTask(
                where.bootstrap, where.storage_url, cluster_id, claim_id, secret, number, log,
                part.topic_id, part.topic_name, part.partition_index, part.leader_id, own,
                (part.generation, part.upto), part.now_ms, part.delete_retention_ms, part.forgets,
                before, all_of_it[-1], tuple(each for each in all_of_it if each[4]),
            )  # fmt: skip
            before, number = own[-1], number + 1


def _placed(each: Any) -> PlacedSegment:
    epochs = tuple((one.epoch, one.start_offset) for one in each.leader_epochs)
    return (
        each.segment_id, each.start_offset, each.end_offset, each.byte_size, each.has_aborted,
        epochs,
    )  # fmt: skip


def _segment(placed: PlacedSegment) -> RemoteSegment:
    segment_id, start, end, size, _, epochs = placed
    return RemoteSegment(
        SegmentId(segment_id), LogKey(ZERO_TOPIC_ID, 0), start, end, -1,
        tuple(EpochStart(*each) for each in epochs), size, -1, -1,
    )  # fmt: skip


def _finish(
    where: Where,
    claim_id: int,
    planned: PlannedPass,
    answers: Sequence[tuple[GroupTask, dict[str, Any]]],
    done: Compacted,
) -> None:
    """Have the leader put a partition's new segments in the place of the old ones."""
    faults = [answer for _, answer in answers if answer["fault"]]
    if faults and all(each.get("is_given_up") for each in faults):
        done.given_up += 1
        return
    if faults:
        done.faults[planned.name] = next(
            each["fault"] for each in faults if not each.get("is_given_up")
        )
        return
    made = [(task, answer) for task, answer in answers if answer["segment"]]
    try:
        asyncio.run(_swap(where, claim_id, planned.part, made))
    except ApiError as fault:
        if fault.code in GIVEN_UP:
            done.given_up += 1
        else:
            done.faults[planned.name] = str(fault)
    except ConnectionLost as fault:
        done.faults[planned.name] = str(fault)
    else:
        done.partitions += 1
        done.segments += len(made)
        done.replaced += sum(len(task.segments) for task, _ in made)
        done.bytes_before += planned.byte_size
        done.bytes_after += sum(answer["bytes"] for _, answer in answers)


async def _swap(
    where: Where,
    claim_id: int,
    part: PartitionToCompact,
    made: Sequence[tuple[GroupTask, dict[str, Any]]],
) -> None:
    request = CompactSegmentRequest(
        claim_id=claim_id,
        step=SWAP,
        topic_id=part.topic_id,
        partition_index=part.partition_index,
        swaps=[
            SegmentSwap(
                segment_id=bytes.fromhex(answer["segment"]),
                replaced=[each[0] for each in task.segments],
            )
            for task, answer in made
        ],
    )
    async with Cluster(where.bootstrap) as cluster:
        place = Place(part.topic_id, part.topic_name, part.partition_index, part.leader_id)
        await AtLeader(cluster, place).send(request)


# On Spark.


def run_groups(spark: SparkSession, tasks: Sequence[GroupTask]) -> list[dict[str, Any]]:
    """The answers of all groups: their keys are read, compared, and their segments written."""
    count = len(tasks)
    keys = spark.range(0, count, 1, count).mapInArrow(_keys(tasks), KEYS)
    live = _live(keys).repartition(count, "group")
    rows = live.groupBy("group").applyInArrow(_rewrite(tasks), ANSWER).collect()
    answers = [json.loads(row.answer) for row in rows]
    told = {each["group"] for each in answers}
    silent = [each for each in range(count) if each not in told]
    fault = "its keys could not be read; run the job again"
    return [*answers, *({"group": each, "segment": "", "fault": fault} for each in silent)]


def _live(keys: DataFrame) -> DataFrame:
    """Of each key the newest offset with its group, and whether no other group has the key. Of two
    groups of a log, the later one has the larger number."""
    from pyspark.sql import functions as of

    newest = keys.groupBy("log", "high", "low").agg(
        of.max("offset").alias("offset"), of.max("group").alias("group"), of.count("*").alias("all")
    )
    return newest.select("group", "offset", (of.col("all") == 1).alias("alone"))


def _keys(tasks: Sequence[GroupTask]) -> Any:
    def run(batches: Iterator[Any]) -> Iterator[Any]:
        for batch in batches:
            for number in batch.column(0).to_pylist():
                yield key_rows(tasks[number])

    return run


def key_rows(task: GroupTask) -> Any:
    """A group's keys as a batch of Arrow, with a row that says that all are told; one that they are
    not, where they could not be read: then the partition stays as it is, and another task looks
    why."""
    import numpy as np
    import pyarrow as pa

    try:
        hashes, offsets = keys_task(task)
    except StorageFault:
        return _rows([-1], [task.number], [0], [UNREAD], [task.number])
    halves = np.frombuffer(hashes, dtype="<i8").reshape(-1, 2)
    count = len(offsets)
    return _rows(
        np.append(np.full(count, task.log, dtype=np.int32), np.int32(-1)),
        np.append(halves[:, 0], task.number),
        np.append(halves[:, 1], 0),
        np.append(np.array(offsets, dtype=np.int64), ALL_TOLD),
        pa.array(np.full(count + 1, task.number, dtype=np.int32)),
    )


def _rows(*columns: Any) -> Any:
    import pyarrow as pa

    kinds = (pa.int32(), pa.int64(), pa.int64(), pa.int64(), pa.int32())
    names = [each.split(" ")[0] for each in KEYS.split(", ")]
    arrays = [pa.array(each, type=kind) for each, kind in zip(columns, kinds, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def _rewrite(tasks: Sequence[GroupTask]) -> Any:
    def run(table: Any) -> Any:
        import pyarrow as pa

        (number, *_) = table.column("group").unique().to_pylist()
        offsets = table.column("offset").to_numpy()
        alone = offsets[table.column("alone").to_numpy(zero_copy_only=False)]
        answer = rewrite_task(tasks[number], set(offsets.tolist()), set(alone.tolist()))
        return pa.table({"answer": [json.dumps(answer)]})

    return run
