"""DescribeConfigs: settings of topics, brokers, groups and subscriptions: values, sources, meaning.

KIP: KIP-133, KIP-226 (synonyms), KIP-569 (types and documentation), KIP-714, KIP-848 (resources).
Versions: 1-4
Behaviour: a broker describes any topic, itself by its id, and the cluster's dynamic default by the
    empty name; another broker's id is INVALID_REQUEST. No keys, or an empty list, means all.
    Resources that the principal may not see are answered last, as Kafka does. The documentation
    is Anabranch's own.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Any, Protocol, TypeAlias

from anabranch.core.access.authorize import CLUSTER, Authorizer, Operation, ResourceType
from anabranch.core.api.handler import Handler
from anabranch.core.api.log_levels import LogLevels, describe_levels
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ERRORS, ApiError, ClientFault, ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.topic_names import is_legal
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.settings.describe import (
    describe_broker,
    describe_cluster_default,
    describe_topic,
)
from anabranch.core.settings.resources import describe_client_metrics, describe_group
from anabranch.core.settings.validation import Resource
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)

Alike: TypeAlias = (
    "dict[tuple[frozenset[tuple[str, str]], frozenset[str]], list[DescribeConfigsResourceResult]]"
)
"""What was answered for topics with these settings of their own and these names asked for. Tools
ask for thousands of topics at once, of which most have the same."""


class DescribingNode(Protocol):
    """What this handler needs of a broker."""

    broker_id: int
    config: BrokerConfig
    image: MetadataImage
    authorizer: Authorizer
    loggers: LogLevels


def describe_configs(node: DescribingNode, request: Request, now_ms: int) -> Any:
    """Answer each resource by itself, and once; the refused ones come last."""
    body: DescribeConfigsRequest = request.body
    allowed, refused = [], []
    alike: Alike = {}
    resources = {(each.resource_type, each.resource_name): each for each in body.resources}
    for resource in resources.values():
        if may_describe(node, request, resource):
            allowed.append(_answer(node, body, resource, alike))
        else:
            refused.append(_refusal(resource))
    return DescribeConfigsResponse(results=allowed + refused)


def may_describe(node: DescribingNode, request: Request, resource: DescribeConfigsResource) -> bool:
    """Whether the principal may see the settings; brokers' and metrics' are the cluster's."""
    if resource.resource_type == Resource.TOPIC:
        kind, name = ResourceType.TOPIC, resource.resource_name
    elif resource.resource_type == Resource.GROUP:
        kind, name = ResourceType.GROUP, resource.resource_name
    else:
        kind, name = ResourceType.CLUSTER, CLUSTER
    return node.authorizer.authorize(request, Operation.DESCRIBE_CONFIGS, kind, name)


def _answer(
    node: DescribingNode,
    body: DescribeConfigsRequest,
    resource: DescribeConfigsResource,
    alike: Alike,
) -> DescribeConfigsResult:
    result = DescribeConfigsResult(
        resource_type=resource.resource_type, resource_name=resource.resource_name
    )
    try:
        result.configs = _describe(node, resource, alike)
    except ApiError as error:
        result.error_code = error.code
        result.error_message = error.message
    for config in result.configs:
        if not body.include_synonyms:
            config.synonyms = []
        if not body.include_documentation:
            config.documentation = None
    return result


def _refusal(resource: DescribeConfigsResource) -> DescribeConfigsResult:
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    if resource.resource_type == Resource.TOPIC:
        code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
    elif resource.resource_type == Resource.GROUP:
        code = ErrorCode.GROUP_AUTHORIZATION_FAILED
    return DescribeConfigsResult(
        error_code=code,
        error_message=ERRORS[code].sentence,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )


def _describe(
    node: DescribingNode, resource: DescribeConfigsResource, alike: Alike
) -> list[DescribeConfigsResourceResult]:
    name, keys = resource.resource_name, resource.configuration_keys
    if resource.resource_type == Resource.TOPIC:
        return _topic(node, name, keys, alike)
    if resource.resource_type == Resource.BROKER:
        if name == "":
            return describe_cluster_default(node.config, keys)
        _check_broker_id(node, name, " or empty string,")
        return describe_broker(node.config, keys)
    if resource.resource_type == Resource.BROKER_LOGGER:
        if name == "":
            raise ClientFault(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
        _check_broker_id(node, name, "")
        return describe_levels(node.loggers, keys)
    if resource.resource_type == Resource.CLIENT_METRICS:
        _check_named(name, "Client metrics subscription name must not be empty")
        return describe_client_metrics(node.image.config(Resource.CLIENT_METRICS, name), keys)
    if resource.resource_type == Resource.GROUP:
        _check_named(name, "Group name must not be empty")
        return describe_group(node.image.config(Resource.GROUP, name), node.config, keys)
    raise ClientFault(
        ErrorCode.INVALID_REQUEST,
        f"Settings of resource type {resource.resource_type} are not described here",
    )


def _check_named(name: str, sentence: str) -> None:
    if not name:
        raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)


def _topic(
    node: DescribingNode, name: str, keys: Collection[str] | None, alike: Alike
) -> list[DescribeConfigsResourceResult]:
    if not is_legal(name):
        what = f"'{name}'" if name else "the empty string"
        raise ClientFault(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic name is invalid: {what} is not allowed"
        )
    if node.image.topic(name) is None:
        raise ClientFault(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    texts = node.image.config(Resource.TOPIC, name)
    same = frozenset(texts.items()), frozenset(keys or ())
    described = alike.get(same)
    if described is None:
        described = alike[same] = describe_topic(texts, node.config, keys)
    return described


def _check_broker_id(node: DescribingNode, name: str, also: str) -> None:
    try:
        broker_id = int(name)
    except ValueError:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST, f"Broker id must be an integer, but it is: {name}"
        ) from None
    if broker_id != node.broker_id:
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.broker_id}{also} but received {name}",
        )


HANDLER = Handler(
    api_key=32,
    name="DescribeConfigs",
    versions=range(1, 5),
    broker=describe_configs,
    needs=(
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.TOPIC),
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.GROUP),
        Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
    ),
    kips=("KIP-133", "KIP-226", "KIP-569"),
)
