"""Comparing the replicas of a compacted partition: by record, and by the latest record of each key.

What: every replica cleans its own copy when it likes, so that bytes differ and records are missing
here and there. Two rules hold all the same. Where two replicas have a record at an offset, it is
the same. And of each key every replica has the same latest record, except that a tombstone may be
gone already; a replica that was not read to its end has no part in that. Records of aborted
transactions are left out: the cleaner removes them and what they would have superseded stays. Spark
groups the records; nothing but digests is shuffled beside keys.

Limit: a pass of the cleaner while the log is read can remove a tombstone between two reads of one
replica; a difference of the kind `latest` about a tombstone is worth a second look.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from anabranch.client.cluster import Cluster
from anabranch.client.ranges import Part
from anabranch.core.sentences import number_of
from anabranch.pipelines.comparison import (
    CORRUPT,
    LATEST,
    MISSING,
    NOT_COMPARED,
    RECORD,
    Compared,
    Difference,
    ReplicaEnds,
)
from anabranch.pipelines.offset_ranges import Place
from anabranch.pipelines.replicas import Replica, ReplicaReader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

SHOWN_KEY_BYTES = 40


def compare_records(
    spark: SparkSession, bootstrap: str, place: Place, brokers: Sequence[int],
    start: int, until: int,
) -> Compared:  # fmt: skip
    """Compare the records of all replicas of a partition from `start`, below `until`."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    raw = spark.range(0, len(brokers), 1, max(1, len(brokers))).mapInArrow(
        partial(_read, bootstrap, place, tuple(brokers), start, until), _schema()
    )
    records = raw.select(
        "broker", "offset", "key", "why", "kind", "size_bytes",
        F.xxhash64("timestamp", "key", "value", "headers").alias("digest"),
        F.col("value").isNull().alias("is_tombstone"),
    ).cache()  # fmt: skip
    try:
        found = Compared()
        ended = _notes(records, found)
        read = records.where("why is null")
        _same_offset(read, found)
        whole = [each for each in brokers if each not in ended]
        _latest(read.where(F.col("broker").isin(whole)), len(whole), found)
        return found
    finally:
        records.unpersist()


def _schema() -> str:
    return (
        "broker int, offset long, timestamp timestamp, key binary, value binary, "
        "headers array<struct<key: string, value: binary>>, why string, kind string, "
        "size_bytes long"
    )


def _notes(records: DataFrame, found: Compared) -> set[int]:
    """What readers said besides records: bytes read, and why one ended early. Gives the brokers of
    which the latest record of a key is not known."""
    ended: set[int] = set()
    for row in records.where("why is not null").collect():
        found.bytes_read += row.size_bytes or 0
        if row.why:
            found.tell(Difference(row.offset, row.kind, (row.broker,), row.why))
        if row.kind in (*NOT_COMPARED, MISSING):
            ended.add(row.broker)
    return ended


def _same_offset(records: DataFrame, found: Compared) -> None:
    """Two replicas with an offset have the same record there."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    differing = (
        records.groupBy("offset")
        .agg(F.count_distinct("digest").alias("digests"), F.collect_set("broker").alias("brokers"))
        .where("digests > 1")
        .orderBy("offset")
    )
    for row in differing.toLocalIterator():
        brokers = tuple(sorted(row.brokers))
        sentence = f"the records at offset {row.offset} differ on brokers {_listed(brokers)}"
        found.tell(Difference(row.offset, RECORD, brokers, sentence))


def _latest(records: DataFrame, replicas: int, found: Compared) -> None:
    """Every replica has the same latest record of a key, unless that is a tombstone."""
    from pyspark.sql import functions as F  # noqa: N812 - its usual name

    latest = records.groupBy("key", "broker").agg(
        F.max_by(F.struct("offset", "is_tombstone"), "offset").alias("last")
    )
    by_key = latest.groupBy("key").agg(
        F.max("last.offset").alias("newest"),
        F.min("last.offset").alias("oldest"),
        F.max_by("last.is_tombstone", "last.offset").alias("is_deleted"),
        F.count("broker").alias("having"),
        F.collect_list(F.struct("broker", "last.offset")).alias("lasts"),
    )
    wrong = by_key.where(
        (F.col("newest") != F.col("oldest")) | (~F.col("is_deleted") & (F.col("having") < replicas))
    ).orderBy("newest")
    for row in wrong.toLocalIterator():
        lasts = dict(row.lasts)
        behind = tuple(sorted(each for each, offset in lasts.items() if offset != row.newest))
        told = ", ".join(f"broker {each} at {offset}" for each, offset in sorted(lasts.items()))
        sentence = f"the latest record of key {_key(row.key)} differs: {told}"
        if row.having < replicas:
            sentence += f"; it is missing on {number_of(replicas - row.having, 'replica')}"
        found.tell(Difference(row.newest, LATEST, behind, sentence))


def _listed(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))


def _key(key: bytes | None) -> str:
    return repr(bytes(key)[:SHOWN_KEY_BYTES])[1:] if key is not None else "null"


# In tasks.


def _read(
    bootstrap: str, place: Place, brokers: tuple[int, ...], start: int, until: int,
    rows: Iterator[Any],
) -> Iterator[Any]:  # fmt: skip
    for batch in rows:
        for number in batch.column(0).to_pylist():
            replica = Replica(place.topic, place.partition, brokers[number], until)
            yield from _records_of(bootstrap, replica, start)


def _records_of(bootstrap: str, replica: Replica, start: int) -> Iterator[Any]:
    from anabranch.pipelines import columns
    from anabranch.pipelines.assembler import Window
    from anabranch.pipelines.decoder import RangeDecoder

    said: list[tuple[int, str, str]] = []
    moved = [0]
    decoding = RangeDecoder(
        topic=replica.topic, partition=replica.partition, window=Window(start, replica.until),
        schema=columns.arrow_schema(columns.RECORDS_WITH_HEADERS), read_committed=True,
        fail_on_corruption=False, from_middle=True,
    )  # fmt: skip
    for batch in decoding.records(_parts(bootstrap, replica, start, said, moved)):
        yield _with_broker(batch, replica.broker_id)
    if decoding.left_out:
        said.append((start, CORRUPT, f"{replica}: {decoding.summary()}"))
    yield _said(replica.broker_id, said or [(start, "", "")], moved[0])


def _parts(
    bootstrap: str, replica: Replica, start: int, said: list[tuple[int, str, str]],
    moved: list[int],
) -> Iterator[Part]:  # fmt: skip
    """The parts of a replica, read in this thread one after the other."""
    parts = _read_parts(bootstrap, replica, start, said, moved)

    async def following() -> Part | None:
        return await anext(parts, None)

    with asyncio.Runner() as runner:
        while (part := runner.run(following())) is not None:
            yield part


async def _read_parts(
    bootstrap: str, replica: Replica, start: int, said: list[tuple[int, str, str]],
    moved: list[int],
) -> AsyncIterator[Part]:  # fmt: skip
    async with Cluster(bootstrap) as cluster:
        reader, offset = ReplicaReader(cluster, replica, committed_only=True), start
        while offset < replica.until:
            try:
                part = await reader.part(offset)
            except ReplicaEnds as end:
                said.append((offset, end.kind, str(end)))
                return
            assert part is not None  # there is one below `until`
            moved[0] += len(part.records)
            offset = part.next_offset
            yield part


def _with_broker(batch: Any, broker_id: int) -> Any:
    import pyarrow as pa

    count = batch.num_rows
    return pa.RecordBatch.from_arrays(
        [
            pa.array([broker_id] * count, pa.int32()),
            *(batch.column(name) for name in ("offset", "timestamp", "key", "value", "headers")),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.string()),
            pa.nulls(count, pa.int64()),
        ],
        names=_names(),
    )


def _said(broker_id: int, said: list[tuple[int, str, str]], size_bytes: int) -> Any:
    import pyarrow as pa

    offsets, kinds, whys = zip(*said, strict=True)
    count = len(said)
    headers = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
    return pa.RecordBatch.from_arrays(
        [
            pa.array([broker_id] * count, pa.int32()), pa.array(offsets, pa.int64()),
            pa.nulls(count, pa.timestamp("us", "UTC")), pa.nulls(count, pa.binary()),
            pa.nulls(count, pa.binary()), pa.nulls(count, headers),
            pa.array(whys), pa.array(kinds),
            pa.array([size_bytes] + [0] * (count - 1), pa.int64()),
        ],
        names=_names(),
    )  # fmt: skip


def _names() -> list[str]:
    return ["broker", "offset", "timestamp", "key", "value", "headers", "why", "kind", "size_bytes"]
