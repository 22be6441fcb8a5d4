"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings.

KIP: KIP-339, KIP-590 (forwarded)
Versions: 0-1
Behaviour: the operations of a resource apply in order, and the resource's whole set is checked
    after them. Each resource succeeds or fails by itself; a setting may be named once. Log levels
    are changed at once by the broker and are not stored. A broker refuses settings of its own that
    it cannot go over to while it runs; a listener that its node does not have is refused.
Skipped: alter.config.policy.class.name; settings of groups and client metrics have no effect; what
    else a request names of which a broker refuses its own settings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.core.access.authorize import Operation as Access
from anabranch.core.access.authorize import ResourceType, cluster_allowed
from anabranch.core.api.alter_configs import decide_resources, refuse_resources, refused_here
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler, forward
from anabranch.core.api.log_levels import alter_levels
from anabranch.core.broker.gate import Need
from anabranch.core.controller.configs import (
    Operation,
    change_configs,
    check_request,
    checked_name,
    values_after,
)
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import RESOURCE_BROKER, MetadataImage
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.settings.validation import Resource
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from anabranch.core.wire.metadata_records import MetadataRecord

LOGGER = Resource.BROKER_LOGGER


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Alter log levels, refuse what this broker cannot go over to, forward all else."""
    resources = request.body.resources
    answers: list[Any] | None
    if resources and {each.resource_type for each in resources} == {LOGGER}:
        answers = [_alter_levels(broker, request, each) for each in resources]
    else:
        answers = refused_here(broker, request, _values, AlterConfigsResourceResponse)
    if answers is None:
        return forward(broker, request, now_ms)
    return IncrementalAlterConfigsResponse(responses=answers)


def _values(image: MetadataImage, resource: Any) -> Mapping[str, str]:
    operations = _operations(resource)
    check_request(operations)
    name = checked_name(RESOURCE_BROKER, resource.resource_name)
    return values_after(image, None, RESOURCE_BROKER, name, operations)


def _operations(resource: Any) -> list[Operation]:
    return [Operation(each.name, each.config_operation, each.value) for each in resource.configs]


def _alter_levels(broker: Broker, request: Request, resource: Any) -> AlterConfigsResourceResponse:
    answer = AlterConfigsResourceResponse(
        error_message=None,
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
    )
    try:
        if not cluster_allowed(broker.authorizer, request, Access.ALTER_CONFIGS):
            raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
        alter_levels(
            broker.loggers,
            broker.broker_id,
            resource.resource_name,
            resource.configs,
            validate_only=request.body.validate_only,
        )
    except ClientFault as fault:
        answer.error_code, answer.error_message = fault.code, fault.message
    return answer


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[IncrementalAlterConfigsResponse]:
    """Plan every resource."""
    answers, result = decide_resources(
        controller, request, _plan, _values, AlterConfigsResourceResponse
    )
    response = IncrementalAlterConfigsResponse(responses=answers)
    return Result(result.records, response, result.reasons)


def _plan(controller: Controller, resource: Any) -> Sequence[MetadataRecord]:
    return change_configs(
        controller.image,
        controller.config,
        resource.resource_type,
        resource.resource_name,
        _operations(resource),
    )


def refuse(request: Request, code: ErrorCode, sentence: str) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    answers = refuse_resources(request, AlterConfigsResourceResponse, code, sentence)
    return IncrementalAlterConfigsResponse(responses=answers)


HANDLER = Handler(
    api_key=44,
    name="IncrementalAlterConfigs",
    versions=range(2),
    broker=run,
    forwards_some=True,
    controller=decides(decide, refuse),
    needs=(
        Need(Access.ALTER_CONFIGS, ResourceType.TOPIC),
        Need(Access.ALTER_CONFIGS, ResourceType.GROUP),
        Need(Access.ALTER_CONFIGS, ResourceType.CLUSTER),
    ),
    kips=("KIP-339", "KIP-590"),
    skipped=(
        "The policy class alter.config.policy.class.name has no effect.",
        "Log levels can be altered only in a request of their own.",
        "Settings of groups and of subscriptions to client metrics are stored, but have no effect.",
        "If a broker refuses its own settings, nothing else that the request names is changed.",
    ),
)
