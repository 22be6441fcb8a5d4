"""A task of tiering: the segments of a range of partitions, made from a range of each object.

What: reads, of each object that the task's runs lie in, what they span, once; makes the segment of
each partition, has its leader start the try, stores the files, and has the leader finish it. Rule
kept: a partition whose try ends, or whose object is damaged, holds up no other. Why in memory: a
segment is bounded (`core/tiering/plan.py`), and the JVM sees none of its bytes. Not here: what a
segment's files hold, and in which order they are put (`core/tiering`).
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Any, NamedTuple

from anabranch.client.cluster import Cluster, check
from anabranch.client.connection import ConnectionLost
from anabranch.core.diskless.keys import object_id as id_of_key
from anabranch.core.diskless.objects import ObjectStore, Source
from anabranch.core.diskless.rows import LogKey, Run
from anabranch.core.errors import ApiError, ErrorCode, StorageFault
from anabranch.core.log.segment import LOG, SNAPSHOT, offset_name
from anabranch.core.remote.keys import segment_folder
from anabranch.core.remote.segments import RemoteSegment, SegmentId
from anabranch.core.tiering.built_segment import BuiltSegment, build
from anabranch.core.tiering.plan import PlannedSegment
from anabranch.core.tiering.tries import Call, Lease, PutFiles, one_try
from anabranch.core.types import Buffer, TopicId
from anabranch.core.wire.messages.tier_segment import (
    FINISH,
    STANDS,
    TierSegmentRequest,
)
from anabranch.stores.objects.engines import open_objects

READS_AT_ONCE = 8
"""Objects of one task: a store in a cloud answers a request in tens of milliseconds."""
TRIES_AT_ONCE = 4
"""Of one task: most of a try is waiting for the store to have synced what was put."""
MOST_GAP_BYTES = 1 << 20
"""Between two runs of a task in one object: less is read with them, more is left out."""
GIVEN_UP = frozenset({ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.CONCURRENT_TRANSACTIONS})

PlacedRun = tuple[str, int, int, int, int, int, int]
"""Object key, base and end offset, position and size in the object, timestamp and its type."""


class Part(NamedTuple):
    """The next segment of a partition."""

    topic_id: bytes
    topic: str
    partition: int
    leader_id: int
    start_offset: int
    end_offset: int
    before_segment_id: bytes
    before_start_offset: int
    before_end_offset: int
    runs: tuple[PlacedRun, ...]
    records_epoch: int = 0

    @property
    def name(self) -> str:
        """Of the partition."""
        return f"{self.topic}-{self.partition}"

    @property
    def byte_size(self) -> int:
        """Of its batches."""
        return sum(run[4] for run in self.runs)

    @property
    def key(self) -> LogKey:
        """As the coordinator knows it."""
        return LogKey(TopicId(self.topic_id), self.partition)


class Task(NamedTuple):
    """What one task makes."""

    bootstrap: str
    storage_url: str
    cluster_id: str
    claim_id: int
    parts: tuple[Part, ...]


def tier_task(task: Task) -> dict[str, Any]:
    """A task: what was done, for the driver."""
    return asyncio.run(_Tiering(task).run())


@contextmanager
def _made_before() -> Iterator[None]:
    """Spark runs a task again whose executor was lost: what it had made then counts as made now,
    since its answer was lost with it."""
    try:
        yield
    except ApiError as fault:
        if fault.code != ErrorCode.DUPLICATE_RESOURCE:
            raise


class _Tiering:
    def __init__(self, task: Task) -> None:
        self._task = task
        self._done: dict[str, Any] = {
            "segments": 0, "bytes_tiered": 0, "bytes_read": 0, "rows_freed": 0, "given_up": [],
            "faults": {},
        }  # fmt: skip
        self._held: dict[str, list[tuple[int, Buffer]]] = {}
        self._lost: dict[str, StorageFault] = {}

    async def run(self) -> dict[str, Any]:
        objects = await open_objects(self._task.storage_url)
        try:
            await self._read(objects)
            async with Cluster(self._task.bootstrap) as cluster:
                turn = asyncio.Semaphore(TRIES_AT_ONCE)

                async def tier(part: Part) -> None:
                    async with turn:
                        await self._tier(objects, cluster, part)

                await asyncio.gather(*map(tier, self._task.parts))
        finally:
            await objects.close()
        return self._done

    async def _tier(self, objects: ObjectStore, cluster: Cluster, part: Part) -> None:
        try:
            built = await self._built(objects, part)
            place = Place(part.topic_id, part.topic, part.partition, part.leader_id)
            leader = AtLeader(cluster, place)
            request = partial(self._request, built.segment)
            with _made_before():
                await Try(objects, leader, self._task.cluster_id, request, built).make()
        except ApiError as fault:
            if fault.code in GIVEN_UP:
                self._done["given_up"].append(part.name)
                return
            self._done["faults"][part.name] = str(fault)
        except (StorageFault, ConnectionLost) as fault:
            self._done["faults"][part.name] = str(fault)
        else:
            self._done["segments"] += 1
            self._done["bytes_tiered"] += built.segment.byte_size
            self._done["rows_freed"] += len(part.runs)

    def _request(self, segment: RemoteSegment, step: int) -> TierSegmentRequest:
        return TierSegmentRequest(
            claim_id=self._task.claim_id,
            step=step,
            topic_id=segment.key.topic_id,
            partition_index=segment.key.partition,
            segment_id=segment.segment_id,
            start_offset=segment.start_offset,
            end_offset=segment.end_offset,
            max_timestamp=segment.max_timestamp,
            byte_size=segment.byte_size,
            records_epoch=segment.leader_epochs[0].epoch,
        )

    async def _built(self, objects: ObjectStore, part: Part) -> BuiltSegment:
        snapshot = await _snapshot_before(objects, self._task.cluster_id, part)
        runs = tuple(_run(part.key, each) for each in part.runs)
        planned = PlannedSegment(part.start_offset, part.end_offset, runs)
        segment_id = SegmentId(uuid.uuid4().bytes)
        return build(part.key, segment_id, planned, self._bytes_of, snapshot, part.records_epoch)

    # Reading.

    async def _read(self, objects: ObjectStore) -> None:
        """What the task's runs span of each object, at once."""
        wanted: dict[str, list[tuple[int, int]]] = {}
        for part in self._task.parts:
            for object_key, _, _, position, size, *_ in part.runs:
                wanted.setdefault(object_key, []).append((position, position + size))
        turn = asyncio.Semaphore(READS_AT_ONCE)

        async def read(object_key: str, ranges: list[tuple[int, int]]) -> None:
            spans = list(_spans(ranges))
            async with turn:
                try:
                    pieces = await objects.read(object_key, spans)
                except StorageFault as fault:
                    self._lost[object_key] = fault
                    return
            self._held[object_key] = [
                (position, piece) for (position, _), piece in zip(spans, pieces, strict=True)
            ]
            self._done["bytes_read"] += sum(size for _, size in spans)

        await asyncio.gather(*(read(*each) for each in sorted(wanted.items())))

    def _bytes_of(self, run: Run) -> Buffer:
        if run.object_key in self._lost:
            raise self._lost[run.object_key]
        for position, piece in self._held[run.object_key]:
            at = run.byte_offset - position
            if at >= 0 and at + run.byte_size <= len(piece):
                return memoryview(piece)[at : at + run.byte_size]
        raise StorageFault(f"object {run.object_key}: {run.byte_size} bytes of it were not read")


class Place(NamedTuple):
    """A partition, and who led it when that was last told."""

    topic_id: bytes
    topic: str
    partition: int
    leader_id: int


class AtLeader:
    """Requests to the leader of a partition, whichever broker that is."""

    def __init__(self, cluster: Cluster, part: Place) -> None:
        self._cluster, self.part = cluster, part
        self._leader_id = part.leader_id

    async def send(self, request: Any) -> Any:
        """The answer. Raises ApiError and ConnectionLost."""

        async def ask() -> Any:
            try:
                answer = await self._cluster.send_to(self._leader_id, request)
                check(answer.error_code, answer.error_message)
                return answer
            except (ApiError, ConnectionLost) as fault:
                return await self._again(fault)

        answer = await self._cluster.retrying(ask)
        if isinstance(answer, ApiError):
            raise answer
        return answer

    async def _again(self, fault: ApiError | ConnectionLost) -> ApiError:
        """Before a step is repeated. Raises the fault; gives it where the try is over: clients
        would repeat these codes."""
        if isinstance(fault, ApiError) and fault.code in GIVEN_UP:
            return fault
        if isinstance(fault, ConnectionLost) or fault.code in MOVED:
            if await self._is_deleted():
                gone = f"topic {self.part.topic} was deleted"
                return ApiError(ErrorCode.FENCED_LEADER_EPOCH, gone)
            self._leader_id = await self._cluster.leader(self.part.topic, self.part.partition)
        raise fault

    async def _is_deleted(self) -> bool:
        (topic,) = (await self._cluster.metadata([self.part.topic])).topics
        is_unknown = topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return is_unknown or (not topic.error_code and topic.topic_id != self.part.topic_id)


class Try:
    """One try of a segment: performs the steps of `one_try`."""

    def __init__(
        self,
        objects: ObjectStore,
        leader: AtLeader,
        cluster_id: str,
        request: Callable[[int], Any],
        built: BuiltSegment,
        *,
        finishes: bool = True,
    ) -> None:
        self._objects, self._leader, self._cluster_id = objects, leader, cluster_id
        self._part, self._request, self._built = leader.part, request, built
        self._finishes = finishes

    async def make(self) -> None:
        """Start, put, and finish unless that is left to the driver. Raises ApiError, ConnectionLost
        and StorageFault; what was put is removed then, by a broker."""
        answer: Any = None
        steps = one_try(self._cluster_id, self._part.topic, self._built)
        with suppress(StopIteration):
            while True:
                match steps.send(answer):
                    case Call(step) if step == FINISH and not self._finishes:
                        return
                    case Call(step):
                        answer = _now_ms(), await self._step(step)
                    case PutFiles(files, lease):
                        await self._put(files, lease)
                        answer = None

    async def _put(self, files: Mapping[str, Sequence[Buffer]], lease: Lease) -> None:
        await asyncio.gather(*(self._put_file(*each, lease) for each in files.items()))

    async def _put_file(self, key: str, buffers: Sequence[Buffer], lease: Lease) -> None:
        await self._confirm(lease)
        if key.endswith(LOG):
            source = BufferSource(buffers, partial(self._confirm, lease))
            await self._objects.put_large(key, source)
        else:
            await self._objects.put(key, buffers)

    async def _confirm(self, lease: Lease) -> None:
        """Before each put: ask now and then whether the try stands. Raises ApiError where it does
        not, and StorageFault where that was not to be heard for a lease."""
        now_ms = _now_ms()
        if lease.is_old(now_ms):
            with suppress(ConnectionLost):  # the lease tells for how long
                await self._step(STANDS)
                lease.stands(now_ms)
        lease.check(_now_ms())

    async def _step(self, step: int) -> Any:
        return await self._leader.send(self._request(step))


MOVED = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    }
)
"""What a broker answers that does not lead the partition, or not any more."""


class BufferSource(Source):
    """Batches in memory; `before` is awaited before each piece."""

    def __init__(self, buffers: Sequence[Buffer], before: Callable[[], Any]) -> None:
        self.byte_size = sum(len(each) for each in buffers)
        self._buffers, self._before = buffers, before

    async def pieces(self) -> AsyncIterator[Buffer]:
        for joined in _joined(self._buffers):
            await self._before()
            yield joined


PIECE_BYTES = 4 << 20


def _joined(buffers: Sequence[Buffer]) -> Iterable[Buffer]:
    """In pieces that are worth a write."""
    taken: list[Buffer] = []
    size = 0
    for each in buffers:
        taken.append(each)
        size += len(each)
        if size >= PIECE_BYTES:
            yield b"".join(taken)
            taken, size = [], 0
    if taken:
        yield b"".join(taken)


def _spans(ranges: Sequence[tuple[int, int]]) -> Iterable[tuple[int, int]]:
    """(position, length) of what ranges span, in one piece unless much lies between."""
    first, last = -1, -1
    for begin, end in sorted(ranges):
        if first >= 0 and begin - last > MOST_GAP_BYTES:
            yield first, last - first
            first = -1
        first = begin if first < 0 else first
        last = max(last, end)
    if first >= 0:
        yield first, last - first


async def _snapshot_before(objects: ObjectStore, cluster_id: str, part: Part) -> bytes:
    if not part.before_segment_id:
        return b""
    folder = segment_folder(cluster_id, part.key, SegmentId(part.before_segment_id))
    name = folder + offset_name(part.before_end_offset, SNAPSHOT)
    (held,) = await objects.read(name, [(0, await objects.size(name))])
    return bytes(held)


def _run(key: LogKey, placed: PlacedRun) -> Run:
    object_key, base, end, position, size, timestamp, clock = placed
    return Run(key, base, end, id_of_key(object_key), object_key, position, size, timestamp, clock)


def _now_ms() -> int:
    return time.monotonic_ns() // 1_000_000
