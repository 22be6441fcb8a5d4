"""`python -m chaos.migration`: classic topics become diskless while clients run and brokers die.

What: three brokers as processes; round by round a classic topic with a remote log, an idempotent
producer and a reader that begins again at the start, and `diskless.enable=true`. Once the topic is
seen in a phase (preparing, sealing, diskless), the leader of a partition, the controller or another
broker gets SIGKILL and is started again: each phase with each of them, in turn. In every fourth
round the operator cancels first, and begins again. The topic must become diskless; then each
acknowledged record must be at its offset, once, no offset may lack, and nothing that the reader was
told may change. At the end, with all brokers stopped, the store must agree with the coordinator,
byte by byte.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.server.one_machine import COORDINATOR, OBJECTS
from anabranch.testing import LocalCluster
from chaos.mirror import QUIET, Stuck
from chaos.tiering import PARTITIONS, RACKS, Coordinator, Reader, Sender, judge, verified

CONFIG: dict[str, object] = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": 500,
}
SETTINGS: dict[str, object] = {
    "remote.storage.enable": "true",
    "internal.segment.bytes": "16384",
    "min.insync.replicas": "2",
    "local.retention.ms": "1",
    "file.delete.delay.ms": "0",
}
SETTING, PHASE = "diskless.enable", "diskless.migration.phase"
PREPARING, SEALING, DISKLESS, CLASSIC = "preparing", "sealing", "diskless", "classic"
LEADER, CONTROLLER, FOLLOWER = "leader", "controller", "follower"
CANCELS_EVERY = 4
BEFORE_SECONDS, AFTER_SECONDS = 3.0, 3.0
LIMIT_SECONDS = 120.0
"""For a topic to become diskless, with a broker that dies and starts again."""
LOOK_SECONDS = 0.02
DEAD_SECONDS = 1.0


class Operator:
    """What an operator asks of one topic. A request that no broker answers is made again."""

    def __init__(self, bootstrap: str, topic: str) -> None:
        self.topic = topic
        self._admin = AdminClient({"bootstrap.servers": bootstrap, **QUIET})

    def phase(self) -> str:
        """What the topic is; "" where nobody answers."""
        resource = ConfigResource(ConfigResource.Type.TOPIC, self.topic)
        try:
            found = self._admin.describe_configs([resource])[resource].result(5)
        except KafkaException:
            return ""
        own = {name: str(entry.value or "") for name, entry in found.items()}
        if own.get(SETTING) == "true":
            return DISKLESS
        return own.get(PHASE, "").partition(":")[0] or CLASSIC

    def wants(self, value: str) -> None:
        """Set `diskless.enable`, or try to."""
        entry = ConfigEntry(SETTING, value, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(
            ConfigResource.Type.TOPIC, self.topic, incremental_configs=[entry]
        )
        try:
            self._admin.incremental_alter_configs([resource])[resource].result(5)
        except KafkaException:
            return  # a replica is not in sync yet, or nobody answered: it is asked for again

    def becomes(self, wanted: str, strike: Callable[[str], None]) -> None:
        """Have the topic become what is wanted; `strike` is told each phase. Raises Stuck."""
        deadline_s, asked_s = time.monotonic() + LIMIT_SECONDS, 0.0
        while (phase := self.phase()) != wanted:
            if phase:
                strike(phase)
            if time.monotonic() > deadline_s:
                raise Stuck(f"{self.topic} is {phase or 'not told'}, not {wanted}")
            is_begun = phase in (PREPARING, SEALING)
            if is_begun != (wanted == DISKLESS) and time.monotonic() - asked_s > 1.0:
                asked_s = time.monotonic()
                self.wants("true" if wanted == DISKLESS else "false")
            if phase == DISKLESS and wanted == CLASSIC:
                return  # too late: it is diskless for good
            time.sleep(LOOK_SECONDS)
        strike(wanted)


class Kill:
    """Kills a broker once its phase has come."""

    def __init__(self, cluster: LocalCluster, topic: str, phase: str, whom: str) -> None:
        self._cluster, self._topic, self._phase, self._whom = cluster, topic, phase, whom
        self.is_over = False

    def __call__(self, phase: str) -> None:
        """The topic was seen in a phase."""
        if self.is_over or phase != self._phase:
            return
        self.is_over = True
        with self._cluster.kill(self._victim()):
            time.sleep(DEAD_SECONDS)

    def _victim(self) -> int:
        leader, controller = self._cluster.leader(self._topic), self._cluster.controller()
        if self._whom == LEADER:
            return leader
        if self._whom == CONTROLLER:
            return controller
        others = {each.broker_id for each in self._cluster.brokers} - {leader, controller}
        return min(others)


def run(seconds: float, folder: Path, say: Callable[[str], None]) -> None:
    """Rounds until the time is over; then the verdict. Raises Stuck."""
    with LocalCluster(
        brokers=3, racks=RACKS, folder=folder, processes=True, config=CONFIG
    ) as cluster:
        begin_s, rounds, records, struck = time.monotonic(), 0, 0, 0
        turns = itertools.cycle(
            itertools.product((PREPARING, SEALING, DISKLESS), (LEADER, CONTROLLER, FOLLOWER))
        )
        while time.monotonic() - begin_s < seconds:
            phase, whom = next(turns)
            kill, sender, took_s = one_round(cluster, rounds, phase, whom)
            rounds, records, struck = (
                rounds + 1, records + len(sender.places), struck + kill.is_over
            )  # fmt: skip
            hit = "killed" if kill.is_over else "not met"
            say(
                f"round {rounds}: {whom} {hit} in {phase}; diskless after {took_s:.1f} s, "
                f"{len(sender.places):,} records, longest pause {sender.longest_pause_s:.1f} s"
            )
        (found,) = folder.rglob(COORDINATOR)
        coordinator, cluster_id = Coordinator(found.parent), cluster.cluster_id
    store = f"file://{found.parent.resolve()}/{OBJECTS}"
    findings = asyncio.run(verified(coordinator, store, cluster_id))
    if findings:
        raise Stuck(f"the store and the coordinator do not agree: {findings[:3]}")
    say(
        f"{rounds} topics became diskless, {struck} kills, {records:,} records: each record is at "
        "its offset once, and the store agrees with the coordinator"
    )


def one_round(
    cluster: LocalCluster, number: int, phase: str, whom: str
) -> tuple[Kill, Sender, float]:
    """A topic becomes diskless; whether somebody was killed, who has written, and how long it took.
    Raises Stuck."""
    topic, at = f"moved-{number}", cluster.bootstrap_servers
    cluster.wait_in_sync(timeout_seconds=LIMIT_SECONDS)
    cluster.create_topic(topic, partitions=PARTITIONS, replication_factor=3, config=SETTINGS)
    operator, kill = Operator(at, topic), Kill(cluster, topic, phase, whom)
    with Sender(at, topic) as sender, Reader(at, topic) as reader:
        time.sleep(BEFORE_SECONDS)
        begin_s = time.monotonic()
        if number % CANCELS_EVERY == CANCELS_EVERY - 1:
            operator.wants("true")
            operator.becomes(CLASSIC, lambda _: None)
        operator.becomes(DISKLESS, kill)
        took_s = time.monotonic() - begin_s
        time.sleep(AFTER_SECONDS)
    judge(at, sender, reader, topic)
    return kill, sender, took_s


def main() -> int:
    """Parse the arguments and run; 1 when a record is lost or a topic stays as it is."""
    parser = argparse.ArgumentParser(prog="python -m chaos.migration", description=__doc__)
    parser.add_argument("--seconds", type=float, default=600, help="no round begins after so long")
    arguments = parser.parse_args()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    folder = Path(tempfile.mkdtemp(prefix="anabranch-chaos-migration-"))
    try:
        run(arguments.seconds, folder, lambda line: print(line, flush=True))
    except Stuck as fault:
        print(f"{fault}; the brokers' logs are below {folder}", flush=True)
        return 1
    shutil.rmtree(folder)
    return 0


if __name__ == "__main__":
    sys.exit(main())
