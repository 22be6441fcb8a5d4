"""ListConfigResources: what has, or can have, settings of its own.

KIP: KIP-714 (version 0: client metrics alone), KIP-1142.
Versions: 0-1.
Behaviour: topics and brokers that exist, and client metrics and groups that have settings. No
    types, or none named, means all. A type that is none of these is UNSUPPORTED_VERSION.
Skipped: nothing
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.request import Request
from anabranch.core.settings.validation import Resource
from anabranch.core.wire.messages.list_config_resources import (
    ConfigResource,
    ListConfigResourcesRequest,
    ListConfigResourcesResponse,
)

LISTED = (
    Resource.CLIENT_METRICS,
    Resource.BROKER_LOGGER,
    Resource.BROKER,
    Resource.TOPIC,
    Resource.GROUP,
)


def run(broker: Broker, request: Request, _now_ms: int) -> ListConfigResourcesResponse:
    """List the resources of the types that are asked for."""
    body: ListConfigResourcesRequest = request.body
    if not cluster_allowed(broker.authorizer, request, Operation.DESCRIBE_CONFIGS):
        return ListConfigResourcesResponse(error_code=ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    types = set(body.resource_types) or set(LISTED)
    if request.version == 0:
        types = {Resource.CLIENT_METRICS}
    if not types <= set(LISTED):
        return ListConfigResourcesResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
    return ListConfigResourcesResponse(
        config_resources=[
            ConfigResource(resource_name=name, resource_type=kind)
            for kind in LISTED
            if kind in types
            for name in _names(broker.image, kind)
        ]
    )


def _names(image: MetadataImage, kind: Resource) -> Iterable[str]:
    if kind is Resource.TOPIC:
        return sorted(topic.name for topic in image.topics_by_id.values())
    if kind in (Resource.BROKER, Resource.BROKER_LOGGER):
        return map(str, sorted(image.brokers))
    return sorted(name for each, name in image.configs if each == kind)


HANDLER = Handler(
    api_key=74,
    name="ListConfigResources",
    versions=range(2),
    broker=run,
    needs=(Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),),
    kips=("KIP-714", "KIP-1142"),
)
