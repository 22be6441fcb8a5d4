"""What a producer notices while a topic of 100 partitions with 2 GB becomes diskless.

    .venv/bin/python bench/migrated.py [GB]

Three brokers as processes, a topic with three replicas and a remote log of which nothing is copied
yet: segments are larger than what is written. Then a producer goes on, 500 records of 1 KB a second
over all partitions, and `diskless.enable=true` is set. The clock of a record runs from `produce` to
its acknowledgement; the longest is the pause, since a producer waits for the slowest partition.
"""

from __future__ import annotations

import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource

from anabranch.testing import LocalCluster

PARTITIONS, VALUE = 100, b"x" * 1_000
TOPIC = "moved"
RATE, QUIET_SECONDS, LIMIT_SECONDS = 500, 10.0, 600.0
CONFIG: dict[str, object] = {"remote.log.storage.system.enable": "true"}
SETTINGS: dict[str, object] = {"remote.storage.enable": "true", "min.insync.replicas": "2"}
SETTING, PHASE = "diskless.enable", "diskless.migration.phase"


def fill(bootstrap: str, total_bytes: int) -> None:
    """Write to all partitions in turn."""
    producer = Producer(
        {
            "bootstrap.servers": bootstrap, "linger.ms": 50, "batch.size": 500_000, "log_level": 0,
            "queue.buffering.max.kbytes": 100_000,
        }
    )  # fmt: skip
    for number in range(total_bytes // len(VALUE)):
        while True:
            try:
                producer.produce(TOPIC, VALUE, partition=number % PARTITIONS)
                break
            except BufferError:
                producer.poll(0.1)
    if producer.flush(300):
        raise SystemExit("records were not acknowledged")


class Paced:
    """An idempotent producer with a steady rate."""

    def __init__(self, bootstrap: str) -> None:
        self.taken_s: list[float] = []
        self.refused = 0
        self._over = threading.Event()
        self._producer = Producer(
            {"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5,
             "log_level": 0}
        )  # fmt: skip
        self._thread = threading.Thread(target=self._run)

    def _run(self) -> None:
        number, begin_s = 0, time.monotonic()
        while not self._over.is_set():
            while number < (time.monotonic() - begin_s) * RATE:
                self._send(number)
                number += 1
            self._producer.poll(0.005)

    def _send(self, number: int) -> None:
        sent_s = time.monotonic()

        def told(error: object, _message: object) -> None:
            self.refused += error is not None
            self.taken_s.append(time.monotonic() - sent_s)

        self._producer.produce(TOPIC, VALUE, partition=number % PARTITIONS, on_delivery=told)

    def __enter__(self) -> Paced:
        self._thread.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._over.set()
        self._thread.join()
        self._producer.flush(120)


def phases(bootstrap: str) -> dict[str, float]:
    """Have the topic become diskless; the seconds of each phase."""
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    entry = ConfigEntry(SETTING, "true", incremental_operation=AlterConfigOpType.SET)
    resource = ConfigResource(ConfigResource.Type.TOPIC, TOPIC, incremental_configs=[entry])
    admin.incremental_alter_configs([resource])[resource].result(60)
    look = ConfigResource(ConfigResource.Type.TOPIC, TOPIC)
    took: dict[str, float] = {}
    begin_s = last_s = time.monotonic()
    while time.monotonic() - begin_s < LIMIT_SECONDS:
        found = admin.describe_configs([look])[look].result(60)
        own = {name: str(each.value or "") for name, each in found.items()}
        now_s = time.monotonic()
        if own.get(SETTING) == "true":
            return took
        phase = own.get(PHASE, "").partition(":")[0]
        took[phase] = took.get(phase, 0.0) + now_s - last_s
        last_s = now_s
        time.sleep(0.05)
    raise SystemExit(f"the topic is not diskless after {LIMIT_SECONDS:.0f} s: {took}")


def main() -> None:
    """Fill, measure, print."""
    gigabytes = float(sys.argv[1]) if len(sys.argv) > 1 else 2.0
    with (
        tempfile.TemporaryDirectory(prefix="anabranch-migrated-") as folder,
        LocalCluster(
            brokers=3, racks=["a", "b", "c"], folder=Path(folder), processes=True, config=CONFIG
        ) as cluster,
    ):
        at = cluster.bootstrap_servers
        cluster.create_topic(TOPIC, partitions=PARTITIONS, replication_factor=3, config=SETTINGS)
        fill(at, int(gigabytes * 1e9))
        cluster.wait_in_sync(timeout_seconds=120)
        with Paced(at) as paced:
            time.sleep(QUIET_SECONDS)
            quiet = list(paced.taken_s)
            took = phases(at)
            time.sleep(QUIET_SECONDS)
    told = ", ".join(f"{name} {seconds:.1f} s" for name, seconds in took.items())
    print(
        f"{gigabytes:g} GB in {PARTITIONS} partitions: {told}; {len(paced.taken_s):,} records, "
        f"{paced.refused} refused, longest {max(paced.taken_s):.2f} s (quiet: median "
        f"{statistics.median(quiet) * 1000:.0f} ms, longest {max(quiet):.2f} s)"
    )


if __name__ == "__main__":
    main()
