"""Clusters for the tests of applications that speak Kafka.

    from anabranch.testing import LocalCluster

    with LocalCluster() as cluster:
        producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})

What: a real cluster, on threads of the test's process or as processes, on free ports and in a
temporary folder: what a client sees is what it sees in production. Its brokers can be killed,
paused, cut off, slowed down and set ahead in time. `anabranch.testing.pytest_plugin` makes fixtures
of it. The rule it keeps: importing this package imports no server, so that a test run pays for a
cluster only when it starts one.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.testing.local_cluster import ClusterError, LocalBroker, LocalCluster

__all__ = ["ClusterError", "LocalBroker", "LocalCluster"]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.local_cluster"), name)
