"""The rows of three brokers: acks=all with three replicas, dead and frozen leaders, a lost disk."""

from __future__ import annotations

from collections.abc import Callable, Mapping

import many_partitions
import outage
import wiped
import workloads
from row import MB, Row, Target, less, more, own_less
from scale import scaled
from servers import Anabranch, Server
from trio import NODES, ON_POSTGRES, TRIOS, AnabranchTrio
from workloads import Sample

FROZEN_SECONDS = 9.0 + 1.0
"""broker.session.timeout.ms and a second."""
LEASE_SECONDS = 6.0


def _produce(
    name: str,
    what: str,
    targets: Mapping[str, Target],
    *,
    total_bytes: int,
    batch_bytes: int | None,
    value_bytes: int = 1000,
    partitions: int = 1,
) -> Row:
    def measure(server: Server) -> Sample:
        return workloads.produce(
            server,
            value_bytes=value_bytes,
            total_bytes=scaled(total_bytes),
            batch_bytes=batch_bytes,
            partitions=partitions,
        )

    sentence = f"acks=all, 3 replicas, {what}, {total_bytes // MB} MB"
    written = total_bytes * NODES
    return Row(name, sentence, measure, targets, servers=TRIOS, written_bytes=written)


def _outage(
    name: str,
    what: str,
    measure: Callable[[Server], Sample],
    targets: Mapping[str, Target],
    **more_of_it: object,
) -> Row:
    return Row(name, what, measure, targets, **{"servers": TRIOS, "warm_up": False, **more_of_it})


PRODUCE_ROWS = [
    _produce(
        "three-1k-1mb",
        "1 KB in 1 MB batches, one partition",
        {"MB/s": more(2), "CPU s/GB": less(1 / 3)},
        total_bytes=300 * MB,
        batch_bytes=1_000_000,
    ),
    _produce(
        "three-1k-16kb",
        "1 KB in 16 KB batches, one partition",
        {"MB/s": more(5), "CPU s/GB": less(1 / 5)},
        total_bytes=60 * MB,
        batch_bytes=16_384,
    ),
    _produce(
        "three-12-partitions",
        "1 KB in the client's own batches, 12 partitions in turn",
        {"MB/s": more(2)},
        total_bytes=150 * MB,
        batch_bytes=None,
        partitions=12,
    ),
    _produce(
        "three-100-partitions",
        "1 KB in the client's own batches, 100 partitions in turn",
        {"MB/s": more(2)},
        total_bytes=60 * MB,
        batch_bytes=None,
        partitions=100,
    ),
    _produce(
        "three-100b-2kb",
        "100 B in 2 KB batches, one partition",
        {"MB/s": more(8), "CPU s/GB": less(1 / 10)},
        total_bytes=6 * MB,
        batch_bytes=2_048,
        value_bytes=100,
    ),
]

OUTAGE_ROWS = [
    _outage(
        "three-killed",
        "SIGKILL of the leader: longest gap between acknowledgements",
        lambda server: outage.killed(server, decides=False),
        {"gap s": own_less(1.0)},
        rounds_at_most=3,
    ),
    _outage(
        "three-killed-controller",
        "SIGKILL of the leader that was also the active controller",
        lambda server: outage.killed(server, decides=True),
        {"gap s": own_less(1.0)},
        rounds_at_most=3,
    ),
    _outage(
        "three-frozen",
        "SIGSTOP of the leader: until a fresh producer's write; the old client's gap",
        outage.frozen_with_old_client,
        {"fresh producer s": own_less(FROZEN_SECONDS)},
        rounds_at_most=1,
        note=f"the old client is watched for {outage.OLD_CLIENT_SECONDS:g} s",
    ),
    _outage(
        "three-frozen-controller",
        "SIGSTOP of the leader that was also the active controller: until a fresh producer's write",
        outage.frozen_controller,
        {"fresh producer s": own_less(FROZEN_SECONDS + LEASE_SECONDS)},
        rounds_at_most=1,
    ),
]

POSTGRES_ROWS = [
    _outage(
        "three-killed-postgres",
        "SIGKILL of the leader, metadata in PostgreSQL",
        lambda server: outage.killed(server, decides=False),
        {"gap s": own_less(1.0)},
        servers=ON_POSTGRES,
    ),
    _outage(
        "three-killed-controller-postgres",
        "SIGKILL of the leader that was also the active controller, metadata in PostgreSQL",
        lambda server: outage.killed(server, decides=True),
        {"gap s": own_less(1.0)},
        servers=ON_POSTGRES,
    ),
]

THREE_ROWS = [
    *PRODUCE_ROWS,
    Row(
        "three-one-at-a-time",
        "one record of 100 B at a time, acks=all, 3 replicas, 3,000 of them",
        lambda server: workloads.one_at_a_time(server, value_bytes=100, count=scaled(3_000)),
        {"p50 ms": less(0.8), "p99 ms": less(0.5), "p99.9 ms": less(0.5)},
        servers=TRIOS,
    ),
    *OUTAGE_ROWS,
    Row(
        "three-wiped",
        f"a follower without its disk, {wiped.BYTES // 10**9} GB in {wiped.PARTITIONS} partitions",
        wiped.wiped,
        {"catch-up MB/s": more(1.5), "p99 over quiet": own_less(2)},
        servers=TRIOS,
        written_bytes=wiped.BYTES * (NODES + 1),
        warm_up=False,
        rounds_at_most=1,
    ),
    *POSTGRES_ROWS,
    Row(
        "three-cold-start",
        "three new folders: exec to the first acks=all record with 3 replicas; memory then",
        workloads.cold_start,
        {"seconds": less(1 / 4), "MB": less(1 / 8)},
        servers=TRIOS,
        fresh=True,
        rounds_at_most=3,
    ),
    Row(
        "metadata-100000",
        f"metadata of {many_partitions.PARTITIONS:,} partitions and of a half and a quarter of "
        "them, without log folders: create, failover of a third, join",
        many_partitions.without_folders,
        {"growth of the worst": own_less(1.5)},
        servers={"anabranch": Anabranch},
        fresh=True,
        warm_up=False,
        rounds_at_most=1,
        note="controller of core, SQLite, one broker's replay, in one process",
    ),
    Row(
        "three-metadata-folders",
        f"{many_partitions.PARTITIONS_WITH_FOLDERS:,} partitions on three brokers with all log "
        "folders: create, failover, restart until in sync",
        many_partitions.with_folders,
        {"growth of the worst": own_less(1.5)},
        servers={"anabranch": AnabranchTrio},
        fresh=True,
        warm_up=False,
        rounds_at_most=1,
    ),
]
"""In the order in which a run takes them: rows of the same servers follow each other."""
