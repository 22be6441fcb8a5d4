"""The rows of `make bench`: name, what is measured, on which servers, and the target.

The rows of one node are here and, with many clients at once, in crowd_rows.py; those of three
brokers are in three_rows.py, of transactions in transaction_rows.py, of diskless topics in
diskless_rows.py and diskless_load_rows.py, of replica lists and moves in placement_rows.py, of the
DataFrame source and sink in spark_rows.py, of a mirror in mirror_rows.py, of remote logs in
tiered_rows.py, of tiering in tiering_rows.py, of compaction on Spark in
compaction_rows.py, over TLS in tls_rows.py.
"""

from __future__ import annotations

from collections.abc import Callable

import workloads
from compaction_rows import COMPACTION_ROWS
from crowd_rows import CROWD_ROWS
from diskless_load_rows import DISKLESS_LOAD_ROWS
from diskless_rows import DISKLESS_ROWS
from mirror_rows import MIRROR_ROWS
from placement_rows import PLACEMENT_ROWS
from row import MB, Row, less, more
from scale import scaled
from servers import Server
from spark_rows import SPARK_ROWS
from three_rows import THREE_ROWS
from tiered_rows import TIERED_ROWS
from tiering_rows import TIERING_ROWS
from tls_rows import TLS_ROWS
from transaction_rows import TRANSACTION_ROWS
from workloads import Sample


def _produce(value_bytes: int, total_bytes: int, batch_bytes: int) -> Callable[[Server], Sample]:
    return lambda server: workloads.produce(
        server, value_bytes=value_bytes, total_bytes=scaled(total_bytes), batch_bytes=batch_bytes
    )


CONSUMED_BYTES = 600 * MB
CONSUMED_TOPIC = "consumed"


def _fill_for_consume(server: Server) -> None:
    workloads.create(server, [CONSUMED_TOPIC])
    workloads.send(
        server,
        CONSUMED_TOPIC,
        value_bytes=1000,
        total_bytes=scaled(CONSUMED_BYTES),
        batch_bytes=1_000_000,
    )


NODE_ROWS = [
    Row(
        "produce-1k-1mb",
        "produce 1 KB, 1 MB batches, acks=1, one partition, 600 MB",
        _produce(1000, 600 * MB, 1_000_000),
        {"MB/s": more(2), "CPU s/GB": less(1 / 3), "peak MB": less(1 / 8)},
        written_bytes=600 * MB,
    ),
    Row(
        "produce-1k-16kb",
        "produce 1 KB, 16 KB batches, acks=1, one partition, 300 MB",
        _produce(1000, 300 * MB, 16_384),
        {"MB/s": more(3), "CPU s/GB": less(1 / 3), "peak MB": less(1 / 8)},
        written_bytes=300 * MB,
    ),
    Row(
        "produce-100b-2kb",
        "produce 100 B, 2 KB batches, acks=1, one partition, 100 MB",
        _produce(100, 100 * MB, 2_048),
        {"MB/s": more(2), "CPU s/GB": less(1 / 2), "peak MB": less(1 / 8)},
        written_bytes=100 * MB,
    ),
    Row(
        "consume-1k",
        "consume 1 KB from page cache, one partition, 600 MB",
        lambda server: workloads.consume(
            server, CONSUMED_TOPIC, value_bytes=1000, total_bytes=scaled(CONSUMED_BYTES)
        ),
        {"MB/s": more(1.2), "CPU s/GB": less(1)},
        prepare=_fill_for_consume,
    ),
    Row(
        "one-at-a-time",
        "one record of 100 B at a time, acks=1, 10,000 of them",
        lambda server: workloads.one_at_a_time(server, value_bytes=100, count=scaled(10_000)),
        {"p50 ms": less(0.85), "p99 ms": less(1)},
    ),
    Row(
        "cold-start",
        "new folder: exec to first acknowledged record",
        workloads.cold_start,
        {"seconds": less(1 / 5)},
        fresh=True,
    ),
    Row(
        "restart-5500",
        "SIGKILL with 5,500 partitions written to: exec to first acknowledged record",
        lambda server: workloads.restart(server, topics=scaled(11), partitions=500),
        {"seconds": less(1 / 5)},
        fresh=True,
    ),
    Row(
        "topics-500",
        "500 topics of one partition created and led",
        lambda server: workloads.many_topics(server, topics=scaled(500), partitions=1),
        {"seconds": less(1 / 2), "s to a record in the last": less(1 / 2)},
        fresh=True,
    ),
    Row(
        "partitions-5000",
        "10 topics of 500 partitions created and led",
        lambda server: workloads.many_topics(server, topics=scaled(10), partitions=500),
        {"seconds": less(1), "s to a record in the last": less(1)},
        fresh=True,
    ),
    Row(
        "memory-idle",
        "resident memory and CPU share, idle",
        lambda server: workloads.idle(server, settle_seconds=3.0),
        {"MB": less(1 / 6)},
        fresh=True,
    ),
]

ROWS = [
    *NODE_ROWS,
    *TLS_ROWS,
    *CROWD_ROWS,
    *PLACEMENT_ROWS,
    *TRANSACTION_ROWS,
    *THREE_ROWS,
    *DISKLESS_ROWS,
    *DISKLESS_LOAD_ROWS,
    *TIERED_ROWS,
    *TIERING_ROWS,
    *COMPACTION_ROWS,
    *SPARK_ROWS,
    *MIRROR_ROWS,
]
"""In the order in which a whole run takes them."""
