"""IncrementalAlterConfigs: set, delete, append to or subtract from single settings.

KIP: KIP-339, KIP-590 (forwarded)
Versions: 0-1
Behaviour: the operations of a resource apply in order, and the resource's whole set is checked
    after them. Each resource succeeds or fails by itself; a setting may be named once.
Skipped: alter.config.policy.class.name; log levels of a broker; groups and client metrics have
    settings that do nothing
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from anabranch.core.api.alter_configs import decide_resources, refuse_resources
from anabranch.core.api.handler import Handler, Request, forward
from anabranch.core.controller.configs import Operation, change_configs
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from anabranch.core.wire.metadata_records import MetadataRecord


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[IncrementalAlterConfigsResponse]:
    """Plan every resource."""
    answers, result = decide_resources(controller, request, _plan, AlterConfigsResourceResponse)
    response = IncrementalAlterConfigsResponse(responses=answers)
    return Result(result.records, response, result.reasons)


def _plan(controller: Controller, resource: Any) -> Sequence[MetadataRecord]:
    return change_configs(
        controller.image,
        controller.config,
        resource.resource_type,
        resource.resource_name,
        [Operation(each.name, each.config_operation, each.value) for each in resource.configs],
    )


def refuse(request: Request, code: ErrorCode, sentence: str) -> IncrementalAlterConfigsResponse:
    """The same error for every resource."""
    answers = refuse_resources(request, AlterConfigsResourceResponse, code, sentence)
    return IncrementalAlterConfigsResponse(responses=answers)


HANDLER = Handler(
    api_key=44,
    name="IncrementalAlterConfigs",
    versions=range(2),
    broker=forward,
    controller=decides(decide, refuse),
    kips=("KIP-339", "KIP-590"),
    skipped=(
        "The class of alter.config.policy.class.name is not asked.",
        "Log levels of a broker are not altered.",
        "Settings of groups and of subscriptions to clients' metrics are kept, and do nothing.",
    ),
)
