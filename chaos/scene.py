"""What the faults of a run happen to: its nodes, stores, clients, disks and network.

What: `Scene` holds them, says which kinds of fault are possible there, and finds the broker that a
fault aims at. Not here: the faults (`faults`, `faults_diskless`).
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, field

from anabranch.core.coordination.transactions.topic import TRANSACTION_TOPIC
from chaos.crowd import Crowd
from chaos.diskless import DisklessStorage
from chaos.disks import SmallDisks
from chaos.network import Network
from chaos.nodes import IDS, Nodes
from chaos.objects import OF_VOLUMES, S3Objects
from chaos.operator_log import OperatorLog
from chaos.plan import FAMILIES
from chaos.stores import Nothing, PostgresDatabase, SqliteFile
from chaos.streams import ROLE as STREAMS
from chaos.watch import Watch

OF_OBJECTS = OF_VOLUMES | S3Objects.kinds


@dataclass
class Scene:
    """Everything that faults happen to."""

    nodes: Nodes
    watch: Watch
    store: SqliteFile | PostgresDatabase
    crowd: Crowd
    places: list[tuple[str, int]]
    movable: list[tuple[str, int]]
    reborn: tuple[str, ...]
    """Topics that may be deleted."""
    operator: OperatorLog
    diskless: DisklessStorage
    disks: SmallDisks | None = None
    """Real file systems that can run out of room."""
    network: Network | None = None
    """Links between hosts that can fail."""
    over: threading.Event = field(default_factory=threading.Event)
    """No fault lasts longer than the round."""

    def kinds(self) -> frozenset[str]:
        """What can happen here."""
        possible = {kind for kinds in FAMILIES.values() for kind in kinds}
        absent = (PostgresDatabase.kinds | SqliteFile.kinds) - self.store.kinds
        absent |= {each for each in OF_OBJECTS if each not in self.diskless.objects.kinds}
        if self.disks is None:
            absent |= {"no-room"}
        if self.network is None:
            absent |= {*FAMILIES["wires"], "part-objects"}
        elif not isinstance(self.store, PostgresDatabase):
            absent |= {"part-store"}
        if self.crowd.one_of(STREAMS) is None:
            absent |= set(FAMILIES["streams"])
        if not isinstance(self.diskless.objects, S3Objects):
            absent |= {"part-objects"}
        return frozenset(possible - absent)

    def some(self, aim: float) -> int:
        """A broker."""
        return IDS[int(aim * len(IDS)) % len(IDS)]

    def leader(self, aim: float) -> int:
        """The leader of some partition."""
        topic, index = self.places[int(aim * len(self.places)) % len(self.places)]
        partition = self.watch.partition(topic, index)
        return partition.leader if partition is not None and partition.leader > 0 else IDS[0]

    def transactions(self, aim: float) -> int:
        """Who coordinates some transactional ids."""
        found = self.watch.image.topic(TRANSACTION_TOPIC)
        leaders = [each.leader for each in found.partitions.values()] if found else []
        if not leaders or (leader := leaders[int(aim * len(leaders)) % len(leaders)]) < 0:
            raise Nothing("nobody coordinates these transactional ids")
        return leader

    def controller(self) -> int:
        """Who holds the lease."""
        found = self.watch.controller
        if found not in IDS:
            raise Nothing("nobody holds the lease")
        return found

    def role(self, broker_id: int) -> str:
        """For the protocol: a broker, and what ends with it."""
        led = sum(
            each.leader == broker_id
            for topic in self.watch.image.topics_by_id.values()
            for each in topic.partitions.values()
        )
        holds = ", holds the lease" if broker_id == self.watch.controller else ""
        return f"{broker_id} (leads {led}{holds})"
