"""The demo as a story: what is done, how long it took, and whether each promise held.

For programs the story goes to standard error, and its checks are JSON on standard output.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import sys
import time
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from anabranch.cli.cluster_command import print_json
from anabranch.cli.demo.acts import (
    PARTITIONS,
    Advance,
    Place,
    Sender,
    Took,
    create_topic,
    leader_of,
    read_all,
    send_all,
    send_in_pieces,
    wait_in_sync,
)
from anabranch.cli.demo.flights import Delay, Keyed, Tally, carrier_names, delays_from, flights
from anabranch.cli.local_brokers import LocalBrokers
from anabranch.cli.spark import faults_with_remedies
from anabranch.cli.up import say_cluster
from anabranch.core.sentences import number_of
from anabranch.server.one_machine import OBJECTS

TOPIC = "flights"
CRASH_TOPIC = "flights-during-a-crash"
DISKLESS_TOPIC = "flights-diskless"
KILL_AFTER_SHARE = 0.3
"""Of the records: the node is killed when this many are acknowledged and more are under way."""
RACKS = ("a", "b", "c")
LIVE_TOPIC = "flights-live"
LIVE_RECORDS = 60_000
"""Sent while a table of them is kept."""
RANKED = 5
"""Carriers in a ranking."""
UNDER_WAY_SHARE = 0.2
"""Of the records: the client holds no more than this many, so the kill comes before the end."""


def program() -> str:
    """How a shell finds the command: by its name, or beside the interpreter that runs this."""
    beside = os.path.join(os.path.dirname(sys.executable), "anabranch")
    return "anabranch" if shutil.which("anabranch") else os.path.relpath(beside)


def megabytes(size_bytes: float) -> str:
    """Bytes for people."""
    return f"{size_bytes / 1e6:,.1f} MB"


def rates(took: Took) -> str:
    """Records, bytes and rates of one act on one line."""
    return (
        f"{number_of(took.records, 'record')}, {megabytes(took.value_bytes)} in "
        f"{took.seconds:.1f} s: "
        f"{took.records / took.seconds:,.0f} records/s, "
        f"{took.value_bytes / took.seconds / 1e6:,.0f} MB/s"
    )


class Story:
    """One run of the demo in `folder`, which the caller removes."""

    def __init__(
        self, folder: str, *, records: int, port: int, with_spark: bool, as_json: bool
    ) -> None:
        self.records = records
        self.folder = folder
        self.with_spark = with_spark
        self.cluster = LocalBrokers(folder, brokers=len(RACKS), racks=RACKS, port=port)
        self.as_json = as_json
        self.console = Console(highlight=False, soft_wrap=True, stderr=as_json)
        self.checks: list[dict[str, object]] = []

    @property
    def held(self) -> bool:
        """Whether every promise held so far."""
        return all(each["holds"] for each in self.checks)

    def tell(self) -> bool:
        """The whole demo; returns whether every promise held."""
        begin = time.perf_counter()
        with contextlib.closing(self.cluster):
            loaded = self._load()
            tally = self._read_back()
            self._carriers(tally)
            self._sizes(tally)
            self._crash(loaded, CRASH_TOPIC)
            self._diskless(loaded)
            if self.with_spark:
                with faults_with_remedies():
                    self._lake(loaded, tally)
        verdict = "all checks passed" if self.held else "[red]a check failed[/red]"
        seconds = time.perf_counter() - begin
        self.console.print(f"\n{verdict}; {seconds:.0f} s in all")
        if self.as_json:
            fields = {"passed": self.held, "records": self.records, "seconds": round(seconds, 1)}
            print_json({**fields, "checks": self.checks})
        return self.held

    def serve_until_interrupted(self) -> bool:
        """Load the flights and leave the node serving until Ctrl-C."""
        with contextlib.closing(self.cluster):
            self._load()
            self.console.print(f"\nserving at [bold]{self.cluster.bootstrap}[/bold]; try")
            at = f"--bootstrap-server {self.cluster.nodes[0].bootstrap} --topic {TOPIC}"
            for verb in ("topics describe", "consume --from-beginning --max-messages 3"):
                self.console.print(f"  {program()} {verb} {at}", soft_wrap=True)
            with contextlib.suppress(KeyboardInterrupt):
                self.console.print("Stop them with Ctrl-C.")
                if self.as_json:
                    say_cluster(self.cluster, as_json=True)
                self.cluster.wait()
            self.console.print("stopping")
        return True

    @contextlib.contextmanager
    def _progress(self, doing: str) -> Iterator[Advance]:
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
        )
        hidden = not self.console.is_terminal
        with Progress(*columns, console=self.console, transient=True, disable=hidden) as progress:
            task = progress.add_task(doing, total=self.records)
            yield lambda count: progress.advance(task, count)

    def _promise(self, holds: bool, sentence: str) -> None:
        self.checks.append({"check": sentence, "holds": holds})
        self.console.print(f"  {'[green]yes[/green]' if holds else '[red]NO [/red]'} {sentence}")

    def _load(self) -> list[Keyed]:
        print_ = self.console.print
        begin = time.perf_counter()
        self.cluster.start()
        seconds = time.perf_counter() - begin
        print_(f"three brokers in three racks: started in {seconds:.2f} s, in a new folder")
        for node in self.cluster.nodes:
            print_(f"  broker {node.node_id} at {node.bootstrap}, rack {node.rack}")
        seconds = create_topic(self.cluster.bootstrap, TOPIC)
        print_(
            f"topic {TOPIC}: {PARTITIONS} partitions, 3 replicas each, min.insync.replicas=2, "
            f"leaders elected after {seconds * 1000:.0f} ms"
        )
        loaded = []
        with self._progress("unpacking the flights") as advance:
            for record in flights(self.records):
                loaded.append(record)
                advance(1)
        with self._progress("sending") as advance:
            took = send_all(self.cluster.bootstrap, TOPIC, loaded, advance=advance)
        print_(f"sent (acks=all, idempotent): {rates(took)}")
        return loaded

    def _read_back(self) -> Tally:
        tally = Tally(self.records)
        with self._progress("reading back") as advance:
            took = read_all(self.cluster.bootstrap, TOPIC, tally, advance=advance)
        self.console.print(f"read back and checked: {rates(took)}")
        self._promise(
            tally.missing == 0 and tally.duplicates == 0,
            f"all {number_of(self.records, 'record')} were read, each exactly once",
        )
        self._promise(
            tally.out_of_order == 0 and tally.wrong_key == 0,
            f"the records of each of {tally.keys:,} tail numbers are in order",
        )
        return tally

    def _carriers(self, tally: Tally) -> None:
        names = carrier_names()
        table = Table(title="flights and delays by carrier", title_justify="left")
        table.add_column("carrier")
        table.add_column("flights", justify="right")
        table.add_column("mean departure delay, min", justify="right")
        by_flights = sorted(tally.carriers.items(), key=lambda each: (-each[1].flights, each[0]))
        for code, delay in by_flights:
            name = f"{names.get(code, code)} ({code})"
            table.add_row(name, f"{delay.flights:,}", f"{delay.mean_minutes:.1f}")
        self.console.print(table)

    def _sizes(self, tally: Tally) -> None:
        nodes = self.cluster.nodes
        resident = sum(node.resident_bytes() for node in nodes)
        memory = f"; they use {megabytes(resident)} of memory" if resident else ""
        self.console.print(
            f"the brokers store {megabytes(tally.value_bytes)} of values, three copies each, in "
            f"{megabytes(sum(node.disk_bytes() for node in nodes))} on disk{memory}"
        )

    def _diskless(self, loaded: list[Keyed]) -> None:
        """The same flights, with their bytes in objects and their order in a database."""
        self.console.print(
            f"topic {DISKLESS_TOPIC}: diskless, one replica in each rack; any broker buffers "
            "records, stores them as objects, and acknowledges them once their offsets are assigned"
        )
        kept = sum(node.disk_bytes() for node in self.cluster.nodes)
        self._crash(loaded, DISKLESS_TOPIC, is_diskless=True)
        grown = sum(node.disk_bytes() for node in self.cluster.nodes) - kept
        objects = os.path.join(self.folder, OBJECTS)
        stored = sum(
            os.path.getsize(os.path.join(place, name))
            for place, _, names in os.walk(objects)
            for name in names
        )
        self.console.print(
            f"  {megabytes(stored)} of objects, one copy each; the brokers' disks grew by "
            f"{megabytes(max(0, grown))}"
        )

    def _crash(self, loaded: list[Keyed], topic: str, *, is_diskless: bool = False) -> None:
        create_topic(self.cluster.bootstrap, topic, is_diskless=is_diskless)
        with self._progress("sending, with a SIGKILL") as advance:
            sender, before, victim = self._send_through_a_kill(loaded, topic, advance)
        self.console.print(
            f"all {number_of(sender.acknowledged, 'record')} were acknowledged; the "
            f"longest time without an acknowledgement was {sender.longest_gap_s:.2f} s"
        )
        self._look_for_each(sender, topic, before)
        self.cluster.node(victim).start()
        self.cluster.node(victim).wait_ready()
        seconds = wait_in_sync(self.cluster.bootstrap, (TOPIC, topic))
        self._promise(
            True,
            f"broker {victim} is back, and all replicas were in sync {seconds:.2f} s later",
        )

    def _lake(self, loaded: list[Keyed], tally: Tally) -> None:
        """The flights as a DataFrame and as a Delta table."""
        from anabranch.pipelines import flights as pipeline

        begin = time.perf_counter()
        with self.console.status("starting Spark"):
            spark = pipeline.start(self.folder)
        try:
            seconds = time.perf_counter() - begin
            self.console.print(f"Spark {spark.version} started in this process in {seconds:.1f} s")
            begin = time.perf_counter()
            with self.console.status("Spark reads the topic"):
                found = delays_from(pipeline.delays_of(spark, self.cluster.bootstrap, TOPIC))
            seconds = time.perf_counter() - begin
            self._ranked("ranked by delay, from a DataFrame of the topic", found)
            self._promise(
                found == tally.carriers,
                f'format("anabranch") returns all {number_of(self.records, "record")} '
                f"({seconds:.1f} s), and the same figures for each of "
                f"{number_of(len(found), 'carrier')}",
            )
            self._keep_table(spark, loaded[:LIVE_RECORDS])
            self._tier(spark)
            self._mirror(spark)
        finally:
            spark.stop()

    def _keep_table(self, spark: Any, live: list[Keyed]) -> None:
        from anabranch.pipelines import flights as pipeline

        table = os.path.join(self.folder, LIVE_TOPIC)
        create_topic(self.cluster.bootstrap, LIVE_TOPIC)
        query = pipeline.keep(spark, self.cluster.bootstrap, LIVE_TOPIC, table)
        try:
            with self._progress("sending while a stream writes a Delta table") as advance:
                send_in_pieces(self.cluster.bootstrap, LIVE_TOPIC, live, advance=advance)
            query.processAllAvailable()
        finally:
            query.stop()
        kept, expected = pipeline.kept(spark, table), Tally(len(live))
        for record in live:
            expected.take(record.key, record.value)
        found = delays_from(kept.delays)
        self._ranked("ranked by delay, from the Delta table", found)
        self._promise(
            kept.rows == kept.distinct == len(live) and found == expected.carriers,
            f"the Delta table has all {number_of(len(live), 'record')} sent meanwhile, each "
            f"exactly once, at version {kept.version}",
        )

    def _tier(self, spark: Any) -> None:
        """The diskless topic's batches become segments, while it is there for its consumers."""
        from anabranch.cli.demo.tiered import rows_of, tier_all

        before = rows_of(self.folder, DISKLESS_TOPIC)
        with self.console.status("Spark tiers the diskless topic"):
            done = tier_all(spark, self.cluster.bootstrap, self.folder)
        left = rows_of(self.folder, DISKLESS_TOPIC)
        self.console.print(
            f"Spark tiered {DISKLESS_TOPIC} in {done.seconds:.1f} s: "
            f"{megabytes(done.bytes_tiered)} in {number_of(done.segments, 'segment')}; of "
            f"{number_of(before.batches, 'row')} of batches in the coordinator's database, "
            f"{left.batches:,} are left, and {left.segments:,} of segments"
        )
        tally = Tally(self.records)
        with self._progress("reading what was tiered") as advance:
            read_all(self.cluster.bootstrap, DISKLESS_TOPIC, tally, advance=advance)
        self._promise(
            tally.holds and left.batches == 0 and done.segments > 0,
            "all batches are in segments, and consumers read the same "
            f"{number_of(self.records, 'record')}, each exactly once and in order",
        )

    def _mirror(self, spark: Any) -> None:
        """The flights in a second cluster, and a group that goes on there."""
        from anabranch.cli.demo.mirrored import GROUP, REMOTE, mirror, rest_of

        here, remote = self.cluster.bootstrap, REMOTE.format(TOPIC)
        second = LocalBrokers(os.path.join(self.folder, "second"), brokers=1)
        with contextlib.closing(second):
            second.start()
            with self.console.status("mirroring to a second cluster"):
                done = mirror(spark, here, second.bootstrap, TOPIC)
            tally = Tally(self.records)
            with self._progress("reading the second cluster") as advance:
                read_all(second.bootstrap, remote, tally, advance=advance)
            self._promise(
                tally.holds,
                f"the second cluster has all {number_of(tally.records, 'record')} "
                f"{done.seconds:.1f} s later, each exactly once and in order",
            )
            rest = rest_of(here, TOPIC, done.here)
            self._promise(
                rest_of(second.bootstrap, remote, done.there) == rest,
                f"group {GROUP}, at offset {done.here[0]:,} of {TOPIC}-0 here, continues at "
                f"{done.there[0]:,} of {remote}-0 there, and reads the same "
                f"{number_of(sum(map(len, rest.values())), 'record')}",
            )

    def _ranked(self, title: str, carriers: dict[str, Delay]) -> None:
        """The carriers with the longest mean delays."""
        names = carrier_names()
        table = Table(title=title, title_justify="left")
        for heading in ("carrier", "flights", "mean departure delay, min"):
            table.add_column(heading, justify="left" if heading == "carrier" else "right")
        ranked = sorted(carriers.items(), key=lambda each: -each[1].mean_minutes)
        for code, delay in ranked[:RANKED]:
            name = f"{names.get(code, code)} ({code})"
            table.add_row(name, f"{delay.flights:,}", f"{delay.mean_minutes:.1f}")
        self.console.print(table)

    def _look_for_each(self, sender: Sender, topic: str, before: int) -> None:
        lost = dict(sender.places)
        tally = Tally(self.records)

        def found(place: Place, row: int) -> None:
            if lost.get(place) == row:
                del lost[place]

        with self._progress("looking for each acknowledged record") as advance:
            read_all(self.cluster.bootstrap, topic, tally, advance=advance, each=found)
        self._promise(
            not lost,
            f"each acknowledged record ({before:,} of them from before the kill) is at its "
            "acknowledged offset",
        )
        self._promise(tally.holds, "no record is missing, duplicated or out of order")

    def _send_through_a_kill(
        self, loaded: list[Keyed], topic: str, advance: Advance
    ) -> tuple[Sender, int, int]:
        """Kill a leader while records are being acknowledged, and leave it dead. Of a diskless
        topic, what it had buffered is gone."""
        queue = int(self.records * UNDER_WAY_SHARE)
        sender = Sender(self.cluster.bootstrap, topic, advance=advance, queue_records=queue)
        victim = leader_of(self.cluster.bootstrap, topic, 0)
        kill_at = int(self.records * KILL_AFTER_SHARE)
        acknowledged_before = -1
        for record in loaded:
            sender.send(record)
            if acknowledged_before < 0 and sender.acknowledged >= kill_at:
                self.cluster.node(victim).kill()
                sender.watch_gaps()
                acknowledged_before = sender.acknowledged
                self.console.print(
                    f"SIGKILL for broker {victim}, a leader, with "
                    f"{number_of(acknowledged_before, 'record')} acknowledged and "
                    f"{sender.sent - acknowledged_before:,} in flight"
                )
        sender.finish()
        return sender, acknowledged_before, victim
