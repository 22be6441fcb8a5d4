"""The rows of remote logs, beside Apache Kafka with LocalTieredStorage.

Segments have 64 MiB. Kafka's store of its tests copies files and does not sync them, so Anabranch
is compared with syncing switched off, and measured again with it. What is read is dropped from the
page cache before, the store's files and local ones alike.
"""

from __future__ import annotations

import asyncio
import os
import re
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from urllib.request import urlopen

import workloads
from confluent_kafka.admin import AlterConfigOpType, ConfigEntry, ConfigResource, NewTopic
from row import MB, Row, less, more, own_less, own_more
from scale import scaled
from servers import Server
from tiered import REMOTE, TIERED, TOPIC, TieredAnabranch, TieredKafka
from workloads import Sample

from anabranch.client.cluster import Cluster
from anabranch.client.fetch import fetch

TOTAL_BYTES = 600 * MB
SEGMENT_BYTES = 64 << 20
READ, LOCAL = "remote-read", "local-read"
WAIT_SECONDS = 300.0
FIRSTS = 5
"""Cold segments of which a first record is asked for."""
UNSYNCED = (
    "import os; os.fsync = os.fdatasync = lambda _: None; "
    "import runpy; runpy.run_module('anabranch', run_name='__main__', alter_sys=True)"
)


class Unsynced(TieredAnabranch):
    """A node that asks no disk to sync, as Kafka's store of its tests does not."""

    def command(self) -> list[str]:
        """The same command after the two calls were replaced."""
        _, _, _, *words = super().command()
        return [sys.executable, "-c", UNSYNCED, *words]


def create(server: Server, topic: str, **settings: object) -> None:
    """A topic with one partition."""
    config = {name.replace("_", "."): str(value) for name, value in settings.items()}
    config |= {
        "segment.bytes": str(max(1 << 20, scaled(SEGMENT_BYTES))),
        "file.delete.delay.ms": "0",
    }
    admin = workloads.admin_of(server)
    admin.create_topics([NewTopic(topic, 1, 1, config=config)])[topic].result(WAIT_SECONDS)
    workloads.await_leaders(admin, [topic], 1)


def alter(server: Server, topic: str, **settings: object) -> None:
    """Change settings of a topic."""
    entries = [
        ConfigEntry(name.replace("_", "."), str(value), incremental_operation=AlterConfigOpType.SET)
        for name, value in settings.items()
    ]
    resource = ConfigResource(ConfigResource.Type.TOPIC, topic, incremental_configs=entries)
    admin = workloads.admin_of(server)
    admin.incremental_alter_configs([resource])[resource].result(WAIT_SECONDS)


def logs(folder: Path) -> list[Path]:
    """The segments below a folder, in order."""
    return sorted(folder.rglob("*.log"))


def size_of(paths: Sequence[Path]) -> int:
    """Their bytes; those that went meanwhile have none."""
    return sum(path.stat().st_size for path in paths if path.exists())


def closed(server: Server, topic: str) -> list[Path]:
    """The local segments of a topic but for the active one."""
    return logs(server.folder / "data" / f"{topic}-0")[:-1]


def until(ask: Callable[[], bool], what: str) -> None:
    """Ask again and again; at most for `WAIT_SECONDS`."""
    deadline = time.perf_counter() + WAIT_SECONDS
    while not ask():
        if time.perf_counter() > deadline:
            raise SystemExit(f"not within {WAIT_SECONDS:.0f} s: {what}")
        time.sleep(0.01)


def filled(server: Server, topic: str, **settings: object) -> None:
    """A topic with `TOTAL_BYTES` of values of 1 KB."""
    create(server, topic, **settings)
    workloads.send(
        server, topic, value_bytes=1000, total_bytes=scaled(TOTAL_BYTES), batch_bytes=1_000_000
    )


def copy(server: Server) -> Sample:
    """From the first byte in the store until all closed segments are there."""
    topic = f"copied-{time.monotonic_ns()}"
    filled(server, topic)
    wanted = size_of(closed(server, topic))
    store = server.folder / REMOTE
    there = size_of(logs(store))
    before = server.cpu_seconds()
    alter(server, topic, remote_storage_enable="true")
    until(lambda: size_of(logs(store)) > there, "the first byte of a copy")
    begin = time.perf_counter()
    until(lambda: size_of(logs(store)) >= there + wanted, "all copies")
    seconds = time.perf_counter() - begin
    cpu = server.cpu_seconds() - before
    workloads.drop(server, topic)
    return Sample({"MB/s": wanted / seconds / 1e6, "CPU s/GB": cpu / (wanted / 1e9)})


def prepare_reads(server: Server) -> None:
    """A topic that is remote but for its active segment, and one that is local."""
    filled(server, LOCAL)
    filled(server, READ, **{**{key.replace(".", "_"): each for key, each in TOPIC.items()},
                            "local_retention_bytes": 1})  # fmt: skip
    until(lambda: not closed(server, READ), "the local segments to go")


def forget_pages(server: Server) -> None:
    """Have nothing of logs and store in the page cache."""
    for path in server.folder.rglob("*"):
        if path.is_file():
            handle = os.open(path, os.O_RDONLY)
            os.fsync(handle)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)


def read(server: Server) -> Sample:
    """A consumer that reads all of the remote log, and one that reads a local one."""
    found = {}
    for topic in (LOCAL, READ):
        forget_pages(server)
        found[topic] = workloads.consume(
            server, topic, value_bytes=1000, total_bytes=scaled(TOTAL_BYTES)
        )
    remote, local = found[READ].figures, found[LOCAL].figures
    return Sample({**remote, "of a local read": remote["MB/s"] / local["MB/s"]})


def gets(server: Server) -> int:
    """Reads of the store so far."""
    address = server.settings["http.listener"]
    text = urlopen(f"http://{address}/metrics", timeout=20).read().decode()
    counts = re.findall(r"^kafka_\w+_remotefetchrequests_total\S* (\S+)$", text, re.MULTILINE)
    return int(sum(map(float, counts)))


def first_records(server: Server) -> Sample:
    """Of segments that were not read before: reads of the store, and milliseconds, until a record
    from their middle is there; and once their index is in memory, of one near their beginning."""
    forget_pages(server)
    names = sorted(path.name for path in logs(server.folder / REMOTE))
    starts = [int(name[:20]) for name in names][: FIRSTS + 1]
    return Sample(asyncio.run(_first_records(server, starts)))


async def _first_records(server: Server, starts: Sequence[int]) -> dict[str, float]:
    asked: dict[str, list[tuple[int, float]]] = {"cold": [], "index cached": []}
    async with Cluster(server.bootstrap) as cluster:
        for first, end in pairwise(starts):
            for what, offset in (("cold", (first + end) // 2), ("index cached", first + 100)):
                before, begin = gets(server), time.perf_counter()
                [found] = await fetch(cluster, READ, {0: offset})
                if not found.records:
                    raise SystemExit(f"offset {offset} was not read")
                took_ms = (time.perf_counter() - begin) * 1000
                asked[what].append((gets(server) - before, took_ms))
    figures = {}
    for what, found in asked.items():
        figures[f"reads, {what}"] = sum(count for count, _ in found) / len(found)
        figures[f"ms, {what}"] = sorted(ms for _, ms in found)[len(found) // 2]
    return figures


def beside_copies(server: Server) -> Sample:
    """One record at a time, quietly and while another topic is copied."""
    quiet = workloads.one_at_a_time(server, value_bytes=100, count=scaled(2_000))
    topic = f"beside-{time.monotonic_ns()}"
    filled(server, topic)
    wanted = size_of(closed(server, topic))
    store = server.folder / REMOTE
    there = size_of(logs(store))
    alter(server, topic, remote_storage_enable="true")
    until(lambda: size_of(logs(store)) > there, "the first byte of a copy")
    over: list[float] = []

    def watch() -> None:
        until(lambda: size_of(logs(store)) >= there + wanted, "all copies")
        over.append(time.perf_counter())

    watching = threading.Thread(target=watch)
    watching.start()
    late: list[float] = []
    while not over:
        late.append(
            workloads.one_at_a_time(server, value_bytes=100, count=scaled(500)).figures["p99 ms"]
        )
    watching.join()
    workloads.drop(server, topic)
    copying = sorted(late)[len(late) // 2]
    return Sample(
        {
            "quiet p99 ms": quiet.figures["p99 ms"],
            "copying p99 ms": copying,
            "p99 over quiet": copying / quiet.figures["p99 ms"],
        }
    )


COMPARED: Mapping[str, type[Server]] = {"anabranch": Unsynced, "kafka": TieredKafka}
OWN: Mapping[str, type[Server]] = {"anabranch": TieredAnabranch}

TIERED_ROWS = [
    Row(
        "tiered-copy",
        "copy closed segments of 64 MiB to a folder, 600 MB, nothing synced",
        copy,
        {"MB/s": more(1), "CPU s/GB": less(1 / 2)},
        servers=COMPARED,
        written_bytes=1200 * MB,
        note="Kafka's store is LocalTieredStorage of its tests",
    ),
    Row(
        "tiered-copy-synced",
        "copy closed segments of 64 MiB to a folder, 600 MB, synced",
        copy,
        servers=OWN,
        written_bytes=1200 * MB,
    ),
    Row(
        "tiered-read",
        "read a remote log from its beginning, 1 KB records, 600 MB, cold",
        read,
        {"of a local read": own_more(0.4)},
        servers=TIERED,
        prepare=prepare_reads,
    ),
    Row(
        "tiered-first-record",
        "the first record of a remote segment",
        first_records,
        {"reads, cold": own_less(2.5), "reads, index cached": own_less(1.5)},
        servers=OWN,
        prepare=prepare_reads,
        fresh=False,
        warm_up=False,
        rounds_at_most=1,
    ),
    Row(
        "tiered-beside-copies",
        "100 B one at a time, acks=1, while another topic is copied",
        beside_copies,
        {"p99 over quiet": own_less(3)},
        servers=TIERED,
        written_bytes=1200 * MB,
    ),
]
