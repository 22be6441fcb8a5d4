"""One slot for one wave: fetch, restamp, produce, and note how far, until the wave's time is over.

What: `run_slot` goes round after round: it takes what has been fetched, writes it, and notes
position and index with it. While a round is under way, fetches go on. Rules kept: it begins where
the target's positions say, which it reads after its transactional id is its own; a partition that
cannot be mirrored stands still and is told, the others go on; after a lost connection or a failed
round it begins again from the positions, as long as the wave lasts.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field

from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.fetch import list_offsets
from anabranch.client.lanes import ProduceFailed
from anabranch.client.ranges import ReadingStalled
from anabranch.client.transactional_producer import CommitUnknown, MustAbort, ProducerFenced
from anabranch.core.errors import ERRORS, ApiError, ErrorCode
from anabranch.core.mirror.config import Flow
from anabranch.core.mirror.figures import Moved
from anabranch.core.mirror.formats import Position, position_record
from anabranch.core.mirror.index import Chunk, chunk_value
from anabranch.core.mirror.landed import chunks_after, is_other_topic, notes_position
from anabranch.core.mirror.repack import RecordTooLarge
from anabranch.core.mirror.restamp import Fit, Outgoing
from anabranch.core.mirror.wave_plan import (
    Start,
    counted_position,
    is_superseded,
    start_of,
    transactional_id,
)
from anabranch.core.partition.protocol import READ_COMMITTED
from anabranch.core.types import EARLIEST, LATEST
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.compression import Codec
from anabranch.pipelines.mirror.batches import DamagedBatch, Packer
from anabranch.pipelines.mirror.clusters import cluster_of
from anabranch.pipelines.mirror.divergence import epoch_ends
from anabranch.pipelines.mirror.positions import Ledger
from anabranch.pipelines.mirror.reader import FetchedPart, FetchSettings, Place, Reader, Stopped
from anabranch.pipelines.mirror.rights import missing_right
from anabranch.pipelines.mirror.work import PartitionWork, SlotAnswer, SlotWork
from anabranch.pipelines.mirror.writer import AtLeastOnce, ExactlyOnce, KeyedRecords, Sent

ROUND_BYTES = 16 << 20
"""Most of a round: its transaction ends within a second even on a slow disk."""
PAUSE_SECONDS = 1.0
LOOK_SECONDS = 0.25
"""How often an idle slot looks at the clock."""
ASK_SECONDS = 10.0
"""For where a partition begins at the source: a new leader is known in less."""
AT_ONCE = 16
"""Partitions that are asked about at the same time."""
MOST_NOTES = 50
DECIDED_AGAIN = {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.FENCED_LEADER_EPOCH}
"""Why a partition stops that goes on from where the source's log is found to be: an offset that it
does not have, a leader that moved and may not have all."""
TROUBLE = (ApiError, ConnectionLost, ProduceFailed, MustAbort, CommitUnknown, ReadingStalled)


class PlanSuperseded(Exception):
    """The partitions of this slot may be another one's by now; the text says whose."""


@dataclass
class Track:
    """One partition of the source: what is noted of it, and what is to be."""

    work: PartitionWork
    fit: Fit
    begins: bool
    chunk: Chunk | None
    position: int
    """The last offset that was mirrored."""
    noted_position: int
    unnoted: list[Chunk] = field(default_factory=list)
    """Chunks that grew since the last note, the newest last."""


@dataclass
class Packed:
    """What becomes of one part, and the last offset that it stands for."""

    track: Track
    outgoing: list[Outgoing]
    last: int
    leader_epoch: int


async def run_slot(work: SlotWork, seconds: float) -> SlotAnswer:
    """Mirror for `seconds`; faults are in the answer."""
    slot = Slot(work, asyncio.get_running_loop().time() + seconds)
    await slot.run()
    return slot.answer


class Slot:
    """The state of one slot in one wave."""

    def __init__(self, work: SlotWork, deadline: float) -> None:
        self.work = work
        self.flow: Flow = work.flow
        self.answer = SlotAnswer(flow=work.flow.name, slot=work.slot)
        self._deadline = deadline
        self._packer = Packer(read_committed=work.flow.read_committed)
        self._tracks: dict[Place, Track] = {}
        self._moved: dict[Place, Moved] = {}
        self._noted_at = 0.0
        self._deciding: set[asyncio.Task[None]] = set()
        self._asking = asyncio.Semaphore(AT_ONCE)

    def _left(self) -> float:
        return self._deadline - asyncio.get_running_loop().time()

    async def run(self) -> None:
        """Mirror until the time is over."""
        while self._left() > 0 and self.work.partitions:
            try:
                await self._live()
                break
            except (ProducerFenced, PlanSuperseded) as fault:
                self.answer.is_superseded = isinstance(fault, PlanSuperseded)
                self._note(f"Slot {self.work.slot} of {self.flow.name} ended: {fault}")
                break
            except TROUBLE as fault:
                right = missing_right(getattr(fault, "code", None), self._rights())
                self._note(f"{self.flow.name}: {fault}{right}")
                await asyncio.sleep(max(0.0, min(PAUSE_SECONDS, self._left())))
        self.answer.opened = {str(why): count for why, count in self._packer.opened.items()}
        self.answer.whole = self._packer.whole
        self.answer.moved = list(self._moved.values())

    def _rights(self) -> str:
        """What a slot as a whole needs on the target."""
        topics = f"WRITE and READ on topics that begin with mm2- on {self.flow.target}"
        ids = f"WRITE on transactional ids that begin with {self.flow.source}-"
        return f"{topics}, and {ids}" if self.flow.is_exactly_once else topics

    def _note(self, sentence: str) -> None:
        if len(self.answer.notes) < MOST_NOTES and sentence not in self.answer.notes:
            self.answer.notes.append(sentence)

    async def _live(self) -> None:
        client, target_client = self.flow.source_client, self.flow.target_client
        async with cluster_of(client, "source") as source, cluster_of(
            target_client, "target"
        ) as target:  # fmt: skip
            writer = await self._open(target)
            reader = Reader(source, fetch_settings(self.flow))
            fetching = None
            try:
                await self._begin(source, target, reader)
                self.answer.is_live = True
                fetching = asyncio.create_task(reader.run())
                await self._copy(source, reader, writer, fetching)
            finally:
                for each in self._deciding:
                    each.cancel()
                if fetching is not None:
                    fetching.cancel()
                    with suppress(asyncio.CancelledError, *TROUBLE):
                        await fetching
                await writer.close()

    async def _open(self, target: Cluster) -> AtLeastOnce:
        if self.flow.is_exactly_once:
            name = transactional_id(self.flow.source, self.work.slot)
            return await ExactlyOnce.open_as(target, name)
        return await AtLeastOnce.open(target)

    # Where partitions begin.

    async def _begin(self, source: Cluster, target: Cluster, reader: Reader) -> None:
        ledger = Ledger(self.flow.policy)
        ledger.positions_read_to = dict(self.work.positions_read_to)
        ledger.index_read_to = dict(self.work.index_read_to)
        ledger.plan = self.work.newest_plan
        for each in self.work.partitions:
            if each.position is not None:
                ledger.positions[each.place] = each.position
            if each.chunk is not None:
                ledger.take_chunk(each.chunk)
        await ledger.read(target, settled=True)
        if is_superseded(self.work.plan, ledger.plan):
            raise PlanSuperseded("another driver of this mirror, or a later wave, has its work.")
        self._tracks = {}
        ends = await self._epoch_ends(source, ledger)
        for each in self.work.partitions:
            chunk = _newest(ledger, each)
            others = is_other_topic(chunk, each.origin)
            position = counted_position(
                ledger.positions.get(each.place),
                None if chunk is None or any(others) else chunk.runs[-1].upstream_end,
                is_exactly_once=self.flow.is_exactly_once,
            )
            end = ends.get(each.place)
            is_cut = position is not None and end is not None and end <= position
            if position is None or any(others) or is_cut:
                self._decide_later(source, reader, each, chunk, position)
            else:
                self._track(reader, each, chunk, Start(position + 1, False))

    async def _epoch_ends(self, source: Cluster, ledger: Ledger) -> dict[Place, int]:
        """Where the source's log ends for the leader epochs that were mirrored last."""
        epochs = {
            each.place: epoch
            for each in self.work.partitions
            if (epoch := _epoch(each, _newest(ledger, each))) >= 0
        }
        return await epoch_ends(source, epochs)

    def _decide_later(
        self, source: Cluster, reader: Reader, each: PartitionWork, chunk: Chunk | None,
        position: int | None,
    ) -> None:  # fmt: skip
        """Begin a partition whose position does not say it all, while the others go on."""
        work = self._decide(source, reader, each, chunk, position)
        task = asyncio.create_task(work)
        self._deciding.add(task)
        task.add_done_callback(self._deciding.discard)

    async def _decide(
        self, source: Cluster, reader: Reader, each: PartitionWork, chunk: Chunk | None,
        position: int | None,
    ) -> None:  # fmt: skip
        name = f"{each.topic}-{each.partition}"
        try:
            async with self._asking, asyncio.timeout(ASK_SECONDS):
                starts = await list_offsets(source, each.topic, EARLIEST, [each.partition])
                ends = await list_offsets(source, each.topic, LATEST, [each.partition])
                epoch = _epoch(each, chunk)
                known = await epoch_ends(source, {each.place: epoch} if epoch >= 0 else {})
        except TimeoutError:
            why = f"{name}: the source does not say where it begins; was it deleted?"
            reader.stop(each.place, Stopped(why))
            return
        except (ApiError, ConnectionLost) as fault:
            reader.stop(each.place, Stopped(f"{name}: {fault}"))
            return
        others = is_other_topic(chunk, each.origin)
        start = start_of(
            each.place, position, log_start=starts[each.partition], log_end=ends[each.partition],
            from_latest=self.flow.from_latest, diverged_at=known.get(each.place),
            other_source=others[0], other_target=others[1],
        )  # fmt: skip
        if start.why:
            self._note(f"{self.flow.name}: {start.why}")
        kept = None if start.begins else chunk
        self._track(reader, each, kept, start)

    def _track(
        self, reader: Reader, each: PartitionWork, chunk: Chunk | None, start: Start
    ) -> None:
        fit = fit_of(self.flow, each.limit_bytes)
        track = Track(each, fit, start.begins, chunk, start.offset - 1, start.offset - 1)
        self._tracks[each.place] = track
        reader.begin(each.topic, each.partition, each.source_id, start.offset)

    # Rounds.

    async def _copy(
        self, source: Cluster, reader: Reader, writer: AtLeastOnce, fetching: asyncio.Task[None]
    ) -> None:
        while (left := self._left()) > 0:
            await reader.arrived(min(left, LOOK_SECONDS))
            if fetching.done():
                fetching.result()
            if any(place in self._tracks for place in reader.stopped):
                await self._write_notes(writer)
                self._look_at_stopped(source, reader)
            await self._round(writer, reader, reader.take(ROUND_BYTES))
            await self._note_if_due(writer)
        for place, stopped in reader.stopped.items():
            if stopped.code not in DECIDED_AGAIN:
                self.answer.faults.setdefault(f"{place[0]}-{place[1]}", stopped.why)
        await self._write_notes(writer)

    def _look_at_stopped(self, source: Cluster, reader: Reader) -> None:
        for place, stopped in list(reader.stopped.items()):
            track = self._tracks.pop(place, None)
            if track is not None and stopped.code in DECIDED_AGAIN:
                self._decide_later(source, reader, track.work, track.chunk, track.position)
                reader.stopped.pop(place)
                continue
            self.answer.faults.setdefault(f"{place[0]}-{place[1]}", stopped.why)

    async def _round(self, writer: AtLeastOnce, reader: Reader, parts: list[FetchedPart]) -> None:
        began, arrived_ms = time.monotonic(), _now_ms()
        packed = [each for part in parts if (each := self._packed(reader, part)) is not None]
        if not packed:
            return
        try:
            await self._write(writer, packed)
        except (MustAbort, ProduceFailed) as fault:
            if fault.code is None or ERRORS[fault.code].retriable:
                raise
            await writer.abort()
            await self._alone(writer, reader, parts, fault)
            return
        self.answer.rounds += 1
        self.answer.latency_ms += (time.monotonic() - began) * 1000
        landed_ms = _now_ms()
        for each in packed:
            self._count(each.track.work, each.outgoing, arrived_ms, landed_ms)

    def _count(
        self, work: PartitionWork, batches: list[Outgoing], arrived_ms: int, landed_ms: int
    ) -> None:
        moved = self._moved.setdefault(work.place, Moved(work.remote, work.partition))
        for batch, runs in batches:
            records = sum(run.records for run in runs)
            self.answer.size_bytes += len(batch)
            self.answer.records += records
            header = read_header(batch, 0)
            times = header.base_timestamp, header.max_timestamp
            moved.add(records, len(batch), times, arrived_ms=arrived_ms, landed_ms=landed_ms)

    async def _alone(
        self, writer: AtLeastOnce, reader: Reader, parts: list[FetchedPart],
        fault: MustAbort | ProduceFailed,
    ) -> None:  # fmt: skip
        """After a refusal for good: each partition in a round of its own, to find whose fault it
        is."""
        places = list(dict.fromkeys(part.place for part in parts))
        if len(places) == 1:
            right = missing_right(fault.code, f"WRITE on its topic on {self.flow.target}")
            reader.stop(places[0], Stopped(f"{fault}{right}", fault.code))
            return
        for place in places:
            await self._round(writer, reader, [each for each in parts if each.place == place])

    def _packed(self, reader: Reader, part: FetchedPart) -> Packed | None:
        track = self._tracks.get(part.place)
        if track is None:
            return None
        outgoing: list[Outgoing] = []
        last = part.next_offset - 1
        try:
            for each in self._packer.pack(part, track.fit):
                outgoing.append(each)
        except (DamagedBatch, RecordTooLarge) as fault:
            reader.stop(part.place, Stopped(_told(part.place, fault)))
            if not outgoing:
                return None
            run = outgoing[-1].runs[-1]
            last = run.first + run.records - 1
        return Packed(track, outgoing, last, self._packer.leader_epoch)

    async def _write(self, writer: AtLeastOnce, packed: list[Packed]) -> None:
        writer.begin()
        sent = [
            Sent(each.track.work.remote, each.track.work.partition, outgoing)
            for each in packed
            for outgoing in each.outgoing
        ]
        landed = iter(await writer.send(sent))
        chunks: dict[Place, list[Chunk]] = {}
        for each in packed:
            runs = [run for _ in each.outgoing for run in next(landed)]
            grown = chunks.setdefault(each.track.work.place, [])
            grown += chunks_after(
                grown[-1] if grown else each.track.chunk, runs, each.track.work.origin,
                begins=each.track.begins, leader_epoch=each.leader_epoch,
            )  # fmt: skip
        lasts = {each.track.work.place: each.last for each in packed}
        if writer.is_exactly_once:
            index = self._index_of(chunk for all in chunks.values() for chunk in all)
            await writer.note(index, self._positions_of(lasts, chunks))
            await writer.end()
        for place, grown in chunks.items():
            track = self._tracks[place]
            track.position = lasts[place]
            track.chunk = grown[-1] if grown else track.chunk
            if writer.is_exactly_once:
                track.noted_position = track.position
            else:
                track.unnoted += grown

    # Notes.

    def _index_of(self, chunks: Iterable[Chunk]) -> KeyedRecords:
        records: dict[bytes, bytes | None] = {each.key: chunk_value(each) for each in chunks}
        topic = self.flow.policy.index_topic()
        return KeyedRecords(topic, self.work.index_partitions, records)

    def _positions_of(
        self, lasts: Mapping[Place, int], chunks: Mapping[Place, list[Chunk]]
    ) -> KeyedRecords:
        """Positions, beside the chunks that are written with them."""
        records = dict(
            position_record(Position(self.flow.source, *place, last))
            for place, last in lasts.items()
            if self._has_index(self._tracks[place], chunks.get(place))
        )
        topic = self.flow.policy.positions_topic()
        return KeyedRecords(topic, self.work.positions_partitions, records)

    def _has_index(self, track: Track, grown: list[Chunk] | None) -> bool:
        newest = grown[-1] if grown else track.chunk
        return notes_position(newest, begins=track.begins, from_latest=self.flow.from_latest)

    async def _note_if_due(self, writer: AtLeastOnce) -> None:
        now = asyncio.get_running_loop().time()
        due = self._noted_at + self.flow.number("offset.flush.interval.ms") / 1000
        if not writer.is_exactly_once and now >= due:
            self._noted_at = now
            await self._write_notes(writer)

    async def _write_notes(self, writer: AtLeastOnce) -> None:
        """Without transactions: what was acknowledged since the last note."""
        moved = [each for each in self._tracks.values() if each.position != each.noted_position]
        if not moved or writer.is_exactly_once:
            return
        await writer.note(self._index_of(chunk for each in moved for chunk in each.unnoted))
        lasts = {each.work.place: each.position for each in moved}
        await writer.note(self._positions_of(lasts, {}))
        for each in moved:
            each.unnoted.clear()
            each.noted_position = each.position


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _newest(ledger: Ledger, work: PartitionWork) -> Chunk | None:
    """The newest chunk of the topics that are there now, or else of older ones."""
    return ledger.newest(work.place, source_id=work.source_id, target_id=work.target_id)


def _epoch(work: PartitionWork, chunk: Chunk | None) -> int:
    """The source's leader epoch of the last mirrored batch; -1 where it is not known, or of another
    topic."""
    return -1 if chunk is None or any(is_other_topic(chunk, work.origin)) else chunk.leader_epoch


def _told(place: Place, fault: Exception) -> str:
    name = f"{place[0]}-{place[1]}"
    if isinstance(fault, RecordTooLarge):
        return f"{name}: {fault}. Raise max.message.bytes of the target's topic."
    return str(fault)


def fit_of(flow: Flow, limit_bytes: int) -> Fit:
    """What the target takes, by the flow's producer settings and the topic's limit."""
    largest = flow.target_client["max.request.size"]
    codec = flow.target_client["compression.type"]
    return Fit(
        min(limit_bytes, int(largest)) if largest else limit_bytes,
        Codec[codec.upper()] if codec else None,
    )


def fetch_settings(flow: Flow) -> FetchSettings:
    """The source's consumer settings."""
    client = flow.source_client
    return FetchSettings(
        max_wait_ms=int(client["fetch.max.wait.ms"]),
        min_bytes=int(client["fetch.min.bytes"]),
        max_bytes=int(client["fetch.max.bytes"]),
        partition_max_bytes=int(client["max.partition.fetch.bytes"]),
        isolation_level=READ_COMMITTED if flow.read_committed else 0,
    )
