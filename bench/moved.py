"""Replicas moved from one broker to another: how fast, and what clients notice.

The topic of wiped.py lies on two nodes. One request moves all replicas of the second to the third,
which takes no part in the topic before. The clock runs from the request until every partition has
its new replicas and the move is over. Copying is not throttled, which is the default of both
servers. The clients are those of wiped.py: paced, on another topic of the two nodes that copy.
"""

from __future__ import annotations

import time

import lean
import outage
import wiped
import workloads
from compaction import Paced
from servers import Server
from trio import NUMBERS, Trio
from workloads import Sample

from anabranch.core.wire.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)

VERSION = 0
TIMEOUT_MS = 60_000


def begin_moves(trio: Trio, topic: str, replicas: list[int]) -> None:
    """Ask for these replicas of every partition."""
    partitions = [
        ReassignablePartition(partition_index=index, replicas=replicas)
        for index in range(wiped.PARTITIONS)
    ]
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=TIMEOUT_MS, topics=[ReassignableTopic(name=topic, partitions=partitions)]
    )
    with lean.dial(trio.nodes[replicas[0]].port) as line:
        answer = lean.ask(line, request, VERSION)
    refused = [each for each in answer.responses[0].partitions if each.error_code]
    if answer.error_code or refused:
        raise SystemExit(f"the moves were refused: {answer.error_message or refused[0]}")


def moved(server: Server) -> Sample:
    """MB/s of moving, its CPU, and the paced clients' p99 quiet and meanwhile."""
    assert isinstance(server, Trio)
    _, comes = outage.choose(server, decides=False)
    stays, goes = (number for number in NUMBERS if number != comes)
    topic, paced_topic = wiped.create(server, "moved", [[stays, goes]])
    wiped.fill(server, topic)
    size = wiped.log_bytes(server.nodes[stays].folder / "data", topic)
    with Paced(server, paced_topic) as paced:
        quiet, taken = wiped.quiet_p99_ms(paced), len(paced.taken_ms)
        before, begin = server.cpu_seconds(), time.perf_counter()
        begin_moves(server, topic, [stays, comes])
        await_moved(server, topic, {stays, comes})
        seconds, cpu = time.perf_counter() - begin, server.cpu_seconds() - before
        busy = paced.p99_ms(taken)
    workloads.drop(server, topic)
    workloads.drop(server, paced_topic)
    return Sample(
        {
            "MB/s": size / seconds / 1e6,
            "CPU s/GB": cpu / (size / 1e9),
            **wiped.clients_figures(quiet, busy),
        }
    )


def await_moved(trio: Trio, topic: str, replicas: set[int]) -> None:
    """Wait until every partition has these replicas and no others, all in sync."""
    admin = workloads.admin_of(trio)

    def is_done() -> bool:
        partitions = admin.list_topics(topic, timeout=60).topics[topic].partitions.values()
        return all(set(each.replicas) == replicas == set(each.isrs) for each in partitions)

    outage.await_true(is_done, f"{topic} did not move", wiped.WAIT_SECONDS)
