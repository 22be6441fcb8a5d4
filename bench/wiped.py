"""A follower that has lost its disk: how fast it gets everything back, and what clients notice.

A topic of `PARTITIONS` partitions, led by the two other nodes, is filled with acks=all. The
follower is stopped, its folder removed, and it starts again with nothing. The clock runs from the
first bytes of the topic in its new folder until it has as many as its leaders: how long the process
takes to start is another row's. Copying is not throttled, which is the default of both servers.

The clients are a paced producer (acks=all) and a consumer on another topic, led by a survivor: see
compaction.py, whose they are.
"""

from __future__ import annotations

import shutil
import time
from collections.abc import Sequence
from pathlib import Path

import outage
import workloads
from compaction import QUIET_SECONDS, UNPACED, Paced
from confluent_kafka.cimpl import NewTopic
from scale import scaled, scaled_seconds
from servers import Server
from trio import NUMBERS, Trio
from workloads import Sample

BYTES = 5_000_000_000
VALUE_BYTES = 1_000
BATCH_BYTES = 1_000_000
PARTITIONS = 12
WAIT_SECONDS = 300.0
LOOK_SECONDS = 0.05


def log_bytes(folder: Path, topic: str) -> int:
    """Bytes in the segments of every partition of the topic in a node's folder."""
    return sum(path.stat().st_size for path in folder.glob(f"{topic}-*/*.log"))


def create(trio: Trio, name: str, rows: Sequence[list[int]]) -> tuple[str, str]:
    """The topic to copy, with these lists of replicas in turn, and the topic of the paced clients,
    which has the first."""
    name = f"{name}-{time.monotonic_ns()}"
    paced = f"paced-{name}"
    admin = workloads.admin_of(trio)
    assignment = [rows[index % len(rows)] for index in range(PARTITIONS)]
    wanted = [
        NewTopic(name, PARTITIONS, replica_assignment=assignment),
        NewTopic(paced, 1, replica_assignment=assignment[:1]),
    ]
    for future in admin.create_topics(wanted).values():
        future.result(WAIT_SECONDS)
    workloads.await_leaders(admin, [name], PARTITIONS)
    workloads.await_leaders(admin, [paced], 1)
    return name, paced


def fill(trio: Trio, topic: str) -> float:
    """Write the topic full; the seconds it took."""
    return workloads.send(
        trio,
        topic,
        value_bytes=VALUE_BYTES,
        total_bytes=scaled(BYTES),
        batch_bytes=BATCH_BYTES,
        partitions=PARTITIONS,
    )


def quiet_p99_ms(paced: Paced) -> float:
    """What the paced clients see while nothing else happens."""
    outage.await_true(lambda: len(paced.taken_ms) > 3 * UNPACED, "no records", WAIT_SECONDS)
    first = len(paced.taken_ms)
    time.sleep(scaled_seconds(QUIET_SECONDS))
    return paced.p99_ms(first)


def clients_figures(quiet: float, busy: float) -> dict[str, float]:
    """The paced clients' p99 in milliseconds, quiet and meanwhile."""
    return {"p99 ms quiet": quiet, "p99 ms meanwhile": busy, "p99 over quiet": busy / quiet}


def wipe(node: Server) -> None:
    """Stop a node as an operator does, and let it begin again with an empty folder."""
    assert node.process is not None
    node.process.terminate()
    node.process.wait(WAIT_SECONDS)
    shutil.rmtree(node.folder / "data")
    node.prepare()
    node.launch()


def wiped(server: Server) -> Sample:
    """MB/s of catching up, its CPU, and the paced clients' p99 quiet and meanwhile."""
    assert isinstance(server, Trio)
    _, victim = outage.choose(server, decides=False)
    node = server.nodes[victim]
    others = [number for number in NUMBERS if number != victim]
    topic, paced_topic = create(server, "wiped", [[*others, victim], [*others[::-1], victim]])
    filled = fill(server, topic)
    size = log_bytes(server.nodes[others[0]].folder / "data", topic)
    with Paced(server, paced_topic) as paced:
        quiet = quiet_p99_ms(paced)
        wipe(node)
        data = node.folder / "data"
        await_bytes(data, topic, 1)
        before, begin, taken = server.cpu_seconds(), time.perf_counter(), len(paced.taken_ms)
        await_bytes(data, topic, size)
        seconds, cpu = time.perf_counter() - begin, server.cpu_seconds() - before
        busy = paced.p99_ms(taken)
    outage.await_in_sync(server, topic)
    workloads.drop(server, topic)
    workloads.drop(server, paced_topic)
    return Sample(
        {
            "catch-up MB/s": size / seconds / 1e6,
            "CPU s/GB": cpu / (size / 1e9),
            "fill MB/s": scaled(BYTES) / filled / 1e6,
            **clients_figures(quiet, busy),
        }
    )


def await_bytes(folder: Path, topic: str, size: int) -> None:
    """Wait until so many bytes of the topic lie there."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while log_bytes(folder, topic) < size:
        if time.perf_counter() > deadline:
            raise SystemExit(f"{folder}: {size} bytes did not come within {WAIT_SECONDS:g} s")
        time.sleep(LOOK_SECONDS)
