"""Apache Kafka's own Java tools against a node: they work unchanged, and read its files."""

from __future__ import annotations

from pathlib import Path

import pytest

pytestmark = pytest.mark.java

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
PRODUCER = "org.apache.kafka.tools.ConsoleProducer"
CONSUMER = "org.apache.kafka.tools.consumer.ConsoleConsumer"
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"
DELETE = "org.apache.kafka.tools.DeleteRecordsCommand"
LOG_DIRS = "org.apache.kafka.tools.LogDirsCommand"
DUMP = "kafka.tools.DumpLogSegments"
VERSIONS = "org.apache.kafka.tools.BrokerApiVersionsCommand"


def at(node) -> tuple[str, str]:
    return "--bootstrap-server", node.bootstrap


def lines(count: int) -> str:
    return "".join(f"key-{number}:value-{number}\n" for number in range(count))


def produce(kafka_tool, node, topic: str, count: int) -> None:
    keyed = ("--property", "parse.key=true", "--property", "key.separator=:")
    kafka_tool(PRODUCER, *at(node), "--topic", topic, *keyed, text=lines(count))


def test_topics_are_created_described_widened_and_deleted(kafka_tool, java_node):
    new = ("--topic", "tools", "--partitions", 3, "--config", "retention.ms=86400000")
    kafka_tool(TOPICS, *at(java_node), "--create", *new)
    described = kafka_tool(TOPICS, *at(java_node), "--describe", "--topic", "tools")
    assert "PartitionCount: 3" in described
    assert "retention.ms=86400000" in described
    assert described.count("Leader: 1") == 3
    kafka_tool(TOPICS, *at(java_node), "--alter", "--topic", "tools", "--partitions", 5)
    described = kafka_tool(TOPICS, *at(java_node), "--describe", "--topic", "tools")
    assert "PartitionCount: 5" in described
    kafka_tool(TOPICS, *at(java_node), "--delete", "--topic", "tools")
    assert "tools" not in kafka_tool(TOPICS, *at(java_node), "--list").split()


def test_records_go_in_and_come_back(kafka_tool, java_node):
    kafka_tool(TOPICS, *at(java_node), "--create", "--topic", "console", "--partitions", 1)
    produce(kafka_tool, java_node, "console", 100)
    wanted = ("--topic", "console", "--partition", 0, "--offset", "earliest")
    came = kafka_tool(CONSUMER, *at(java_node), *wanted, "--max-messages", 100)
    assert came.split() == [f"value-{number}" for number in range(100)]
    ends = kafka_tool(OFFSETS, *at(java_node), "--topic", "console", "--time", -1)
    assert ends.strip() == "console:0:100"


def test_records_are_deleted_up_to_an_offset(kafka_tool, java_node, tmp_path):
    kafka_tool(TOPICS, *at(java_node), "--create", "--topic", "cut", "--partitions", 1)
    produce(kafka_tool, java_node, "cut", 10)
    wish = tmp_path / "cut.json"
    wish.write_text('{"partitions": [{"topic": "cut", "partition": 0, "offset": 4}], "version": 1}')
    kafka_tool(DELETE, *at(java_node), "--offset-json-file", wish)
    starts = kafka_tool(OFFSETS, *at(java_node), "--topic", "cut", "--time", -2)
    assert starts.strip() == "cut:0:4"


def test_configurations_are_altered_and_described(kafka_tool, java_node):
    kafka_tool(TOPICS, *at(java_node), "--create", "--topic", "configured")
    of = ("--entity-type", "topics", "--entity-name", "configured")
    kafka_tool(CONFIGS, *at(java_node), *of, "--alter", "--add-config", "max.message.bytes=2000000")
    assert "max.message.bytes=2000000" in kafka_tool(CONFIGS, *at(java_node), *of, "--describe")
    kafka_tool(CONFIGS, *at(java_node), *of, "--alter", "--delete-config", "max.message.bytes")
    assert "2000000" not in kafka_tool(CONFIGS, *at(java_node), *of, "--describe")


def test_the_broker_and_its_folders_are_described(kafka_tool, java_node):
    assert "Produce(0)" in kafka_tool(VERSIONS, *at(java_node))
    kafka_tool(TOPICS, *at(java_node), "--create", "--topic", "folders")
    assert "folders-0" in kafka_tool(LOG_DIRS, *at(java_node), "--describe")


def test_kafka_reads_a_segment(kafka_tool, java_node):
    kafka_tool(TOPICS, *at(java_node), "--create", "--topic", "segment", "--partitions", 1)
    produce(kafka_tool, java_node, "segment", 50)
    file = Path(java_node.log_dir) / "segment-0" / "00000000000000000000.log"
    dumped = kafka_tool(DUMP, "--files", file, "--print-data-log")
    assert dumped.count("payload: value-") == 50
    assert "isvalid: false" not in dumped


def test_kafka_reads_the_metadata_log(kafka_tool, java_node):
    kafka_tool(TOPICS, *at(java_node), "--create", "--topic", "named", "--partitions", 2)
    folder = Path(java_node.log_dir) / "__cluster_metadata-0"
    dumped = "".join(
        kafka_tool(DUMP, "--cluster-metadata-decoder", "--files", file)
        for file in sorted(folder.glob("*.log"))
    )
    assert "REGISTER_BROKER_RECORD" in dumped
    assert '"name":"named"' in dumped
    assert dumped.count("PARTITION_RECORD") >= 2
    assert "isvalid: false" not in dumped
