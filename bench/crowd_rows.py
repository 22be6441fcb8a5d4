"""The rows of many at once: groups, committed offsets, compaction beside clients, connections."""

from __future__ import annotations

import commits
import compaction
import fan_out
import flood
import held
import rebalance
from row import Row, less, more, own_less, own_more

CROWD_ROWS = [
    Row(
        "fan-out",
        f"{fan_out.PRODUCERS} producers and {fan_out.GROUPS * fan_out.CONSUMERS_OF_A_GROUP} "
        f"consumers in {fan_out.GROUPS} groups on {fan_out.PARTITIONS} partitions, 1 KB",
        fan_out.fan_out,
        {"records/s": more(1.5)},
        written_bytes=fan_out.RECORDS * fan_out.VALUE_BYTES,
        note="the clients take more of the two cores than either server: see their CPU",
    ),
    Row(
        "group-100",
        f"a group of {rebalance.MEMBERS} members, heartbeats every 50 ms, "
        f"{rebalance.SETTINGS['group.initial.rebalance.delay.ms']} ms initial delay",
        rebalance.group_of_many,
        {"first assignment s": less(1), "after a crash s": less(1)},
        settings=rebalance.SETTINGS,
        note="members hear of a rebalance at their next heartbeat: up to 50 ms of it is theirs",
    ),
    Row(
        "offset-commits",
        f"offset commits, {commits.GROUPS} groups, {commits.IN_FLIGHT} in flight each",
        commits.offset_commits,
        {"commits/s": more(1.5)},
        prepare=commits.prepare,
        note="client and server share two cores; the client spends about 4 µs on a commit",
    ),
    Row(
        "compaction",
        "compacting 1 GB of 1 KB records, a tenth live, beside a paced producer and consumer",
        compaction.compaction,
        {"MB/s": more(0.5), "p99 over quiet": own_less(1.5)},
        prepare=compaction.prepare,
        written_bytes=compaction.RECORDS * compaction.VALUE_BYTES * 2,
        settings=compaction.SETTINGS,
        rounds_at_most=2,
    ),
    Row(
        "held-connections",
        f"{held.CONNECTIONS:,} connections held open, one client producing 1 KB in 16 KB batches",
        held.held_connections,
        {"rate kept": own_more(0.9)},
        fresh=True,
        rounds_at_most=2,
        note="as many connections as the limit of open files leaves to a server, at most",
    ),
    Row(
        "flood",
        f"one record every 10 ms, while another client has {flood.REQUESTS:,} fetches of "
        f"{flood.PARTITIONS:,} idle partitions in flight",
        flood.flood,
        {"longest ms": own_less(500), "p99 ms": own_less(50)},
        fresh=True,
        rounds_at_most=2,
        note="Anabranch's loop has one core; Kafka answers each connection on a thread",
    ),
]
