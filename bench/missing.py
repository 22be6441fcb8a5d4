"""Topics created while a broker is missing: whether that costs anything.

Two of three nodes run, with `enable.under.replicated.topic.creation=true`. The same number of
topics is created with two replicas and with three, of which one has no broker, in turn; Kafka
refuses the latter.
"""

from __future__ import annotations

import time
from collections.abc import Iterator

import workloads
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from scale import scaled
from servers import Server
from trio import NODES, AnabranchTrio
from workloads import Sample

TOPICS = 500
RUNNING = 2
WAIT_SECONDS = 120.0


class Two(AnabranchTrio):
    """Three configured nodes of which the third never comes."""

    @property
    def running(self) -> Iterator[Server]:
        """The nodes that do."""
        return (node for number, node in self.nodes.items() if number <= RUNNING)

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return ",".join(each.bootstrap for each in self.running)

    def launch(self) -> None:
        """Start the two."""
        for each in self.running:
            each.launch()

    def await_port(self) -> None:
        """Wait until the two accept connections."""
        for each in self.running:
            each.await_port()

    def settle(self) -> None:
        """Wait until the two are brokers."""
        deadline = time.perf_counter() + WAIT_SECONDS
        while len(workloads.admin_of(self).list_topics(timeout=10).brokers) < RUNNING:
            if time.perf_counter() > deadline:
                raise SystemExit("anabranch: the two nodes did not join the cluster")
            time.sleep(0.02)

    @property
    def is_alive(self) -> bool:
        """Whether the two run."""
        return all(each.is_alive for each in self.running)


def seconds(admin: AdminClient, replicas: int) -> float:
    """How long a request for all the topics takes; they are deleted after it."""
    names = [f"missing-{time.monotonic_ns()}-{number}" for number in range(scaled(TOPICS))]
    wanted = [NewTopic(name, 1, replicas) for name in names]
    begin = time.perf_counter()
    for future in admin.create_topics(wanted, request_timeout=WAIT_SECONDS).values():
        future.result(WAIT_SECONDS)
    taken = time.perf_counter() - begin
    for future in admin.delete_topics(names, request_timeout=WAIT_SECONDS).values():
        future.result(WAIT_SECONDS)
    return taken


def created(server: Server) -> Sample:
    """Seconds without and with missing replicas, the first of two goes not counted."""
    admin = workloads.admin_of(server)
    for replicas in (RUNNING, NODES):
        seconds(admin, replicas)
    without, with_missing = seconds(admin, RUNNING), seconds(admin, NODES)
    return Sample(
        {
            "seconds without": without,
            "seconds with": with_missing,
            "with over without": with_missing / without,
        }
    )
