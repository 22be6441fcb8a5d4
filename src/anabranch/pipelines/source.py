"""`spark.read.format("anabranch")`: a range of offsets of some topics as a DataFrame.

What: plans the ranges when Spark asks for partitions, and reads each in a task. Filters on topic,
partition, offset and timestamp narrow the ranges where the session lets sources take filters.
Options, columns and their meaning are those of Spark's own Kafka source.
"""

from __future__ import annotations

import sys
from collections.abc import Iterable, Iterator, Mapping
from typing import TYPE_CHECKING, Any

from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition

from anabranch.client.cluster import Cluster
from anabranch.pipelines import columns
from anabranch.pipelines.faults import OptionError
from anabranch.pipelines.filters import TakenFilters
from anabranch.pipelines.offset_ranges import (
    OffsetRange,
    Offsets,
    Place,
    ask,
    find,
    offsets_at,
    pieces,
    resolve,
)
from anabranch.pipelines.options import (
    BATCHES,
    EARLIEST,
    LATEST,
    Bound,
    SourceOptions,
    check_batch,
    source_options,
)
from anabranch.pipelines.range_reader import lose, read_range_of, warn
from anabranch.pipelines.requirements import check_packages
from anabranch.pipelines.worker import main_module

if TYPE_CHECKING:
    from pyspark.sql.types import StructType

FILTER_WORKER = "pyspark.sql.worker.data_source_pushdown_filters"


def schema_of(given: Mapping[str, str]) -> StructType:
    """The columns that the options ask for. Raises OptionError, MissingPackage."""
    check_packages()
    return columns_of(source_options(given))


def columns_of(options: SourceOptions) -> StructType:
    """The columns of a shape."""
    if options.shape == BATCHES:
        return columns.BATCHES
    return columns.RECORDS_WITH_HEADERS if options.include_headers else columns.RECORDS


def check_columns(options: SourceOptions, schema: StructType) -> None:
    """Refuse columns that a job has set by `schema`: those of the source are given."""
    expected = columns_of(options)
    if schema.simpleString() != expected.simpleString():
        raise OptionError(
            f"The columns of the source are {expected.simpleString()}; drop .schema(…) and select "
            "or cast what you need."
        )


def reader_of(given: Mapping[str, str], schema: StructType) -> DataSourceReader:
    """The reader of a batch query. Raises OptionError."""
    options = source_options(given)
    check_batch(options)
    check_columns(options, schema)
    return (FilteredReader if takes_filters() else TopicReader)(options)


def takes_filters() -> bool:
    """Whether Spark is about to offer filters: a reader that could take some is refused by sessions
    which do not let sources take filters."""
    return FILTER_WORKER in sys.modules or main_module() == FILTER_WORKER


class TopicReader(DataSourceReader):
    """Reads the ranges that options select."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self.narrowing = TakenFilters()

    def partitions(self) -> list[InputPartition]:
        """The ranges, one a task."""
        return list(ask(self.options, self._plan))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        """The Arrow batches of a range; Spark makes up a partition where there is none."""
        if isinstance(partition, OffsetRange):
            schema = columns.arrow_schema(columns_of(self.options))
            yield from read_range_of(self.options, partition, schema)

    async def _plan(self, cluster: Cluster) -> list[OffsetRange]:
        options = self.options
        found = await find(cluster, options)
        places = found.places
        # What is known of the log is asked for around the bounds: it moves on meanwhile.
        first = await offsets_at(cluster, options, places, EARLIEST)
        starts = await self._bound(cluster, places, options.starting, "starting")
        untils = await self._bound(cluster, places, options.ending, "ending")
        end = await offsets_at(cluster, options, places, LATEST)
        starts, untils = starts or dict(first), untils or dict(end)
        check_bounds(options, starts, untils, first, end)
        at_least = await self._from_time(cluster, places)
        ranges = [
            OffsetRange(
                each.topic, each.partition, found.topic_ids[each.topic],
                *self.narrowing.narrow(max(starts[each], at_least.get(each, 0)), untils[each]),
                from_middle=True,
            )
            for each in places
            if self.narrowing.admits(each)
        ]  # fmt: skip
        return await pieces(cluster, options, ranges)

    async def _bound(
        self, cluster: Cluster, places: list[Place], bound: Bound | None, side: str
    ) -> Offsets | None:
        if bound is None:
            return None
        return await resolve(cluster, self.options, places, bound, side)

    async def _from_time(self, cluster: Cluster, places: list[Place]) -> Offsets:
        """The first offset that can have a timestamp that a filter asks for."""
        timestamp = self.narrowing.timestamp_ms
        if timestamp is None:
            return {}
        found = await offsets_at(cluster, self.options, places, timestamp)
        late = [place for place, offset in found.items() if offset < 0]
        return found | await offsets_at(cluster, self.options, late, LATEST)


class FilteredReader(TopicReader):
    """The same, with filters taken over from Spark."""

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:  # noqa: N802
        """Keep what narrows ranges; what is given back, Spark applies itself."""
        if self.options.shape == BATCHES:
            yield from filters
            return
        for each in filters:
            if not self.narrowing.take(each):
                yield each


def check_bounds(
    options: SourceOptions, starts: Offsets, untils: Offsets, first: Offsets, end: Offsets
) -> None:
    """Refuse ranges that the log does not have; where data may be lost, they are cut to the log."""
    for place, start in starts.items():
        until = untils[place]
        beyond = f"The log of {place} has offsets {first[place]} to {end[place] - 1}"
        if start > end[place]:
            lose(options, f"{beyond}; offsets from {start} on were asked for.", warn)
            starts[place] = untils[place] = end[place]
            continue
        if start > until:
            raise OptionError(
                f"{place}: 'startingOffsets' ({start}) is greater than 'endingOffsets' ({until})."
            )
        if start < first[place] and start < until:
            lose(options, f"{beyond}; offsets {start} to {first[place] - 1} are gone.", warn)
            starts[place] = min(first[place], until)
        if until > end[place]:
            lose(options, f"{beyond}; offsets up to {until - 1} were asked for.", warn)
            untils[place] = max(end[place], starts[place])
            starts[place] = min(starts[place], untils[place])
