"""Admin requests, most of them bad, by name: the same for Apache Kafka and for the controller.

The answers of Apache Kafka 4.1.0 (one combined node, id 1) to them, in this order, are recorded in
`kafka_admin_answers.json` as `[name, error code, text]` for each topic or resource.
"""

# ruff: noqa: E501

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.core.wire.messages import alter_configs, incremental_alter_configs
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from anabranch.core.wire.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState

NAME = "golden"
TOPIC, BROKER = 2, 4
SET, DELETE, APPEND, SUBTRACT = range(4)
TIMEOUT_MS = 10_000


def topic(
    name: str = "f", partitions: int = 1, factor: int = 1, **configs: str | None
) -> CreatableTopic:
    """A topic to create; `retention_ms` stands for `retention.ms`."""
    return CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=factor,
        configs=[
            CreatableTopicConfig(name=key.replace("_", "."), value=value)
            for key, value in configs.items()
        ],
    )


def manual(*lists: tuple[int, list[int]], partitions: int = -1, factor: int = -1) -> CreatableTopic:
    """A topic with replica lists by hand."""
    made = topic("f", partitions, factor)
    made.assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=brokers)
        for index, brokers in lists
    ]
    return made


def create(*topics: CreatableTopic, check: bool = False) -> CreateTopicsRequest:
    """CreateTopics."""
    return CreateTopicsRequest(topics=list(topics), validate_only=check, timeout_ms=TIMEOUT_MS)


def delete(*states: tuple[str | None, bytes]) -> DeleteTopicsRequest:
    """DeleteTopics by name or id."""
    topics = [DeleteTopicState(name=name, topic_id=topic_id) for name, topic_id in states]  # type: ignore[arg-type]
    return DeleteTopicsRequest(topics=topics, timeout_ms=TIMEOUT_MS)


def delete_names(*names: str) -> DeleteTopicsRequest:
    """DeleteTopics before version 6."""
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=TIMEOUT_MS)


def grow(
    *wanted: tuple[str, int, Sequence[list[int]] | None], check: bool = False
) -> CreatePartitionsRequest:
    """CreatePartitions."""
    topics = [
        CreatePartitionsTopic(
            name=name,
            count=count,
            assignments=None
            if lists is None
            else [CreatePartitionsAssignment(broker_ids=each) for each in lists],
        )
        for name, count, lists in wanted
    ]
    return CreatePartitionsRequest(topics=topics, validate_only=check, timeout_ms=TIMEOUT_MS)


Pairs = Sequence[tuple[str, str | None]]
Changes = Sequence[tuple[str, int, str | None]]


def alter(*resources: tuple[int, str, Pairs], check: bool = False) -> Any:
    """AlterConfigs."""
    return alter_configs.AlterConfigsRequest(
        resources=[
            alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[alter_configs.AlterableConfig(name=key, value=value) for key, value in of],
            )
            for kind, name, of in resources
        ],
        validate_only=check,
    )


def change(*resources: tuple[int, str, Changes], check: bool = False) -> Any:
    """IncrementalAlterConfigs."""
    return incremental_alter_configs.IncrementalAlterConfigsRequest(
        resources=[
            incremental_alter_configs.AlterConfigsResource(
                resource_type=kind,
                resource_name=name,
                configs=[
                    incremental_alter_configs.AlterableConfig(
                        name=key, config_operation=operation, value=value
                    )
                    for key, operation, value in of
                ],
            )
            for kind, name, of in resources
        ],
        validate_only=check,
    )


ZERO, ONES = bytes(16), b"1" * 16
OLD_DELETE = {"names not there, old": 3, "names twice, old": 5}
"""Cases in another version than the newest."""

# fmt: off
CASES: Mapping[str, Any] = {
    "two topics": create(topic(NAME, 2, retention_ms="1000", cleanup_policy="delete"), topic(f"{NAME}.x")),
    "no name": create(topic("")),
    "a dot": create(topic(".")),
    "two dots": create(topic("..")),
    "a long name": create(topic("x" * 250)),
    "a blank": create(topic("a b")),
    "an existing topic": create(topic(NAME)),
    "a colliding name": create(topic(f"{NAME}_x")),
    "names that collide with each other": create(topic("c.d"), topic("c_d"), check=True),
    "a name twice": create(topic("d"), topic("d"), topic("e"), check=True),
    "the metadata topic": create(topic("__cluster_metadata")),
    "no replicas": create(topic(factor=0)),
    "negative replicas": create(topic(factor=-2)),
    "too many replicas": create(topic(factor=4)),
    "no partitions": create(topic(partitions=0)),
    "negative partitions": create(topic(partitions=-2)),
    "neither": create(topic(partitions=0, factor=0)),
    "too many partitions": create(topic(partitions=10_001)),
    "too many together": create(topic(partitions=6000), topic("g", 6000)),
    "defaults": create(topic("z", -1, -1), check=True),
    "a null": create(topic(retention_ms=None)),
    "two nulls": create(topic(retention_ms=None, segment_bytes=None)),
    "an unknown setting": create(topic(foo_bar="1")),
    "not a number": create(topic(retention_ms="abc")),
    "not in the list": create(topic(cleanup_policy="foo")),
    "an empty list": create(topic(cleanup_policy=""), check=True),
    "too small": create(topic(segment_bytes="1")),
    "below one": create(topic(min_insync_replicas="0")),
    "below minus one": create(topic(retention_ms="-2")),
    "above one": create(topic(min_cleanable_dirty_ratio="2")),
    "not an int": create(topic(segment_bytes="99999999999")),
    "not a boolean": create(topic(preallocate="maybe")),
    "not a codec": create(topic(compression_type="foo")),
    "not a level": create(topic(compression_gzip_level="0")),
    "not a timestamp type": create(topic(message_timestamp_type="x")),
    "not throttled replicas": create(topic(leader_replication_throttled_replicas="x")),
    "tiers without a system for them": create(topic(remote_storage_enable="true")),
    "local above all": create(topic(local_retention_ms="5000", retention_ms="1000"), check=True),
    "lags that cross": create(topic(max_compaction_lag_ms="1", min_compaction_lag_ms="5"), check=True),
    "a setting of the past": create(topic(message_format_version="2.0"), check=True),
    "all of it bad": create(topic(partitions=0, factor=0, retention_ms="abc")),
    "an existing topic with bad counts": create(topic(NAME, 0, 0), topic("")),
    "an existing topic with a bad setting": create(topic(NAME, 0, 0, retention_ms="abc")),
    "lists and a factor": create(manual((0, [1]), factor=1)),
    "lists and a count": create(manual((0, [1]), partitions=1)),
    "an empty list of replicas": create(manual((0, [1]), (1, []))),
    "an unknown broker": create(manual((0, [9]))),
    "a negative broker": create(manual((0, [-1]))),
    "a broker twice": create(manual((0, [1, 1]))),
    "a gap": create(manual((0, [1]), (2, [1]))),
    "not from zero": create(manual((1, [1]))),
    "uneven lists": create(manual((0, [1]), (1, [1, 1]))),
    "an index twice": create(manual((0, [1]), (0, [1]))),
    "no topics": create(),
    "an unknown topic": delete(("nope", ZERO)),
    "neither name nor id": delete((None, ZERO)),
    "name and id": delete((NAME, ONES)),
    "an unknown id": delete((None, ONES)),
    "to delete twice": delete((NAME, ZERO), (NAME, ZERO)),
    "an id twice": delete((None, ONES), (None, ONES)),
    "nothing to delete": delete(),
    "names not there, old": delete_names("nope", ""),
    "names twice, old": delete_names("nope", "nope", NAME, NAME),
    "unknown to grow": grow(("nope", 3, None)),
    "as many as before": grow((NAME, 2, None)),
    "fewer than before": grow((NAME, 1, None)),
    "to none": grow((NAME, 0, None)),
    "below none": grow((NAME, -1, None)),
    "too few lists": grow((NAME, 4, [[1]])),
    "too many lists": grow((NAME, 3, [[1], [1]])),
    "empty lists": grow((NAME, 3, [])),
    "an unknown broker in a list": grow((NAME, 3, [[9]])),
    "a broker twice in a list": grow((NAME, 3, [[1, 1]])),
    "another factor": grow((NAME, 3, [[1, 9]])),
    "an empty new list": grow((NAME, 3, [[]])),
    "to grow twice": grow((NAME, 3, None), (NAME, 4, None)),
    "nothing to grow": grow(),
    "growth only checked": grow((NAME, 3, None), check=True),
    "settings of an unknown topic": alter((TOPIC, "nope", [("retention.ms", "1")])),
    "bad settings of an unknown topic": alter((TOPIC, "nope", [("retention.ms", "x")])),
    "an unknown key": alter((TOPIC, NAME, [("foo", "1")])),
    "a bad value": alter((TOPIC, NAME, [("retention.ms", "x")])),
    "a null value": alter((TOPIC, NAME, [("retention.ms", None)])),
    "a key twice": alter((TOPIC, NAME, [("retention.ms", "1"), ("retention.ms", "2")])),
    "not a broker's name": alter((BROKER, "x", [("log.cleaner.threads", "2")])),
    "a read-only setting": alter((BROKER, "1", [("broker.id", "2")])),
    "an unknown resource type": alter((3, "1", [("a", "2")])),
    "no resource type": alter((0, "1", [("a", "2")])),
    "every topic": alter((TOPIC, "", [("retention.ms", "1")])),
    "an illegal topic": alter((TOPIC, "a b", [("retention.ms", "1")])),
    "no resources": alter(),
    "good settings, only checked": alter((TOPIC, NAME, [("retention.ms", "12"), ("cleanup.policy", "compact")]), check=True),
    "to change an unknown topic": change((TOPIC, "nope", [("retention.ms", SET, "1")])),
    "to change an unknown topic badly": change((TOPIC, "nope", [("retention.ms", SET, "x")])),
    "to set an unknown key of an unknown topic": change((TOPIC, "nope", [("foo", SET, "x")])),
    "to append to a number of an unknown topic": change((TOPIC, "nope", [("retention.ms", APPEND, "x")])),
    "to delete an unknown key of an unknown topic": change((TOPIC, "nope", [("foo", DELETE, None)])),
    "to set an unknown key": change((TOPIC, NAME, [("foo", SET, "1")])),
    "to set no key": change((TOPIC, NAME, [("", SET, "x")])),
    "to set a bad value": change((TOPIC, NAME, [("retention.ms", SET, "x")])),
    "to set a null": change((TOPIC, NAME, [("retention.ms", SET, None)])),
    "to set two nulls": change((TOPIC, NAME, [("retention.ms", SET, None), ("segment.bytes", SET, None)])),
    "to delete an unknown key": change((TOPIC, NAME, [("foo", DELETE, None)])),
    "to append to a number": change((TOPIC, NAME, [("retention.ms", APPEND, "1")])),
    "to subtract from a number": change((TOPIC, NAME, [("retention.ms", SUBTRACT, "1")])),
    "to append to an unknown key": change((TOPIC, NAME, [("foo", APPEND, "1")])),
    "to change a key twice": change((TOPIC, NAME, [("retention.ms", SET, "1"), ("retention.ms", SET, "2")])),
    "to change a topic twice": change((TOPIC, NAME, []), (TOPIC, NAME, [])),
    "to append a bad entry": change((TOPIC, NAME, [("cleanup.policy", APPEND, "foo")])),
    "to subtract what is not there": change((TOPIC, NAME, [("cleanup.policy", SUBTRACT, "foo")]), check=True),
    "to append": change((TOPIC, NAME, [("cleanup.policy", APPEND, "compact")]), check=True),
    "to subtract all": change((TOPIC, NAME, [("cleanup.policy", SUBTRACT, "delete")]), check=True),
    "to change what is not a broker": change((BROKER, "x", [("log.cleaner.threads", SET, "2")])),
    "to set a read-only setting": change((BROKER, "1", [("broker.id", SET, "2")])),
    "to set folders for all": change((BROKER, "", [("log.dirs", SET, "2")])),
    "to set listeners for all": change((BROKER, "", [("advertised.listeners", SET, "PLAINTEXT://a:1")])),
    "to set a bad value for all": change((BROKER, "", [("log.cleaner.threads", SET, "x")])),
    "to set an unknown key for all": change((BROKER, "", [("foo.bar", SET, "x")])),
    "one broker's min.insync.replicas": change((BROKER, "1", [("min.insync.replicas", SET, "1")])),
    "no min.insync.replicas": change((BROKER, "", [("min.insync.replicas", DELETE, None)])),
    "an unknown type": change((3, "1", [("a", SET, "2")])),
    "a type far off": change((99, "1", [("a", SET, "2")])),
    "keys before types": change((3, "1", [("a", SET, None), ("a", SET, "1")])),
    "nulls before types": change((3, "1", [("a", SET, None)])),
    "names before values": change((TOPIC, "", [("retention.ms", SET, "x")])),
    "one bad and one good": change((TOPIC, NAME, [("retention.ms", SET, "x")]), (TOPIC, f"{NAME}.x", [("retention.ms", SET, "7")])),
}
# fmt: on


def answers(response: Any) -> list[list[Any]]:
    """(name, error code, text) of each topic or resource, sorted by name."""
    found = []
    for field in ("topics", "responses", "results"):
        for each in getattr(response, field, ()):
            name = getattr(each, "name", None)
            if not hasattr(each, "name"):
                name = each.resource_name
            found.append([name, int(each.error_code), each.error_message])
    return sorted(found, key=str)
