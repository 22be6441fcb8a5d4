"""The work of a scrub without its comparing: every replica of a topic is read, and forgotten."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from anabranch.client.cluster import Cluster
from anabranch.client.ranges import whole_batches
from anabranch.pipelines.replicas import Replica, ReplicaReader
from anabranch.pipelines.scrub import RANGE_BYTES, Piece, look, pieces_of
from anabranch.pipelines.waves import waves

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def read_all(spark: SparkSession, bootstrap: str, topic: str) -> tuple[int, float]:
    """(bytes, seconds) of reading all replicas of a topic in the pieces of a scrub."""
    begin = time.perf_counter()
    pieces = [
        piece
        for each in asyncio.run(look(bootstrap, [topic]))[1]
        for piece in pieces_of(bootstrap, each, RANGE_BYTES)
    ]
    total = 0
    for wave in waves(spark, pieces, read_piece):
        total += sum(found["bytes_read"] for _, found in wave)
    return total, time.perf_counter() - begin


def read_piece(piece: Piece) -> dict[str, Any]:
    """A task: read a range from every replica."""
    return {"bytes_read": asyncio.run(_read_piece(piece))}


async def _read_piece(piece: Piece) -> int:
    async with Cluster(piece.bootstrap) as cluster:
        readers = [
            ReplicaReader(cluster, Replica(piece.topic, piece.partition, broker_id, piece.until))
            for broker_id in piece.brokers
        ]
        return sum(await asyncio.gather(*(_read(each, piece) for each in readers)))


async def _read(reader: ReplicaReader, piece: Piece) -> int:
    total, offset = 0, piece.start
    while part := await reader.read(offset):
        total += len(part)
        offset = whole_batches(part)[1]
    return total
