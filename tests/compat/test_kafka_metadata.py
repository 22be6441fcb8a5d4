"""Kafka's own tools on the metadata: snapshots, and the controller listener."""

from __future__ import annotations

import contextlib
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from anabranch.cli.demo.node import Node

pytestmark = pytest.mark.java

DUMP = "kafka.tools.DumpLogSegments"
CLUSTER = "org.apache.kafka.tools.ClusterTool"
FEATURES = "org.apache.kafka.tools.FeatureCommand"
SECONDS = 30
TOPICS = 40


class SnapshottingNode(Node):
    """A node that writes a snapshot every few kilobytes of metadata."""

    def command(self) -> list[str]:
        """The command line that serves it."""
        few = "metadata.log.max.record.bytes.between.snapshots=3000"
        return [*super().command(), "--set", few]

    @property
    def controller(self) -> str:
        """Where its controller listens."""
        return self._controller


@pytest.fixture(scope="module")
def node(tmp_path_factory: Any) -> Iterator[SnapshottingNode]:
    """A node with topics enough for snapshots."""
    folder = str(tmp_path_factory.mktemp("node"))
    with contextlib.closing(SnapshottingNode(folder)) as started:
        started.start()
        admin = AdminClient({"bootstrap.servers": started.bootstrap})
        for number in range(TOPICS):
            new = NewTopic(f"t{number}", 2, 1, config={"retention.ms": "1000"})
            for future in admin.create_topics([new]).values():
                future.result(SECONDS)
        until = time.monotonic() + SECONDS
        while not snapshots(started):
            assert time.monotonic() < until
            time.sleep(0.01)
        yield started


def snapshots(node: Node) -> list[Path]:
    return sorted((Path(node.log_dir) / "__cluster_metadata-0").glob("*.checkpoint"))


def test_kafka_reads_a_snapshot(kafka_tool: Any, node: SnapshottingNode) -> None:
    newest = snapshots(node)[-1]
    dumped = kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", newest)
    end_offset, epoch = map(int, re.findall(r"\d+", newest.stem))
    assert f"Snapshot end offset: {end_offset}, epoch: {epoch}" in dumped
    kinds = re.findall(r'"type":"(\w+)"', dumped)
    assert kinds.count("FEATURE_LEVEL_RECORD") == 4
    assert kinds.count("REGISTER_BROKER_RECORD") == 1
    assert kinds.count("PARTITION_RECORD") == 2 * kinds.count("TOPIC_RECORD") > 0
    assert '"name":"metadata.version","featureLevel":27' in dumped
    assert "SnapshotHeader" in dumped and "SnapshotFooter" in dumped
    assert "isvalid: false" not in dumped and "rror" not in dumped


def test_kafka_reads_the_log_that_was_trimmed(kafka_tool: Any, node: SnapshottingNode) -> None:
    for file in snapshots(node)[0].parent.glob("*.log"):
        dumped = kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", file)
        assert dumped.count('"type":"TOPIC_RECORD"') <= TOPICS
        assert "LeaderChange" in dumped
        assert "isvalid: false" not in dumped


def test_kafka_finds_the_cluster_through_the_controller(
    kafka_tool: Any, node: SnapshottingNode
) -> None:
    at = ("--bootstrap-controller", node.controller)
    assert "Cluster ID: " in kafka_tool(CLUSTER, "cluster-id", *at)
    described = kafka_tool(FEATURES, *at, "describe")
    assert re.search(r"metadata.version.*FinalizedVersionLevel: 4.1-IV1", described)
