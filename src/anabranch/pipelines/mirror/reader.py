"""Fetching many partitions of the source at once, each from its leader, into bounded buffers.

What: `Reader.run` keeps a fetch at each leader going for the partitions whose buffers have room;
`take` hands out what has come. Rules kept: order within a partition; what is buffered is bounded,
by partition and in all; a fault of one partition stops that partition, which is told in `stopped`,
and the others go on; leaders that move and connections that end are looked for again. Why beside
`client.fetch`: that asks for one topic, once.
"""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import Mapping
from typing import NamedTuple

import msgspec

from anabranch.client.cluster import Cluster, may_help
from anabranch.client.connection import Connection, ConnectionLost
from anabranch.client.fetch import whole_batches
from anabranch.core.errors import ERRORS, ApiError, ErrorCode
from anabranch.core.types import ZERO_TOPIC_ID, Buffer, TopicId
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)

Place = tuple[str, int]
BY_NAME = 12
"""The newest Fetch version that names topics."""
PARTITION_BYTES = 4 << 20
"""Most of a partition that waits to be written: some batches of the largest usual size."""
BUFFER_BYTES = 48 << 20
"""Most of all partitions together; a task holds it once more as what it writes."""
FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 2.0
GONE_SECONDS = 10.0
"""A partition that no broker knows for so long is deleted: a new one is known in less."""
GONE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID,
    ErrorCode.INCONSISTENT_TOPIC_ID,
}  # fmt: skip


class Reading(msgspec.Struct):
    """One partition on its way: where its next fetch begins, and what waits."""

    topic: str
    partition: int
    topic_id: bytes
    offset: int
    leader: int | None = None
    former_leader: int | None = None
    waiting_bytes: int = 0
    unknown_since: float | None = None


class FetchedPart(NamedTuple):
    """Whole batches of one partition; the first may begin before `start`."""

    place: Place
    start: int
    next_offset: int
    records: Buffer
    aborted: tuple[tuple[int, int], ...]
    high_watermark: int


class FetchSettings(NamedTuple):
    """Kafka's consumer settings of the same names."""

    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 50 << 20
    partition_max_bytes: int = 1 << 20
    isolation_level: int = 0


class Stopped(NamedTuple):
    """Why a partition is not read any more, and the broker's code where there is one."""

    why: str
    code: ErrorCode | None = None


class Reader:
    """The fetches of one task."""

    def __init__(self, cluster: Cluster, settings: FetchSettings) -> None:
        self.stopped: dict[Place, Stopped] = {}
        self._cluster = cluster
        self._settings = settings
        self._readings: dict[Place, Reading] = {}
        self._parts: deque[FetchedPart] = deque()
        self._waiting_bytes = 0
        self._arrived = asyncio.Event()
        self._has_room = asyncio.Event()
        self._busy: dict[int, asyncio.Task[None]] = {}
        self._pause = FIRST_PAUSE_SECONDS

    def begin(self, topic: str, partition: int, topic_id: bytes, offset: int) -> None:
        """Read a partition from an offset on, perhaps again."""
        place = topic, partition
        self._readings[place] = Reading(topic, partition, topic_id, offset)
        self.stopped.pop(place, None)
        self._has_room.set()

    def stop(self, place: Place, why: Stopped) -> None:
        """Read a partition no more, and give up what waits of it."""
        self._readings.pop(place, None)
        self.stopped[place] = why
        kept = deque(each for each in self._parts if each.place != place)
        self._waiting_bytes = sum(len(each.records) for each in kept)
        self._parts = kept
        self._arrived.set()

    async def run(self) -> None:
        """Fetch until cancelled."""
        try:
            while True:
                await self._find_leaders()
                for leader in {each.leader for each in self._readings.values()} - {None}:
                    assert leader is not None
                    if leader not in self._busy and self._wanted(leader):
                        self._busy[leader] = asyncio.create_task(self._fetch(leader))
                await self._change()
        finally:
            for task in self._busy.values():
                task.cancel()
            await asyncio.gather(*self._busy.values(), return_exceptions=True)

    async def _change(self) -> None:
        """Wait until a fetch has ended or there is room again."""
        self._has_room.clear()
        room = asyncio.create_task(self._has_room.wait())
        timeout = self._pause if self._homeless() else None
        try:
            done, _ = await asyncio.wait(
                [room, *self._busy.values()], return_when=asyncio.FIRST_COMPLETED, timeout=timeout
            )
        finally:
            room.cancel()
        for leader, task in list(self._busy.items()):
            if task in done:
                del self._busy[leader]
                task.result()

    def _homeless(self) -> list[Reading]:
        return [each for each in self._readings.values() if each.leader is None]

    async def _find_leaders(self) -> None:
        homeless = self._homeless()
        if not homeless:
            self._pause = FIRST_PAUSE_SECONDS
            return
        try:
            found = await self._cluster.metadata(sorted({each.topic for each in homeless}))
        except (ApiError, ConnectionLost) as fault:
            self._lengthen(fault, homeless)
            return
        topics = {each.name: each for each in found.topics}
        now = asyncio.get_running_loop().time()
        for each in homeless:
            topic = topics[each.topic]
            if each.topic_id not in (ZERO_TOPIC_ID, topic.topic_id) and not topic.error_code:
                self._stop_gone(each, ErrorCode.UNKNOWN_TOPIC_ID)
                continue
            leaders = {part.partition_index: part.leader_id for part in topic.partitions}
            leader = leaders.get(each.partition, -1)
            if topic.error_code in GONE or each.partition not in leaders:
                self._unknown(each, now)
            elif topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                self._refused(each, ErrorCode.TOPIC_AUTHORIZATION_FAILED)
            elif each.former_leader not in (None, leader) and leader >= 0:
                place = each.topic, each.partition
                self.stop(place, Stopped("Its leader moved.", ErrorCode.FENCED_LEADER_EPOCH))
            elif leader >= 0:
                each.leader, each.former_leader, each.unknown_since = leader, leader, None
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def _lengthen(self, fault: Exception, homeless: list[Reading]) -> None:
        if not may_help(fault):
            for each in homeless:
                self.stop((each.topic, each.partition), Stopped(str(fault)))
        self._pause = min(self._pause * 2, LONGEST_PAUSE_SECONDS)

    def _unknown(self, reading: Reading, now: float) -> None:
        reading.leader = None
        reading.unknown_since = reading.unknown_since or now
        if now - reading.unknown_since > GONE_SECONDS:
            self._stop_gone(reading, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)

    def _stop_gone(self, reading: Reading, code: ErrorCode) -> None:
        place = reading.topic, reading.partition
        why = "the topic was deleted at the source, or deleted and created again"
        self.stop(place, Stopped(f"{reading.topic}-{reading.partition}: {why}.", code))

    def _refused(self, reading: Reading, code: ErrorCode) -> None:
        name = f"{reading.topic}-{reading.partition}"
        remedy = ""
        if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            remedy = " Give the mirror READ and DESCRIBE on the topic at the source."
        why = f"{name} cannot be read: {ERRORS[code].sentence}{remedy}"
        self.stop((reading.topic, reading.partition), Stopped(why, code))

    def _wanted(self, leader: int) -> list[Reading]:
        if self._waiting_bytes >= BUFFER_BYTES:
            return []
        return [
            each
            for each in self._readings.values()
            if each.leader == leader and each.waiting_bytes < PARTITION_BYTES
        ]

    async def _fetch(self, leader: int) -> None:
        wanted = self._wanted(leader)
        try:
            connection = await self._cluster.connection_to(leader)
            request = self._request(wanted, connection)
            version = connection.version_for(FetchRequest.api_key)
            if request.topics[0].topic_id == ZERO_TOPIC_ID:
                version = min(BY_NAME, version)
            response: FetchResponse = await connection.send(request, version)
            if response.error_code:
                raise ApiError(ErrorCode(response.error_code))
        except (ApiError, ConnectionLost) as fault:
            for each in wanted:
                each.leader = None
            if not may_help(fault) and getattr(fault, "code", None) not in GONE:
                self._lengthen(fault, wanted)
            return
        places = {(each.topic_id, each.partition): each for each in wanted}
        by_name = {(each.topic, each.partition): each for each in wanted}
        for topic in response.responses:
            for part in topic.partitions:
                reading = by_name.get((topic.topic, part.partition_index)) or places.get(
                    (topic.topic_id, part.partition_index)
                )
                if reading is not None:
                    self._take(reading, part)

    def _request(self, wanted: list[Reading], connection: Connection) -> FetchRequest:
        by_topic: dict[tuple[str, bytes], list[FetchPartition]] = defaultdict(list)
        has_ids = all(each.topic_id != ZERO_TOPIC_ID for each in wanted)
        for each in wanted:
            topic_id = each.topic_id if has_ids else ZERO_TOPIC_ID
            by_topic[each.topic, topic_id].append(
                FetchPartition(
                    partition=each.partition, fetch_offset=each.offset,
                    partition_max_bytes=self._settings.partition_max_bytes,
                )
            )  # fmt: skip
        settings = self._settings
        return FetchRequest(
            max_wait_ms=settings.max_wait_ms, min_bytes=settings.min_bytes,
            max_bytes=settings.max_bytes, isolation_level=settings.isolation_level,
            topics=[
                FetchTopic(topic=topic, topic_id=TopicId(topic_id), partitions=partitions)
                for (topic, topic_id), partitions in by_topic.items()
            ],
        )  # fmt: skip

    def _take(self, reading: Reading, part: PartitionData) -> None:
        place = reading.topic, reading.partition
        if self._readings.get(place) is not reading:
            return
        if part.error_code:
            self._failed(reading, ErrorCode(part.error_code))
            return
        records = part.records or b""
        size, next_offset = whole_batches(records)
        if not size:
            return
        aborted = tuple(
            (each.producer_id, each.first_offset) for each in part.aborted_transactions or ()
        )
        if next_offset <= reading.offset:
            self.stop(place, Stopped(
                f"{place[0]}-{place[1]}: what broker {reading.leader} sent for offset "
                f"{reading.offset} is not a complete batch; its copy of the log is damaged there. "
                "If another replica has it whole, make that broker the leader."
            ))  # fmt: skip
            return
        self._parts.append(
            FetchedPart(
                place, reading.offset, next_offset, memoryview(records)[:size], aborted,
                part.high_watermark,
            )
        )  # fmt: skip
        reading.offset = next_offset
        reading.waiting_bytes += size
        self._waiting_bytes += size
        self._arrived.set()

    def _failed(self, reading: Reading, code: ErrorCode) -> None:
        reading.leader = None
        if code == ErrorCode.OFFSET_OUT_OF_RANGE:
            name = f"{reading.topic}-{reading.partition}"
            why = f"{name}: the source has no offset {reading.offset}"
            self.stop((reading.topic, reading.partition), Stopped(why, code))
        elif code in GONE:
            self._unknown(reading, asyncio.get_running_loop().time())
        elif not ERRORS[code].retriable:
            self._refused(reading, code)

    async def arrived(self, seconds: float) -> bool:
        """Wait until something can be taken, or a partition has stopped; False after `seconds`."""
        if self._parts:
            return True
        self._arrived.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._arrived.wait()
        except TimeoutError:
            return False
        return True

    def take(self, most_bytes: int) -> list[FetchedPart]:
        """What has come, in order, about `most_bytes` of it."""
        taken, size = [], 0
        while self._parts and size < most_bytes:
            part = self._parts.popleft()
            size += len(part.records)
            reading = self._readings.get(part.place)
            if reading is not None:
                reading.waiting_bytes -= len(part.records)
            taken.append(part)
        self._waiting_bytes -= size
        self._has_room.set()
        return taken

    @property
    def offsets(self) -> Mapping[Place, int]:
        """Where each partition's next fetch begins."""
        return {place: each.offset for place, each in self._readings.items()}
