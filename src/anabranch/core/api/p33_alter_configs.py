"""AlterConfigs: replace all settings of a topic or of a broker.

KIP: KIP-133, KIP-226 (dynamic broker settings), KIP-590 (forwarded)
Versions: 0-2
Behaviour: what the request does not name goes back to its default. Each resource succeeds or fails
    by itself. IncrementalAlterConfigs is what clients should use. A broker refuses settings of its
    own that it cannot go over to while it runs; a listener that its node does not have is refused.
Skipped: alter.config.policy.class.name; log levels of a broker; groups and client metrics have
    settings that do nothing; what else a request names of which a broker refuses its own settings
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.api.alter_configs import decide_resources, refuse_resources, refused_here
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.configs import replace_configs
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.result import Result
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.outcome import Outcome
from anabranch.core.request import Request
from anabranch.core.settings.validation import Resource
from anabranch.core.wire.messages.alter_configs import (
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from anabranch.core.wire.metadata_records import MetadataRecord


def run(broker: Broker, request: Request, now_ms: int) -> Outcome:
    """Refuse what this broker cannot go over to, and leave everything else to the controller."""
    answers = refused_here(broker, request, _values, AlterConfigsResourceResponse)
    if answers is None:
        return forward(broker, request, now_ms)
    return AlterConfigsResponse(responses=answers)


def _values(_image: MetadataImage, resource: Any) -> Mapping[str, str]:
    return {each.name: each.value for each in resource.configs if each.value is not None}


def decide(controller: Controller, request: Request, _now_ms: int) -> Result[AlterConfigsResponse]:
    """Plan every resource."""
    answers, result = decide_resources(
        controller, request, _plan, _values, AlterConfigsResourceResponse,
        unknown={Resource.BROKER_LOGGER},
    )  # fmt: skip
    return Result(result.records, AlterConfigsResponse(responses=answers), result.reasons)


def _plan(controller: Controller, resource: Any) -> Sequence[MetadataRecord]:
    wanted = [(config.name, config.value) for config in resource.configs]
    return replace_configs(
        controller.image,
        controller.config,
        resource.resource_type,
        resource.resource_name,
        wanted,
    )


def refuse(request: Request, code: ErrorCode, sentence: str) -> AlterConfigsResponse:
    """The same error for every resource."""
    answers = refuse_resources(request, AlterConfigsResourceResponse, code, sentence)
    return AlterConfigsResponse(responses=answers)


HANDLER = Handler(
    api_key=33,
    name="AlterConfigs",
    versions=range(3),
    broker=run,
    forwards_some=True,
    controller=decides(decide, refuse),
    needs=(
        Need(Operation.ALTER_CONFIGS, ResourceType.TOPIC),
        Need(Operation.ALTER_CONFIGS, ResourceType.GROUP),
        Need(Operation.ALTER_CONFIGS, ResourceType.CLUSTER),
    ),
    kips=("KIP-133", "KIP-226", "KIP-590"),
    skipped=(
        "The policy class alter.config.policy.class.name has no effect.",
        "Log levels of a broker are not altered.",
        "Settings of groups and of subscriptions to client metrics are stored, but have no effect.",
        "If a broker refuses its own settings, nothing else that the request names is changed.",
    ),
)
