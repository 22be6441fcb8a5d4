"""Administration through the three clients: what they ask, the node does and shows."""

from __future__ import annotations

import confluent_kafka
import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.admin import NewPartitions as AioPartitions
from aiokafka.admin import NewTopic as AioTopic
from aiokafka.admin.config_resource import ConfigResource as AioResource
from aiokafka.admin.config_resource import ConfigResourceType as AioType
from confluent_kafka import KafkaError, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AlterConfigOpType,
    ConfigEntry,
    ConfigResource,
    NewPartitions,
    NewTopic,
    OffsetSpec,
    ResourcePatternType,
    ResourceType,
)
from kafka import TopicPartition as PythonPartition
from kafka.admin import ConfigResource as PythonResource
from kafka.admin import ConfigResourceType as PythonType
from kafka.admin import KafkaAdminClient
from kafka.admin import NewTopic as PythonTopic
from tests.clients.adapters import SECONDS, Confluent, Refused, Sent


def result(futures):
    """The one answer of a confluent-kafka call for one thing."""
    (future,) = futures.values()
    return future.result(SECONDS)


def code_of(futures):
    with pytest.raises(confluent_kafka.KafkaException) as refused:
        result(futures)
    return refused.value.args[0].code()


def test_security_is_disabled_for_clients_that_ask_for_acls(node, admin):
    """MirrorMaker's synchronisation of ACLs knows this answer; any other one ends it."""
    any_topic = AclBindingFilter(
        ResourceType.TOPIC, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    rule = AclBinding(
        ResourceType.TOPIC, "t", ResourcePatternType.LITERAL, "User:a", "*", AclOperation.READ,
        AclPermissionType.ALLOW,
    )  # fmt: skip
    assert admin.describe_acls(any_topic).result(SECONDS) == []  # as of Apache Kafka
    assert code_of(admin.create_acls([rule])) == KafkaError.SECURITY_DISABLED
    assert code_of(admin.delete_acls([any_topic])) == KafkaError.SECURITY_DISABLED


def test_confluent_topics(node, admin):
    result(admin.create_topics([NewTopic("c-admin", 2, 1, config={"retention.ms": "1234"})]))
    assert code_of(admin.create_topics([NewTopic("c-admin", 2, 1)])) == (
        KafkaError.TOPIC_ALREADY_EXISTS
    )
    assert code_of(admin.create_topics([NewTopic("c-two", 1, 2)])) == (
        KafkaError.INVALID_REPLICATION_FACTOR
    )
    assert code_of(admin.create_topics([NewTopic("a/b", 1, 1)])) == KafkaError.TOPIC_EXCEPTION
    result(admin.create_partitions([NewPartitions("c-admin", 5)]))
    assert code_of(admin.create_partitions([NewPartitions("c-admin", 3)])) == (
        KafkaError.INVALID_PARTITIONS
    )
    described = result(admin.describe_topics(confluent_kafka.TopicCollection(["c-admin"])))
    assert [(each.id, each.leader.id, len(each.isr)) for each in described.partitions] == [
        (number, 1, 1) for number in range(5)
    ]
    assert "c-admin" in admin.list_topics(timeout=SECONDS).topics
    result(admin.delete_topics(["c-admin"]))
    assert "c-admin" not in admin.list_topics(timeout=SECONDS).topics
    assert code_of(admin.delete_topics(["c-admin"])) == KafkaError.UNKNOWN_TOPIC_OR_PART


def configs_of(admin, topic):
    found = result(admin.describe_configs([ConfigResource(ResourceType.TOPIC, topic)]))
    return {name: entry.value for name, entry in found.items()}


def entry(name, value, operation):
    return ConfigEntry(name, value, incremental_operation=operation)


@pytest.mark.filterwarnings("ignore:alter_configs has been deprecated:DeprecationWarning")
def test_confluent_configs_both_ways(admin, new_topic):
    topic = new_topic(retention_ms="1000")
    changed = ConfigResource(
        ResourceType.TOPIC,
        topic,
        incremental_configs=[
            entry("segment.ms", "5000", AlterConfigOpType.SET),
            entry("cleanup.policy", "compact", AlterConfigOpType.APPEND),
        ],
    )
    result(admin.incremental_alter_configs([changed]))
    found = configs_of(admin, topic)
    assert (found["retention.ms"], found["segment.ms"]) == ("1000", "5000")
    assert set(found["cleanup.policy"].split(",")) == {"delete", "compact"}
    whole = ConfigResource(ResourceType.TOPIC, topic, set_config={"max.message.bytes": "2000"})
    result(admin.alter_configs([whole]))
    found = configs_of(admin, topic)
    assert (found["max.message.bytes"], found["segment.ms"]) == ("2000", "604800000")
    wrong = ConfigResource(ResourceType.TOPIC, topic, set_config={"retention.ms": "soon"})
    assert code_of(admin.alter_configs([wrong])) == KafkaError.INVALID_CONFIG
    assert configs_of(admin, topic)["max.message.bytes"] == "2000"


def test_confluent_records_and_offsets(node, admin, new_topic):
    topic = new_topic()
    Confluent(node.bootstrap).produce(topic, [Sent(None, b"x", (), 500 + n) for n in range(20)])
    result(admin.delete_records([TopicPartition(topic, 0, 7)]))
    assert Confluent(node.bootstrap).ends(topic) == (7, 20)
    expected = (
        (OffsetSpec.earliest(), 7),
        (OffsetSpec.latest(), 20),
        (OffsetSpec.max_timestamp(), 19),
        (OffsetSpec.for_timestamp(515), 15),
    )
    for spec, offset in expected:
        assert result(admin.list_offsets({TopicPartition(topic, 0): spec})).offset == offset
    assert code_of(admin.delete_records([TopicPartition(topic, 0, 99)])) == (
        KafkaError.OFFSET_OUT_OF_RANGE
    )


def test_confluent_cluster_and_broker_configs(node, admin):
    cluster = admin.describe_cluster().result(SECONDS)
    assert [(each.id, f"{each.host}:{each.port}") for each in cluster.nodes] == [
        (1, node.bootstrap)
    ]
    assert cluster.cluster_id in (node.folder / "meta.properties").read_text()
    broker = result(admin.describe_configs([ConfigResource(ResourceType.BROKER, "1")]))
    assert broker["log.dirs"].value == str(node.folder)


def test_kafka_python_admin(node):
    admin = KafkaAdminClient(bootstrap_servers=node.bootstrap)
    try:
        admin.create_topics([PythonTopic("p-admin", 2, 1, topic_configs={"retention.ms": "77"})])
        admin.create_partitions({"p-admin": 4})
        (described,) = admin.describe_topics(["p-admin"])
        assert len(described["partitions"]) == 4
        for incremental, value in ((True, "5000"), (False, "6000")):
            changed = PythonResource(PythonType.TOPIC, "p-admin", configs={"segment.ms": value})
            admin.alter_configs([changed], incremental=incremental)
            # also the old request keeps retention.ms: this client sends along what was set before
            assert python_configs(admin, "p-admin") == ("77", value)
        at = PythonPartition("p-admin", 0)
        Confluent(node.bootstrap).produce("p-admin", [Sent(None, b"x")] * 10)
        admin.delete_records({at: 4})
        assert Confluent(node.bootstrap).ends("p-admin") == (4, 10)
        assert [each["broker_id"] for each in admin.describe_cluster()["brokers"]] == [1]
        assert str(node.folder) in str(admin.describe_log_dirs())
        admin.delete_topics(["p-admin"])
        assert "p-admin" not in admin.list_topics()
    finally:
        admin.close()


def python_configs(admin, topic):
    asked = PythonResource(PythonType.TOPIC, topic, configs=None)
    found = admin.describe_configs([asked], config_filter="all")
    entries = next(iter(next(iter(found.values())).values()))
    return tuple(entries[name]["value"] for name in ("retention.ms", "segment.ms"))


async def test_aiokafka_admin(node):
    admin = AIOKafkaAdminClient(bootstrap_servers=node.bootstrap)
    await admin.start()
    try:
        await admin.create_topics([AioTopic("a-admin", 1, 1)])
        await admin.create_partitions({"a-admin": AioPartitions(3)})
        (described,) = await admin.describe_topics(["a-admin"])
        assert len(described["partitions"]) == 3
        changed = AioResource(AioType.TOPIC, "a-admin", configs={"retention.ms": "4321"})
        await admin.alter_configs([changed])
        (answer,) = await admin.describe_configs([AioResource(AioType.TOPIC, "a-admin")])
        assert ("retention.ms", "4321") in [each[:2] for each in answer.resources[0][4]]
        assert (await admin.describe_cluster())["brokers"][0]["node_id"] == 1
        await admin.delete_topics(["a-admin"])
        assert "a-admin" not in await admin.list_topics()
    finally:
        await admin.close()


def test_a_deleted_topic_begins_anew(client, node, admin, new_topic):
    topic = new_topic()
    client.produce(topic, [Sent(None, b"old")] * 5)
    result(admin.delete_topics([topic]))
    result(admin.create_topics([NewTopic(topic, 1, 1)]))
    client.produce(topic, [Sent(None, b"new", (), 1)])
    assert client.ends(topic) == (0, 1)
    assert client.consume(topic, 1)[0].record.value == b"new"


def test_a_partition_that_is_not_there(node, new_topic):
    with pytest.raises(Refused):
        Confluent(node.bootstrap).produce(new_topic(), [Sent(None, b"x")], partition=9)
