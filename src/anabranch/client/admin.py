"""Admin requests: topics, partitions, settings, records, log folders, the cluster itself.

Each call sends one request of Kafka's protocol, tries again while that can help, and raises
`ApiError` with the node's sentence for the first thing that was refused.
"""

from __future__ import annotations

import contextlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import IntEnum
from typing import NamedTuple

from anabranch.client.cluster import Cluster, check, check_there
from anabranch.core.controller.brokers.cordons import CORDON, EVERY_FOLDER
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from anabranch.core.wire.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from anabranch.core.wire.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from anabranch.core.wire.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from anabranch.core.wire.messages.describe_cluster import (
    DescribeClusterRequest,
    DescribeClusterResponse,
)
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
)
from anabranch.core.wire.messages.describe_log_dirs import (
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from anabranch.core.wire.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from anabranch.core.wire.own_fields import ASKED, Cordoned, FullFolders, ReplicaMaps, untagged

TIMEOUT_MS = 30_000
NO_COUNT = -1
"""Stands for "as the broker's defaults say" in CreateTopics."""
SOME_FOLDER = "a folder of log.dirs"
"""What is said of a broker that has no room and does not say where."""


class ResourceKind(IntEnum):
    """What a configuration belongs to."""

    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8


class ConfigOperation(IntEnum):
    """What IncrementalAlterConfigs does to a setting."""

    SET = 0
    DELETE = 1
    APPEND = 2
    SUBTRACT = 3


class NewTopic(NamedTuple):
    """A topic that was created, or would be. `replicas` has the brokers of each partition; it is
    empty where the node does not tell (Apache Kafka's)."""

    num_partitions: int
    replication_factor: int
    replicas: list[tuple[int, ...]]


async def create_topic(
    cluster: Cluster,
    name: str,
    *,
    partitions: int = NO_COUNT,
    replication_factor: int = NO_COUNT,
    configs: Mapping[str, str] | None = None,
    assignment: Sequence[Sequence[int]] | None = None,
    validate_only: bool = False,
) -> NewTopic:
    """Create a topic; `assignment` lists the replicas of each partition in order."""
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=replication_factor,
        assignments=[
            CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
            for index, replicas in enumerate(assignment or ())
        ],
        configs=[
            CreatableTopicConfig(name=key, value=text) for key, text in (configs or {}).items()
        ],
    )
    request = CreateTopicsRequest(
        topics=[topic],
        timeout_ms=TIMEOUT_MS,
        validate_only=validate_only,
        unknown_tagged_fields=ASKED,
    )

    async def attempt() -> NewTopic:
        response: CreateTopicsResponse = await cluster.send(request)
        result = response.topics[0]
        check(result.error_code, result.error_message)
        maps = untagged(ReplicaMaps, response.unknown_tagged_fields).topics
        rows = [tuple(row.brokers) for each in maps for row in each.partitions]
        rows = rows or [tuple(replicas) for replicas in assignment or ()]
        return NewTopic(result.num_partitions, result.replication_factor, rows)

    return await cluster.retrying(attempt)


async def delete_topic(cluster: Cluster, name: str) -> None:
    """Delete a topic and its records."""
    request = DeleteTopicsRequest(
        topics=[DeleteTopicState(name=name)], topic_names=[name], timeout_ms=TIMEOUT_MS
    )
    response: DeleteTopicsResponse = await cluster.send(request)
    result = response.responses[0]
    check_there(result.error_code, name)
    check(result.error_code, result.error_message, of=name)


async def create_partitions(cluster: Cluster, name: str, count: int) -> None:
    """Raise the number of partitions of a topic to `count`."""
    topic = CreatePartitionsTopic(name=name, count=count, assignments=None)
    request = CreatePartitionsRequest(topics=[topic], timeout_ms=TIMEOUT_MS)
    response: CreatePartitionsResponse = await cluster.send(request)
    result = response.results[0]
    check_there(result.error_code, name)
    check(result.error_code, result.error_message, of=name)


async def describe_configs(
    cluster: Cluster, kind: ResourceKind, name: str, *, documentation: bool = False
) -> list[DescribeConfigsResourceResult]:
    """Every setting of a topic or broker with its source and synonyms."""
    resource = DescribeConfigsResource(
        resource_type=kind, resource_name=name, configuration_keys=None
    )
    request = DescribeConfigsRequest(
        resources=[resource], include_synonyms=True, include_documentation=documentation
    )
    if kind is not ResourceKind.TOPIC and name:
        response: DescribeConfigsResponse = await cluster.send_to(broker_id_of(name), request)
    else:
        response = await cluster.send(request)
    result = response.results[0]
    if kind is ResourceKind.TOPIC:
        check_there(result.error_code, name)
    check(result.error_code, result.error_message, of=name)
    return result.configs


async def alter_configs(
    cluster: Cluster,
    kind: ResourceKind,
    name: str,
    operations: Sequence[tuple[ConfigOperation, str, str | None]],
    *,
    validate_only: bool = False,
) -> None:
    """Change some settings of a topic or broker (KIP-339); the others stay. What is to hold for a
    broker that is down is told to another."""
    resource = AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            AlterableConfig(name=key, config_operation=operation, value=text)
            for operation, key, text in operations
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    response: IncrementalAlterConfigsResponse
    is_away = kind is ResourceKind.BROKER and name and broker_id_of(name) not in cluster.brokers
    if kind is ResourceKind.TOPIC or not name or is_away:
        response = await cluster.send(request)
    else:
        response = await cluster.send_to(broker_id_of(name), request)
    result = response.responses[0]
    if kind is ResourceKind.TOPIC:
        check_there(result.error_code, name)
    check(result.error_code, result.error_message)


def broker_id_of(name: str) -> int:
    """The broker id in a resource name; raises ApiError when it is no number."""
    if not (name.isascii() and name.isdigit()):
        raise ApiError(ErrorCode.INVALID_REQUEST, f"{name!r} is not a broker id: give a number.")
    return int(name)


async def delete_records(
    cluster: Cluster, topic: str, offsets: Mapping[int, int]
) -> dict[int, int]:
    """Drop what lies before an offset (-1: the high watermark); returns the new start offsets."""
    leaders = await cluster.leaders(topic, offsets)
    starts: dict[int, int] = {}
    for partition, offset in sorted(offsets.items()):
        if partition not in leaders:
            raise ApiError(
                ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"There is no partition {topic}-{partition}."
            )
        asked = DeleteRecordsPartition(partition_index=partition, offset=offset)
        request = DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=topic, partitions=[asked])], timeout_ms=TIMEOUT_MS
        )
        response: DeleteRecordsResponse = await cluster.send_to(leaders[partition], request)
        result = response.topics[0].partitions[0]
        check(result.error_code)
        starts[partition] = result.low_watermark
    return starts


async def describe_cluster(cluster: Cluster) -> DescribeClusterResponse:
    """Cluster id, controller and brokers, fenced ones included where the node tells them."""
    connection = await cluster.any_connection()
    request = DescribeClusterRequest(unknown_tagged_fields=ASKED)
    if connection.version_for(DescribeClusterRequest.api_key) >= 2:
        request.include_fenced_brokers = True
    response: DescribeClusterResponse = await connection.send(request)
    check(response.error_code, response.error_message)
    return response


def cordoned_in(response: DescribeClusterResponse) -> frozenset[int]:
    """The brokers on which nothing new is placed; none where the node does not tell."""
    return frozenset(untagged(Cordoned, response.unknown_tagged_fields).brokers)


async def full_folders(
    cluster: Cluster, response: DescribeClusterResponse
) -> dict[int, tuple[str, ...]]:
    """The folders without room, by broker, of those that are up and have one."""
    request = DescribeLogDirsRequest(topics=[], unknown_tagged_fields=ASKED)
    up = {each.broker_id for each in response.brokers if not each.is_fenced}
    found: dict[int, tuple[str, ...]] = {}
    for broker_id in untagged(Cordoned, response.unknown_tagged_fields).full:
        if broker_id not in up:
            continue
        told = FullFolders()
        with contextlib.suppress(ApiError, OSError):
            answer = await cluster.send_to(broker_id, request)
            told = untagged(FullFolders, answer.unknown_tagged_fields)
        found[broker_id] = tuple(told.paths) or (SOME_FOLDER,)
    return found


async def cordon(cluster: Cluster, broker_id: int, *, closed: bool = True) -> None:
    """Have nothing new placed on a broker, or end that; it need not be up. Raises ApiError."""
    change = ConfigOperation.SET if closed else ConfigOperation.DELETE
    value = EVERY_FOLDER if closed else None
    resource = AlterConfigsResource(
        resource_type=ResourceKind.BROKER,
        resource_name=str(broker_id),
        configs=[AlterableConfig(name=CORDON, config_operation=change, value=value)],
    )

    async def attempt() -> None:
        response: IncrementalAlterConfigsResponse = await cluster.send(
            IncrementalAlterConfigsRequest(resources=[resource])
        )
        check(response.responses[0].error_code, response.responses[0].error_message)

    await _naming_brokers(cluster, attempt)


async def unregister_broker(cluster: Cluster, broker_id: int) -> None:
    """Have the cluster forget a broker; raises ApiError BROKER_ID_NOT_REGISTERED."""

    async def attempt() -> None:
        response: UnregisterBrokerResponse = await cluster.send(
            UnregisterBrokerRequest(broker_id=broker_id)
        )
        check(response.error_code, response.error_message)

    await _naming_brokers(cluster, attempt)


async def _naming_brokers(cluster: Cluster, attempt: Callable[[], Awaitable[None]]) -> None:
    """Try; a refusal because nobody has that id names the brokers that there are."""
    try:
        await cluster.retrying(attempt)
    except ApiError as fault:
        if fault.code is not ErrorCode.BROKER_ID_NOT_REGISTERED:
            raise
        found = sorted(each.broker_id for each in (await describe_cluster(cluster)).brokers)
        known = ", ".join(map(str, found))
        raise ApiError(fault.code, f"{fault.message.rstrip('.')}; known: {known}.") from None


async def describe_log_dirs(cluster: Cluster, broker_id: int) -> list[DescribeLogDirsResult]:
    """The log folders of a broker: partitions with their sizes, space left."""
    request = DescribeLogDirsRequest(topics=None, unknown_tagged_fields=ASKED)
    response: DescribeLogDirsResponse = await cluster.send_to(broker_id, request)
    check(response.error_code)
    return response.results
