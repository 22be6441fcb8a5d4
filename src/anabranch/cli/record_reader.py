"""Reads the records of a topic for `anabranch consume`.

What: `Reader` fetches from the leaders of the partitions that it was given, and leaves out control
batches and, for read_committed, aborted ones. Rules kept: a batch that cannot be read is a fault,
after all that came before it; an offset of a topic is no offset of one that was created later with
its name; a partition without a leader is named, and the others go on. Not here: which
partitions a group gives (`group_reader`), how a record is printed.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.cluster_command import Refused

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.fetch import Fetched
    from anabranch.core.wire.records import Record

POLL_MS = 500
GROWTH_SECONDS = 10.0
"""How often one that reads a whole topic looks for partitions that were added."""
LOOK_SECONDS = 0.5
"""How often one looks for leaders of partitions that have none."""
MOST_NAMED = 10
BATCH_LIMIT_BYTES = 256 << 20
DAMAGED = "CORRUPT_MESSAGE"
"""As Kafka's clients call what they cannot read."""


class Reader:
    """Reads partitions of one topic from their leaders, batch by batch."""

    def __init__(self, cluster: Cluster, topic: str, isolation_level: int) -> None:
        self.cluster = cluster
        self.topic = topic
        self.topic_id: bytes = b""
        self._isolation_level = isolation_level
        self._leaders: dict[int, int] = {}
        """Of every partition that is to be read, -1 while it has none."""
        self._offsets: dict[int, int] = {}
        self._owed: dict[int, tuple[int, int]] = {}
        """The partitions of which no leader has told yet where to begin: what a group committed, or
        -1, and EARLIEST or LATEST for where that does not count."""
        self._named: set[int] = set()
        """Those that were said to have no leader."""
        self._unreadable: Refused | None = None
        self._reads_all = False
        self._only: int | None = None
        self._looked_s = 0.0
        self._count = 0
        self._first_count: int | None = None

    async def take(
        self, partitions: Sequence[int], committed: Mapping[int, int], start: str
    ) -> None:
        """Read these partitions from now on: from where a group stopped, the others from `start`.
        An offset that retention removed counts as none. Partitions that were added meanwhile are
        read from their beginning: all that they have is newer than the command."""
        from anabranch.core.types import EARLIEST, LATEST

        if await self._learn(partitions):
            self._first_count, committed = 0, {}
        if self._first_count is None:
            self._first_count = self._count
        new = EARLIEST if start == "earliest" else LATEST
        self._unreadable = None
        self._offsets = {}
        self._owed = {
            each: (committed.get(each, -1), new if each < self._first_count else EARLIEST)
            for each in partitions
        }
        await self._begin_owed()

    def shown(self, records: Sequence[tuple[int, Record]], count: int) -> None:
        """Only the first of the records that came last were printed."""
        for partition, record in reversed(records[count:]):
            self._offsets[partition] = record.offset

    @property
    def positions(self) -> dict[int, int]:
        """The next offset of each partition, as far as it is known."""
        return dict(self._offsets)

    @property
    def waiting(self) -> list[int]:
        """The partitions that cannot be read now, for want of a leader that is ready."""
        return sorted(self._leaderless | self._owed.keys())

    @property
    def _leaderless(self) -> set[int]:
        brokers = self.cluster.brokers
        return {each for each, leader in self._leaders.items() if leader not in brokers}

    async def begin(self, start: str, partition: int | None) -> None:
        """Find where to start in each partition; at least one must have a leader."""
        from anabranch.client.cluster import no_leader
        from anabranch.client.fetch import list_offsets
        from anabranch.core.types import EARLIEST, LATEST

        if partition is None:
            await self.cluster.topic(self.topic)
        else:
            await self.cluster.partition(self.topic, partition)

        async def learn() -> None:
            await self._learn(None if partition is None else [partition])
            if len(self._leaderless) == len(self._leaders):
                raise no_leader(self.topic, partition or 0)

        await self.cluster.retrying(learn)
        self._reads_all, self._only = partition is None, partition
        if start.isdigit():
            self._offsets = dict.fromkeys(self._leaders, int(start))
            await list_offsets(self.cluster, self.topic, LATEST, self._offsets)
            return
        kind = EARLIEST if start == "earliest" else LATEST
        self._owed = dict.fromkeys(self._leaders, (-1, kind))
        await self._begin_owed()

    async def _learn(self, among: Collection[int] | None) -> bool:
        """Who leads those partitions, or all; whether the topic is another than the one that was
        read, and is told so."""
        found = await self.cluster.topic(self.topic)
        self._leaders = {
            each.partition_index: each.leader_id
            for each in found.partitions
            if among is None or each.partition_index in among
        }
        self._count, self._looked_s = len(found.partitions), time.monotonic()
        before, self.topic_id = self.topic_id, found.topic_id
        is_another = before not in (b"", found.topic_id)
        if is_another:
            said = f"Topic {self.topic} was deleted and created again"
            click.echo(f"{said}: it is read from its beginning.", err=True)
        return is_another

    async def _look_again(self) -> None:
        """Who leads now; the beginning of partitions that were added, as in `take`, and of a topic
        that took the place of what was read."""
        from anabranch.core.types import EARLIEST

        known = {*self._offsets, *self._owed}
        if await self._learn(None if self._reads_all else known):
            self._offsets, self._owed, known = {}, {}, set()
        if self._only is not None and self._only not in self._leaders:
            there = f"it has {self._count}"
            why = f"Topic {self.topic} has no partition {self._only} any more: {there}."
            raise Refused(why, code="UNKNOWN_TOPIC_OR_PARTITION")
        self._owed |= dict.fromkeys(self._leaders.keys() - known, (-1, EARLIEST))
        await self._begin_owed()

    async def _begin_owed(self) -> None:
        """Find where to begin in partitions that have a leader now; name those that have none."""
        from anabranch.client.fetch import list_offsets
        from anabranch.core.types import EARLIEST, LATEST

        async def listed(kind: int, among: list[int]) -> dict[int, int]:
            return await list_offsets(self.cluster, self.topic, kind, among, ready_only=True)

        led = self._leaders.keys() - self._leaderless
        if ready := [each for each in self._owed if each in led]:
            begin = await listed(EARLIEST, ready)
            from_begin = {
                each: at for each, at in begin.items() if self._owed[each] == (-1, EARLIEST)
            }
            others = [each for each in begin if each not in from_begin]
            end = await listed(LATEST, others) if others else {}
            self._offsets |= from_begin
            for each, last in end.items():
                at, kind = self._owed[each]
                new = begin[each] if kind == EARLIEST else last
                self._offsets[each] = at if begin[each] <= at <= last else new
            for each in (*from_begin, *end):
                del self._owed[each]
        if news := sorted(self._leaderless - self._named):
            click.echo(f"Not read until there is a leader: {named(self.topic, news)}.", err=True)
        self._named = self._leaderless

    def _is_due(self) -> bool:
        """Whether it is time to look for leaders, or for partitions that were added."""
        waits = bool(self.waiting)
        pause = LOOK_SECONDS if waits else GROWTH_SECONDS
        return (waits or self._reads_all) and time.monotonic() - self._looked_s >= pause

    async def poll(self) -> list[tuple[int, Record]]:
        """What has come: (partition, record), in the order of each partition. Raises Refused for a
        batch that cannot be read, once all before it was given."""
        from anabranch.client.cluster import may_help
        from anabranch.client.connection import ConnectionLost
        from anabranch.client.fetch import fetch
        from anabranch.core.errors import ApiError

        async def again() -> list[Fetched]:
            leaderless = self._leaderless
            offsets = {each: at for each, at in self._offsets.items() if each not in leaderless}
            if not offsets:
                await asyncio.sleep(POLL_MS / 1000)
                return []
            try:
                return await fetch(
                    self.cluster, self.topic, offsets, leaders=self._leaders,
                    max_wait_ms=POLL_MS, isolation_level=self._isolation_level,
                    topic_id=self.topic_id,
                )  # fmt: skip
            except (ApiError, ConnectionLost) as fault:
                if may_help(fault):
                    await self._look_again()
                raise

        if self._unreadable is not None:
            raise self._unreadable
        if self._is_due():
            await self.cluster.retrying(self._look_again)
        found = await self.cluster.retrying(again)
        records = [(each.partition, record) for each in found for record in self._records(each)]
        if not records and self._unreadable is not None:
            raise self._unreadable
        return records

    def _records(self, fetched: Fetched) -> Iterator[Record]:
        """The records that can be read; the position moves with them, batch by batch."""
        from anabranch.core.errors import ProtocolError
        from anabranch.core.wire.batch import walk

        partition, wanted = fetched.partition, self._offsets[fetched.partition]
        skipping = Aborted(fetched.aborted)
        try:
            for position, header in walk(fetched.records):
                if not skipping.skips(header, fetched.records, position):
                    try:
                        found = _decoded(fetched.records, position, header)
                    except ProtocolError as fault:
                        self._unreadable = unreadable(self.topic, partition, header, fault)
                        return
                    yield from (record for record in found if record.offset >= wanted)
                self._offsets[partition] = max(wanted, header.next_offset)
        except ProtocolError as fault:
            place = (
                f"{self.topic}-{partition} cannot be read from offset {self._offsets[partition]}"
            )
            self._unreadable = Refused(f"{place}: {fault}.", code=DAMAGED)


def _decoded(records: Any, position: int, header: Any) -> list[Record]:
    """The records of one batch. Raises ProtocolError, for one that is not as it was written too."""
    from anabranch.core.errors import ProtocolError
    from anabranch.core.wire.batch import crc_is_valid
    from anabranch.core.wire.records import decode_records

    if not crc_is_valid(records, position, header.size_bytes):
        raise ProtocolError("RecordBatch", 2, "", position, "the checksum does not match")
    return decode_records(records, position, limit_bytes=BATCH_LIMIT_BYTES)


def named(topic: str, partitions: Sequence[int]) -> str:
    """Partitions, the first of them by name."""
    first = ", ".join(f"{topic}-{each}" for each in partitions[:MOST_NAMED])
    return f"{first}, …" if len(partitions) > MOST_NAMED else first


def unreadable(topic: str, partition: int, header: Any, fault: Exception) -> Refused:
    """What is said of a batch that cannot be read, and how to read what follows it."""
    offsets = f"offsets {header.base_offset} to {header.last_offset}"
    return Refused(
        f"{topic}-{partition}: the batch with the {offsets} cannot be read: {fault}.",
        code=DAMAGED,
        remedy=f"`--partition {partition} --offset {header.next_offset}` begins after it.",
    )


class Aborted:
    """Which batches belong to transactions that were aborted (read_committed, KIP-98)."""

    def __init__(self, ranges: Iterable[tuple[int, int]]) -> None:
        self._waiting = sorted(ranges, key=lambda each: each[1])
        self._open: set[int] = set()

    def skips(self, header: Any, records: Any, position: int) -> bool:
        """Whether the batch is to be left out; call it for each batch in order."""
        from anabranch.core.wire.control import end_marker

        while self._waiting and self._waiting[0][1] <= header.last_offset:
            self._open.add(self._waiting.pop(0)[0])
        if header.is_control:
            marker = end_marker(records, position)
            if marker is not None:
                self._open.discard(header.producer_id)
            return True
        return header.is_transactional and header.producer_id in self._open
