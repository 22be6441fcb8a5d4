"""The rows about replicas: lists and plans for a million partitions, missing replicas, moves."""

from __future__ import annotations

import missing
import moved
import placement
import wiped
from row import Row, Target, less, more, own_less
from servers import Server
from trio import NODES, TRIOS
from workloads import Sample

WHERE = f"{placement.PARTITIONS:,} partitions, RF 3, {placement.BROKERS} brokers in 10 racks"


def _placer(name: str, target: Target, sides: dict[str, type[Server]], beside: str) -> Row:
    def measure(server: Server) -> Sample:
        return placement.placed(server, name)

    what = f"{WHERE}: `{name}`{beside}"
    return Row(f"placement-{name}", what, measure, {"seconds": target}, servers=sides)


BESIDE = " beside StripedReplicaPlacer of Kafka's jar"

PLACEMENT_ROWS = [
    _placer("striped", less(1), placement.SIDES, BESIDE),
    _placer("computed", less(1), placement.SIDES, BESIDE),
    _placer("spread", own_less(3), placement.OURS_ALONE, ""),
    Row(
        "placement-drain",
        f"{WHERE}: the drain of one broker planned",
        placement.drained,
        {"seconds": own_less(10), "moves over the least": own_less(1)},
        servers=placement.OURS_ALONE,
        rounds_at_most=3,
    ),
    Row(
        "placement-missing",
        f"{missing.TOPICS} topics created on two brokers: with a third replica that is missing, "
        "and with two replicas",
        missing.created,
        {"with over without": own_less(1.1)},
        servers={"anabranch": missing.Two},
        settings={"enable.under.replicated.topic.creation": "true"},
    ),
    Row(
        "placement-moved",
        f"{wiped.BYTES // 10**9} GB in {wiped.PARTITIONS} partitions moved to another broker",
        moved.moved,
        {"MB/s": more(1.5), "p99 over quiet": own_less(2)},
        servers=TRIOS,
        written_bytes=wiped.BYTES * NODES,
        warm_up=False,
        rounds_at_most=1,
    ),
]
