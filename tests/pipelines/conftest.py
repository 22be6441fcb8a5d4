"""One Spark session for each pytest worker, and tests that have the time to start it."""

from __future__ import annotations

import asyncio
import os
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

from anabranch.testing import LocalCluster

HERE = Path(__file__).parent
JAVA = "-XX:TieredStopAtLevel=1"
"""For every JVM that a test starts: on short work the optimizing compiler takes a third of the
processor's time and saves nothing. No collector is named, as Kafka's scripts name one."""
LONGEST_TEST_SECONDS = 300
"""The first test of a worker starts a JVM and compiles the decoder, on a machine that may be busy."""

os.environ.setdefault("JAVA_TOOL_OPTIONS", JAVA)
if find_spec("pyspark") is None:
    if os.environ.get("SPARK") != "0":
        raise pytest.UsageError(
            "tests/pipelines need Spark: run scripts/venv spark, or leave them out with SPARK=0."
        )
    collect_ignore_glob = ["test_*.py"]


def pytest_collection_modifyitems(items):
    for item in items:
        if HERE in item.path.parents and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(LONGEST_TEST_SECONDS))


@pytest.fixture(scope="session")
def spark():
    """The Spark session of this pytest worker."""
    from anabranch.pipelines.session import local_session

    with tempfile.TemporaryDirectory(prefix="anabranch-spark-") as folder:
        session = local_session(
            "tests",
            cores="2,4",  # a task may fail three times, as on a cluster
            conf={
                "spark.local.dir": folder,
                "spark.sql.warehouse.dir": f"{folder}/warehouse",
                "spark.driver.memory": "700m",
                "spark.sql.shuffle.partitions": "2",
                "spark.default.parallelism": "2",
            },
        )
        yield session
        session.stop()


class Topics:
    """A cluster's topics, filled with batches as a test builds them."""

    def __init__(self, cluster):
        self.cluster = cluster
        self.bootstrap = cluster.bootstrap_servers
        self._made = 0

    def create(self, partitions=1, *, name=None, **more):
        """A new topic."""
        self._made += 1
        name = name or f"topic-{os.getpid()}-{self._made}"
        config = {"retention.ms": -1, **more.pop("config", {})}  # the records' times are made up
        self.cluster.create_topic(name, partitions=partitions, config=config, **more)
        return name

    def produce(self, topic, partition, *batches):
        """Append batches; returns the base offset of the last one."""
        from anabranch.client.cluster import Cluster
        from anabranch.client.produce import produce

        async def work():
            async with Cluster(self.bootstrap) as cluster:
                for batch in batches:
                    found = await produce(cluster, topic, partition, batch)
                return found.base_offset

        return asyncio.run(work())

    def fill(
        self, topic, partition, count, *, start=0, batch=10, codec=0, size=0, time_ms=1_000_000
    ):
        """Append `count` records `start`, `start` + 1 … in batches; value and time count on."""
        from anabranch.core.wire.compression import Codec
        from anabranch.core.wire.records import Record, build_batch

        batches = []
        for first in range(start, start + count, batch):
            numbers = range(first, min(first + batch, start + count))
            records = [
                Record(each - first, time_ms + each, b"k%d" % each, b"v%d" % each + b"." * size)
                for each in numbers
            ]
            batches.append(build_batch(records, codec=Codec(codec)))
        return self.produce(topic, partition, *batches)

    def options(self, topic, **more):
        """Options that read a topic."""
        return {"kafka.bootstrap.servers": self.bootstrap, "subscribe": topic, **more}


@pytest.fixture(scope="session")
def topics(tmp_path_factory):
    """Topics of one broker that all tests of a worker share; a process, since a cluster on threads
    would go on to take up what later tests of this process log. With ANABRANCH_TEST_PEER=kafka it
    is Apache Kafka's."""
    if os.environ.get("ANABRANCH_TEST_PEER") == "kafka":
        from tests.pipelines.kafka_cluster import KafkaCluster

        with KafkaCluster(tmp_path_factory.mktemp("kafka") / "node") as cluster:
            yield Topics(cluster)
        return
    with LocalCluster(processes=True) as cluster:
        yield Topics(cluster)


@pytest.fixture(scope="session")
def topics_of():
    """Topics of a cluster that a test has started."""
    return Topics
