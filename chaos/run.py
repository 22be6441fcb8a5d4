"""One run from its seed: a cluster, clients, rounds of faults, and what is left to look at.

What: a run has one part with its metadata in SQLite and, when it is long enough or that is drawn,
one in PostgreSQL; each part is a cluster of its own with its own clients and verdict. Rules kept:
after every round everything is healed and the cluster has to become whole in `WHOLE_SECONDS`; what
is left at the end is judged by clients' histories, full reads, and the bytes of all replicas.
Not here: what went wrong (`faults`), counts and sentences (`report`).
"""

from __future__ import annotations

import asyncio
import contextlib
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path

from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicPartition
from chaos import check, replicas, secure
from chaos.crowd import Acks, Crowd
from chaos.diskless import DisklessStorage
from chaos.disks import SmallDisks
from chaos.faults import carry_out_round, restore
from chaos.network import Network
from chaos.node_logs import NodeLogs
from chaos.nodes import IDS, Nodes
from chaos.objects import FolderObjects, S3Objects
from chaos.open_transactions import left_open
from chaos.operator_log import OperatorLog
from chaos.plan import draw_config, draw_round
from chaos.private import Private
from chaos.report import PartReport
from chaos.scene import Scene
from chaos.stores import PostgresDatabase, SqliteFile, wait_at_most
from chaos.streams import ROLE as STREAMS
from chaos.streams import Program, StreamsClient
from chaos.topics import (
    AGED,
    BOUNDED,
    DISKLESS,
    MOVABLE,
    PLACES,
    REBORN,
    TIERED,
    create_topics,
)
from chaos.transfers import APPLICATION, PARTITIONS
from chaos.volume import is_possible
from chaos.watch import Watch

MARK_SECONDS = 10.0
STEADY_SECONDS = 1.0
CALM_SECONDS = 2.0
"""Between a whole cluster and the next round, so that clients get somewhere."""
WHOLE_SECONDS = 90.0
"""The longest that a healed cluster may take until every replica is in sync again."""
CONFIG: dict[str, object] = {
    "default.replication.factor": 3,
    "min.insync.replicas": 2,
    "unclean.leader.election.enable": "false",
    "auto.create.topics.enable": "false",
    "offsets.topic.num.partitions": 4,
    "group.initial.rebalance.delay.ms": 0,
    "log.segment.delete.delay.ms": 1000,
    "remote.log.manager.task.interval.ms": 2000,
    "transaction.state.log.num.partitions": 4,
    "transaction.abort.timed.out.transaction.cleanup.interval.ms": 2000,
}
SMALL = (1, 2)
"""The brokers whose folder is a file system of its own; the third one's is the machine's disk."""


class Part:
    """One cluster with its clients, for `seconds` of faults."""

    def __init__(
        self, folder: Path, seed: int, number: int, store: str, say: Callable[[str], None],
        network: Network | None = None, *, has_mounts: bool = False,
        objects: str = FolderObjects.name, program: Program | None = None,
        is_secure: bool = False,
    ) -> None:  # fmt: skip
        self.folder, self.seed, self.number, self._say = folder, seed, number, say
        folder.mkdir(parents=True)
        folders = {each: str(folder / f"broker-{each}") for each in SMALL}
        self.disks = SmallDisks(folders) if has_mounts else None
        is_file, host = store == SqliteFile.name, network.store if network else None
        self.store = SqliteFile(folder) if is_file else PostgresDatabase(host)
        has_volume = has_mounts and is_possible()
        self.objects = (
            S3Objects(network.objects if network else None)
            if objects == S3Objects.name
            else FolderObjects(folder, has_mounts=has_volume)
        )
        self.diskless = DisklessStorage(folder, self.store, self.objects)
        drawn = {**CONFIG, **draw_config(seed, number)}
        config: dict[str, object] = {**drawn, **self.diskless.settings}
        where = ", hosts in network namespaces" if network else ""
        where += ", two small file systems" if has_mounts else ""
        where += f", objects in {self.objects.place}"
        where += f", {secure.PROTOCOL} everywhere" if is_secure else ""
        self.report = PartReport(store + where, {each: str(drawn[each]) for each in drawn})
        hosts = network.nodes if network else None
        self.nodes = Nodes(folder, self.store.setting, config, hosts, is_secure=is_secure)
        self.logs = NodeLogs(self.nodes.outputs)
        self.watch = Watch(self.store.url)
        clients = network.clients if network else None
        histories = folder / "histories"
        self.streams = StreamsClient(program, histories, folder / "streams") if program else None
        more = [self.streams] if self.streams else []
        self.crowd = Crowd(histories, seed, host=clients, more=more)
        self.acks = Acks(self.crowd.folder)
        self.operator = OperatorLog(self.crowd.folder, self.watch.topic_id)
        self.scene = Scene(
            self.nodes, self.watch, self.store, self.crowd, PLACES, MOVABLE, REBORN, self.operator,
            self.diskless, self.disks, network,
        )  # fmt: skip
        self._began_s = self._marked_s = self._ill_s = time.monotonic()

    def run(self, seconds: float) -> PartReport:
        """All of it; the report is complete afterwards."""
        try:
            self._begin()
            self._rounds(time.monotonic() + seconds)
            self._finish()
        finally:
            self.crowd.abandon()
            self.nodes.abandon()
            self.objects.close()
            self.store.close()
            if self.disks is not None:
                self.disks.close()
        return self.report

    def say(self, text: str) -> None:
        """A line with the time since the part began."""
        self._say(f"{time.monotonic() - self._began_s:7.1f}  {text}")

    # Begin.

    def _begin(self) -> None:
        self.nodes.start()
        self.watch.start()
        asyncio.run(create_topics(self.nodes.bootstrap))
        self._become_whole("at the start")
        self.crowd.start(self.nodes.bootstrap)
        wait_at_most(20, lambda: self._looked().acks.count > 0)
        self.say(f"three brokers serve, metadata in {self.report.store}; clients write")

    # Faults.

    def _rounds(self, until_s: float) -> None:
        number = 0
        while time.monotonic() < until_s:
            faults = draw_round(self.seed, self.number, number, self.scene.kinds())
            with self._marking():
                happened = carry_out_round(self.scene, faults, self.say, until_s)
            self.report.faults.update(happened)
            self._restore_topics()
            self._become_whole(f"after round {number}")
            time.sleep(CALM_SECONDS)
            number += 1
        self.report.rounds = number

    def _become_whole(self, when: str) -> None:
        began_s = self._ill_s = time.monotonic()
        if not wait_at_most(WHOLE_SECONDS, lambda: self._looked().is_whole()):
            unwell = "; ".join(self.watch.unwell()[:5])
            self.report.surprises.append(
                f"{when}: not whole {WHOLE_SECONDS:.0f} s after everything was healed: {unwell}"
            )
            self.say(self.report.surprises[-1])
            return
        healed_s = self._ill_s - began_s
        self.report.healing_s.append(healed_s)
        self.operator.settled(REBORN)
        self.say(f"whole again after {healed_s:.1f} s")

    def _restore_topics(self) -> None:
        """A topic whose creation failed amid faults is made now."""
        if not wait_at_most(WHOLE_SECONDS, lambda: not restore(self.scene)):
            self.report.surprises.append("a topic could not be made again after all was healed")

    def is_whole(self) -> bool:
        """Whether everybody serves, all partitions are led and in sync, and it stays like that: a
        controller notices a moment later that somebody died."""
        if self.watch.lease is None or self.watch.unwell() or not self.nodes.serve():
            self._ill_s = time.monotonic()
        return time.monotonic() - self._ill_s > STEADY_SECONDS

    # Looking.

    def _looked(self) -> Part:
        self.nodes.look()
        self.crowd.look()
        self.logs.look()
        self.acks.look()
        if time.monotonic() - self._marked_s > MARK_SECONDS:
            self._marked_s = time.monotonic()
            self._mark()
        return self

    def _mark(self) -> None:
        self.say(
            f"-- {self.acks.count:,} acks, {self.watch.elections} elections, "
            f"{self.logs.truncations} truncations, {self.watch.lease_changes} lease changes"
        )
        if self.watch.fault is None and (unwell := self.watch.unwell()):
            self.say(f"   {len(unwell)} unwell, {unwell[0]}")

    @contextlib.contextmanager
    def _marking(self) -> Iterator[None]:
        """Look while a round goes on; nobody else looks meanwhile, since two would count twice."""
        ended = threading.Event()

        def look() -> None:
            while not ended.wait(1.0):
                self._looked()

        thread = threading.Thread(target=look, daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()

    # End.

    def _finish(self) -> None:
        self.say("faults are over; producers finish what they have under way")
        self.crowd.end("producer", "keeper", "transfer")
        self._none_open()
        self.crowd.end("processor", STREAMS)
        self._none_open()
        self.crowd.end("reader", "member", "committed")
        self.crowd.last_reads()
        self._become_whole("at the end")
        self.watch.stop()
        self.operator.close()
        self.nodes.close()
        self.logs.look()
        report = self.report
        report.elections = self.watch.elections
        report.unclean_elections = self.watch.unclean_elections
        report.last_known = self.watch.last_known
        report.lease_changes = self.watch.lease_changes
        report.truncations = self.logs.truncations
        report.sentences = Counter(self.logs.sentences)
        report.surprises += self.nodes.surprises + self.crowd.surprises
        report.remarks = list(self.crowd.remarks)
        report.bugs = list(self.logs.bugs)
        self.say("judging")
        report.verdict = check.judge(self.crowd.histories, self.nodes.folders)
        if self.streams is not None:
            report.streams = self.streams.figures(report.verdict.counted)
        report.compared = replicas.compare(
            self.nodes.folders, self._placed(), expiring={*AGED, *BOUNDED, *TIERED}
        )
        try:
            report.diskless = self.diskless.settle()
        except StorageFault as fault:
            report.surprises.append(f"diskless: {fault}")
        report.seconds = time.monotonic() - self._began_s

    def _none_open(self) -> None:
        """What clients left open is ended by its coordinator: nothing hangs."""
        topics = {topic.name for topic in self.watch.image.topics_by_id.values()}
        own = {each for each in topics if each.startswith(APPLICATION)}
        if open_places := left_open(self.nodes.bootstrap, {*PARTITIONS, *own}):
            self.report.surprises.append(f"transactions are still open: {'; '.join(open_places)}")

    def _placed(self) -> dict[TopicPartition, set[str]]:
        """The folders that have to hold a replica of each partition, and no others; none has one of
        a diskless topic."""
        folders = {each: Path(path).name for each, path in zip(IDS, self.nodes.folders)}
        return {
            TopicPartition(topic.name, index): {folders[each] for each in partition.replicas}
            for topic in self.watch.image.topics_by_id.values()
            if topic.name != DISKLESS
            for index, partition in topic.partitions.items()
        }


def stores_of(seed: int, seconds: float, store: str) -> list[tuple[str, float]]:
    """Which store each part has and for how long: a long run has both."""
    if store != "both":
        return [(store, seconds)]
    if seconds >= LONG_SECONDS:
        return [("sqlite", seconds * 2 / 3), ("postgres", seconds / 3)]
    return [(("sqlite", "postgres")[seed % 2], seconds)]


LONG_SECONDS = 600.0


def run(
    folder: Path, *, seed: int, seconds: float, store: str, say: Callable[[str], None],
    private: Private, objects: str = FolderObjects.name, program: Program | None = None,
    is_secure: bool = False,
) -> list[PartReport]:  # fmt: skip
    """All parts; what they wrote is left in `folder`."""
    shutil.rmtree(folder, ignore_errors=True)
    reports = []
    network = Network(IDS) if private.network else None
    for number, (kind, part_seconds) in enumerate(stores_of(seed, seconds, store)):
        part = Part(
            folder / f"{number}-{kind}",
            seed,
            number,
            kind,
            say,
            network,
            has_mounts=private.mounts,
            objects=objects,
            program=program,
            is_secure=is_secure,
        )
        reports.append(part.run(part_seconds))
        say("\n".join(reports[-1].lines()))
    return reports
