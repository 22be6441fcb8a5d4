"""`spark.readStream.format("anabranch")`: topics as a DataFrame without end.

What: Spark keeps offsets in its checkpoint and asks, before each batch, how far it may read
(`latestOffset`) and in which ranges (`partitions`). Why so much about loss: between two batches, or
two runs, a topic may shrink, vanish, or be another one of the same name; every such case is noticed
before anything is read. A partition that is missing may be back, as when a broker that begins does
not know it yet: that it is missing is told once, and where to go on in it is kept. Rule kept: what
an end of a batch says is enough to read the batch again, whatever has happened since; nothing else
is remembered but what Spark asks for within one run.
"""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    ReadMinRows,
    SupportsTriggerAvailableNow,
)

from anabranch.client.cluster import Cluster
from anabranch.pipelines import columns
from anabranch.pipelines.admission import Patience, share_out
from anabranch.pipelines.offset_ranges import (
    Found,
    OffsetRange,
    Offsets,
    Place,
    ask,
    find,
    named,
    offsets_at,
    pieces,
    resolve,
    selects,
)
from anabranch.pipelines.options import (
    EARLIEST,
    LATEST,
    Bound,
    SourceOptions,
    check_streaming,
    source_options,
)
from anabranch.pipelines.range_reader import lose, read_range_of, warn
from anabranch.pipelines.source import check_columns, columns_of
from anabranch.pipelines.stream_offsets import CheckpointError, StreamOffsets, stream_offsets

if TYPE_CHECKING:
    from pyspark.sql.types import StructType


MOST_MISSING = 1_000
"""Missing partitions that are kept: where topics come and go, a checkpoint would grow for ever."""


def stream_reader_of(given: Mapping[str, str], schema: StructType) -> DataSourceStreamReader:
    """The reader of a streaming query. Raises OptionError."""
    options = source_options(given)
    check_streaming(options)
    check_columns(options, schema)
    return TopicStreamReader(options)


class TopicStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """One query's reader: Spark asks it in a process beside the driver, and reads in tasks."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._initial: dict[str, Any] | None = None
        self._patience = Patience(options.max_trigger_delay_ms)
        self._latest: StreamOffsets | None = None
        self._target: StreamOffsets | None = None

    # Where a query begins, and how far a batch goes.

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        """Where a new query begins; Spark asks again until there has been a batch."""
        if self._initial is None:
            self._initial = ask(self.options, self._begin).to_json()
        return self._initial

    @property
    def _beginning(self) -> Bound:
        return self.options.starting or Bound(special=LATEST)

    async def _begin(self, cluster: Cluster) -> StreamOffsets:
        found = await find(cluster, self.options)
        bound = self._beginning
        offsets = await resolve(cluster, self.options, found.places, bound, "starting")
        return StreamOffsets(offsets, found.topic_ids, is_fresh=True)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """The limit that options set."""
        if self.options.max_offsets:
            return ReadMaxRows(self.options.max_offsets)
        if self.options.min_offsets:
            return ReadMinRows(self.options.min_offsets)
        return ReadAllAvailable()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        """The query ends with what is there now."""
        self._target = ask(self.options, self._newest)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        """The end of the next batch; `start` itself when there is to be none."""
        begun = stream_offsets(start)
        self._check_topics(begun)
        newest, earliest = ask(
            self.options, lambda cluster: self._newest_and_earliest(cluster, begun)
        )
        self._latest = newest
        begins = self._begins(begun, newest, earliest)
        kept = self._kept(begun, newest)
        ends = dict(newest.offsets)
        if self._target is not None:
            for place, end in newest.offsets.items():  # what the target lacks is missing or new
                self._target.offsets.setdefault(
                    place, end if place in begun.known else begins[place]
                )
            ends = {
                place: max(min(end, self._target.offsets[place]), begins[place])
                for place, end in ends.items()
            }
        waiting = sum(max(0, end - begins[place]) for place, end in ends.items())
        stands = ends == begun.offsets and kept == begun.missing
        if not waiting and stands and _same_ids(begun, newest):
            return start
        if not isinstance(limit, ReadAllAvailable):
            lost = self._has_lost(begun, newest, ends)
            least = 0 if lost or self._target is not None else self.options.min_offsets
            now_ms = int(time.monotonic() * 1000)
            if least and self._patience.lets_pass(waiting, least, now_ms):
                return start
        if isinstance(limit, ReadMaxRows):
            ends = share_out(begins, ends, limit.max_rows)
        first = begun.offsets if begun.is_fresh else None
        topic_ids = {place.topic: begun.topic_ids[place.topic] for place in kept}
        topic_ids |= newest.topic_ids
        return StreamOffsets(ends, topic_ids, first=first, missing=kept).to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        """The newest offsets, for the query's progress: the difference to its end is the lag."""
        return None if self._latest is None else self._latest.to_json()

    async def _newest(self, cluster: Cluster, known: Iterable[Place] = ()) -> StreamOffsets:
        topics = {place.topic for place in known}
        found = await find(cluster, self.options, missing_ok=True, known=topics)
        ends = await offsets_at(cluster, self.options, found.places, LATEST)
        return StreamOffsets(ends, found.topic_ids)

    async def _newest_and_earliest(
        self, cluster: Cluster, begun: StreamOffsets
    ) -> tuple[StreamOffsets, Offsets]:
        newest = await self._newest(cluster, begun.offsets)
        passed = [
            place
            for place, end in newest.offsets.items()
            if end < begun.known.get(place, 0) and not self._is_another(place.topic, begun, newest)
        ]
        if passed and self.options.reading.isolation_level:
            # Read when uncommitted records were read too: no loss, unless the log is shorter.
            ends = await offsets_at(cluster, self.options, passed, LATEST, isolation_level=0)
            for place, end in ends.items():
                newest.offsets[place] = max(newest.offsets[place], min(end, begun.known[place]))
        return newest, await offsets_at(cluster, self.options, newest.offsets, EARLIEST)

    def _check_topics(self, begun: StreamOffsets) -> None:
        """Refuse a checkpoint that has none of the topics that this query reads."""
        options = self.options
        if not options.topics and options.assigned is None:
            return
        wanted = set(options.assigned or options.topics)
        kept = {place.topic for place in begun.known}
        if kept and not kept & wanted:
            raise CheckpointError(
                f"The checkpoint is of topics {', '.join(sorted(kept))}; this query reads "
                f"{options.selection}. Use another checkpointLocation, or correct the options."
            )

    def _begins(self, begun: StreamOffsets, newest: StreamOffsets, earliest: Offsets) -> Offsets:
        """Where the next batch begins in each partition there is. Raises DataLoss."""
        gone = sorted(set(begun.offsets) - set(newest.offsets))
        if gone:
            place = gone[0]
            lose(
                self.options,
                f"{named(gone)}: no longer there, or no longer read; offsets from "
                f"{begun.offsets[place]} of {place} on are lost.",
                warn,
            )
        begins = {}
        for place in newest.offsets:
            known = begun.known.get(place)
            if known is None or self._is_another(place.topic, begun, newest):
                begins[place] = earliest[place]
                if place in begun.offsets:  # else that was told when it was missing
                    why = "the topic was deleted and created again since; offsets"
                    lose(self.options, f"{place}: {why} from {known} on are lost.", warn)
                elif earliest[place] > 0:
                    why = f"is new, and its log begins at offset {earliest[place]} already:"
                    lose(self.options, f"{place} {why} what was before is lost.", warn)
                continue
            end = newest.offsets[place]
            if known > end:
                why = f"the log ends before offset {end}, though the query has read up to"
                lose(self.options, f"{place}: {why} {known - 1}: it was cut.", warn)
            begins[place] = min(known, end)
        return begins

    def _has_lost(self, begun: StreamOffsets, newest: StreamOffsets, ends: Offsets) -> bool:
        """Whether something that was read is there no more. That was told, and would be at each
        trigger until the checkpoint says it."""
        return any(
            ends[place] < offset or self._is_another(place.topic, begun, newest)
            if place in ends
            else place in begun.offsets
            for place, offset in begun.known.items()
        )

    def _kept(self, begun: StreamOffsets, newest: StreamOffsets) -> Offsets:
        """Where to go on in partitions that are missing, if they are back; not in those of a topic
        without an id, which may be another one by then."""
        kept = [
            place
            for place in (*begun.missing, *sorted(begun.offsets.keys() - begun.missing.keys()))
            if place not in newest.offsets
            and selects(self.options, place)
            and any(begun.topic_ids.get(place.topic, b""))
            and not self._is_another(place.topic, begun, newest)
        ]
        return {place: begun.known[place] for place in kept[-MOST_MISSING:]}

    @staticmethod
    def _is_another(topic: str, begun: StreamOffsets, newest: StreamOffsets) -> bool:
        """Whether a topic is another one of the same name. Clusters without ids never tell."""
        before, now = begun.topic_ids.get(topic), newest.topic_ids.get(topic)
        return bool(before and now and any(before) and any(now) and before != now)

    # What a batch is.

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        """The ranges between two offsets; the same for a batch that is read once more."""
        begun, ended = stream_offsets(start), stream_offsets(end)
        if begun.is_fresh and ended.first is not None:
            begun = StreamOffsets(ended.first, begun.topic_ids, is_fresh=True)
        elif begun.is_fresh and not ended.is_fresh and self._beginning.special == LATEST:
            why = (
                "The checkpoint does not say where its first micro-batch began, which is lost; set"
            )
            lose(self.options, f"{why} 'startingOffsets' to where that was.", warn)

        async def plan(cluster: Cluster) -> list[OffsetRange]:
            return await self._plan(cluster, begun, ended)

        return ask(self.options, plan)

    async def _plan(
        self, cluster: Cluster, begun: StreamOffsets, ended: StreamOffsets
    ) -> list[OffsetRange]:
        options = self.options
        known = {each.topic for each, end in ended.offsets.items() if end != begun.known.get(each)}
        found: Found = await find(cluster, options, missing_ok=True, known=known)
        there = set(found.places)
        earliest = await offsets_at(
            cluster, options, [each for each in ended.offsets if each in there], EARLIEST
        )
        ranges, waiting = [], []
        for place, until in sorted(ended.offsets.items()):
            start = begun.known.get(place)
            if start is None or self._is_another(place.topic, begun, ended):
                start = 0
            if start >= until:
                continue
            topic_id = ended.topic_ids.get(place.topic, b"")
            is_hidden = place.topic not in found.topic_ids and selects(options, place)
            if is_hidden and any(topic_id):  # its task waits, and knows it by its id
                waiting.append(OffsetRange(*place, topic_id, start, until, begun.is_fresh))
                continue
            if place not in earliest:
                lose(
                    options,
                    f"{place}: the topic or partition was deleted; offsets {start} to {until - 1} "
                    "are lost.",
                    warn,
                )
                continue
            first = earliest[place]
            begins_later = start < first
            if begins_later:
                lose(
                    options,
                    f"{place}: the log begins at offset {first}; offsets {start} to "
                    f"{min(first, until) - 1} have been deleted before they were read.",
                    warn,
                )
                start = min(first, until)
            from_middle = begun.is_fresh or begins_later  # no range before has the batch there
            ranges.append(OffsetRange(*place, topic_id, start, until, from_middle))
        return [*await pieces(cluster, options, ranges), *waiting]

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow batches of a range."""
        if isinstance(partition, OffsetRange):
            schema = columns.arrow_schema(columns_of(self.options))
            yield from read_range_of(self.options, partition, schema)

    def commit(self, end: dict[str, Any]) -> None:
        """Spark has kept the offsets in its checkpoint; brokers are told nothing."""

    def stop(self) -> None:
        """Connections end with each question, so nothing is left to end."""


def _same_ids(one: StreamOffsets, other: StreamOffsets) -> bool:
    """Whether no topic has become another; a checkpoint of Spark's own source has no ids."""
    return all(one.topic_ids.get(topic, found) == found for topic, found in other.topic_ids.items())
