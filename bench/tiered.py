"""Both servers with remote storage in a folder beside their logs.

What: Anabranch with a store in a folder and a coordinator in a file; Apache Kafka with the store of
its own tests, LocalTieredStorage, which copies files and does not sync them, and its topic of
segment metadata with few partitions. Both look at their partitions twice a second.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from servers import WORK, Anabranch, Kafka, Server, free_port

ROUND_MS = 500
REMOTE = "remote"
TOPIC = {"remote.storage.enable": "true"}
"""What its topics need."""
COMMON = {
    "remote.log.storage.system.enable": "true",
    "remote.log.manager.task.interval.ms": ROUND_MS,
    "log.retention.check.interval.ms": ROUND_MS,
    "log.initial.task.delay.ms": ROUND_MS,
}


class Tiered(Server):
    """A server that looks at its remote logs often."""

    def __init__(
        self,
        settings: Mapping[str, object] | None = None,
        work: Path = WORK,
        ports: tuple[int, int] | None = None,
    ) -> None:
        super().__init__({**COMMON, **(settings or {})}, work, ports)


class TieredAnabranch(Tiered, Anabranch):
    """A combined node with a store in a folder."""

    def prepare(self) -> None:
        """The folder has to be there."""
        (self.folder / REMOTE).mkdir()
        self.settings = {
            "remote.storage.url": f"file://{self.folder / REMOTE}",
            "diskless.coordinator.url": f"sqlite://{self.folder / 'coordinator.db'}",
            "http.listener": f"127.0.0.1:{free_port()}",
            **self.settings,
        }


class TieredKafka(Tiered, Kafka):
    """Kafka with LocalTieredStorage."""

    def prepare(self) -> None:
        """The same with the names of its settings."""
        package = "org.apache.kafka.server.log.remote"
        topics = "rlmm.config.remote.log.metadata.topic"
        self.settings = {
            "remote.log.storage.manager.class.name": f"{package}.storage.LocalTieredStorage",
            "rsm.config.dir": self.folder / REMOTE,
            "remote.log.metadata.manager.listener.name": "PLAINTEXT",
            f"{topics}.replication.factor": 1,
            f"{topics}.num.partitions": 3,
            **self.settings,
        }
        super().prepare()


TIERED: dict[str, type[Server]] = {"anabranch": TieredAnabranch, "kafka": TieredKafka}
