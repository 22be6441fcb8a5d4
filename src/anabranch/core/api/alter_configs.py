"""What AlterConfigs and IncrementalAlterConfigs share: resources, their checks, their answers.

The controller plans every resource. A broker that is asked to change its own settings looks first
whether it can go over to them, as in Kafka: the controller does not know its file. Rule kept: keys,
trust and logins of a node's listeners are stored once that node could use them. Where nobody can
look (the node is not there, or a controller was asked about another), they are stored once the node
is known to have such a listener.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterator, Mapping, Sequence
from typing import Any

from anabranch.core.access.authorize import (
    Authorizer,
    Operation,
    ResourceType,
    cluster_allowed,
    topic_allowed,
)
from anabranch.core.api.context import Broker
from anabranch.core.controller.configs import checked_name
from anabranch.core.controller.controller import Controller
from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.image import (
    CLUSTER_DEFAULT,
    RESOURCE_BROKER,
    RESOURCE_TOPIC,
    MetadataImage,
)
from anabranch.core.request import NO_LISTENER, Request
from anabranch.core.sentences import number_of
from anabranch.core.settings.listener_changes import changed, told_listeners
from anabranch.core.settings.listener_changes import refuse_change as refuse_listener_change
from anabranch.core.settings.validation import Resource, refuse_change, validate_broker_configs
from anabranch.core.wire.metadata_records import ClearElrRecord, ConfigRecord, MetadataRecord

Plan = Callable[[Controller, Any], Sequence[MetadataRecord]]
Answer = Callable[..., Any]
Values = Callable[[MetadataImage, Any], Mapping[str, str]]
"""The whole set that a broker would have after a change. Raises ClientFault."""

REFUSED_WITH_IT = (
    "The broker refuses another resource of this request, so it changed none. Send this one again."
)


def refused_here(
    broker: Broker, request: Request, values_of: Values, answer: Answer
) -> list[Any] | None:
    """The answers of a broker that cannot go over to its own new settings; None when it can."""
    resources = request.body.resources
    faults = [_fault_here(broker, request, each, values_of) for each in resources]
    if not any(faults):
        return None
    with_it = ClientFault(ErrorCode.INVALID_REQUEST, REFUSED_WITH_IT)
    return [
        answer(
            error_code=(fault or with_it).code,
            error_message=(fault or with_it).message,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each, fault in zip(resources, faults, strict=True)
    ]


def _fault_here(
    broker: Broker, request: Request, resource: Any, values_of: Values
) -> ClientFault | None:
    image, mine = broker.image, str(broker.broker_id)
    if resource.resource_type != RESOURCE_BROKER:
        return None
    try:
        check_allowed(broker.authorizer, request, RESOURCE_BROKER, resource.resource_name)
        name = checked_name(RESOURCE_BROKER, resource.resource_name)
        values = values_of(image, resource)
        validate_broker_configs(values, per_broker=name != CLUSTER_DEFAULT)
    except ClientFault:
        return None  # the controller says so
    try:
        if name == CLUSTER_DEFAULT:
            _refuse_own(broker, image.config(RESOURCE_BROKER, mine), values)
        elif name == mine:
            _refuse_own(broker, values, image.config(RESOURCE_BROKER, CLUSTER_DEFAULT))
        else:
            _refuse_of_another(broker, int(name), values)
    except ClientFault as fault:
        return fault
    return None


def _refuse_own(broker: Broker, own: Mapping[str, str], default: Mapping[str, str]) -> None:
    """Raise ClientFault for settings that the broker cannot go over to."""
    wanted = broker.config.with_dynamic(own, default)
    refuse_change(broker.config, wanted)
    broker.refuse_listeners(wanted)


def _refuse_of_another(broker: Broker, node_id: int, values: Mapping[str, str]) -> None:
    """Raise ClientFault for changed listeners of another node: that one is to be asked, or, while
    it is not there to look, is not known to have such a listener."""
    image = broker.image
    before, other = image.config(RESOURCE_BROKER, str(node_id)), image.brokers.get(node_id)
    if other is not None and not other.fenced and any(changed(before, values)):
        sentence = f"Unexpected broker id, expected {broker.broker_id}, but received {node_id}"
        why = f"broker {node_id} itself must see whether it can use these settings: ask it"
        raise ClientFault(ErrorCode.INVALID_REQUEST, f"{sentence}: {why}")
    if other is not None or node_id in image.controllers:  # else the controller says so
        refuse_listener_change(before, values, told_listeners(image, broker.config, node_id))


def _check_listeners(
    controller: Controller, request: Request, resource: Any, values_of: Values
) -> None:
    """Raise ClientFault for settings of listeners that their node could not use, as far as the
    controller can tell: it knows its own, and which listeners others have."""
    if resource.resource_type != RESOURCE_BROKER or not resource.resource_name:
        return
    image, node_id = controller.image, int(resource.resource_name)
    values = values_of(image, resource)
    if node_id == controller.node_id:
        controller.refuse_listeners(controller.config.with_dynamic(values, {}))
    elif request.listener != NO_LISTENER:  # else a broker has looked
        before = image.config(RESOURCE_BROKER, str(node_id))
        refuse_listener_change(before, values, told_listeners(image, controller.config, node_id))


def decide_resources(
    controller: Controller, request: Request, plan: Plan, values_of: Values, answer: Answer,
    *, unknown: Container[int] = (),
) -> tuple[list[Any], Result[None]]:  # fmt: skip
    """Plan each resource by itself: the answers, and the records with their reasons.

    Resources of `unknown` types are refused before anybody's rights are looked at.
    """
    resources = request.body.resources
    counts = Counter((each.resource_type, each.resource_name) for each in resources)
    records: list[MetadataRecord] = []
    reasons: list[Reason] = []
    answers: list[Any] = []
    for each in resources:
        key = (each.resource_type, each.resource_name)
        code, sentence = ErrorCode.NONE, None
        try:
            if counts[key] > 1:
                raise ClientFault(
                    ErrorCode.INVALID_REQUEST, "Each resource must appear at most once."
                )
            if each.resource_type not in unknown:
                check_allowed(controller.authorizer, request, *key)
            made = plan(controller, each)
            _check_listeners(controller, request, each, values_of)
            records += made
            reasons += _reasons(key, made)
        except ClientFault as fault:
            code, sentence = fault.code, fault.message
        answers.append(
            answer(
                error_code=code,
                error_message=sentence,
                resource_type=each.resource_type,
                resource_name=each.resource_name,
            )
        )
    if request.body.validate_only:
        records, reasons = [], []
    return answers, Result(tuple(records), None, tuple(reasons))


def check_allowed(authorizer: Authorizer, request: Request, resource_type: int, name: str) -> None:
    """Raise the authorization error of the resource unless ALTER_CONFIGS is allowed."""
    if resource_type == RESOURCE_TOPIC:
        if not topic_allowed(authorizer, request, Operation.ALTER_CONFIGS, name):
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            raise ClientFault(code, "Topic authorization failed.")
    elif resource_type == Resource.GROUP:
        operation, kind = Operation.ALTER_CONFIGS, ResourceType.GROUP
        if not authorizer.authorize(request, operation, kind, name):
            code = ErrorCode.GROUP_AUTHORIZATION_FAILED
            raise ClientFault(code, "Group authorization failed.")
    elif not cluster_allowed(authorizer, request, Operation.ALTER_CONFIGS):
        code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        raise ClientFault(code, "Cluster authorization failed.")


def refuse_resources(request: Request, answer: Answer, code: ErrorCode, sentence: str) -> list[Any]:
    """The same error for every resource of the request."""
    return [
        answer(
            error_code=code,
            error_message=sentence,
            resource_type=each.resource_type,
            resource_name=each.resource_name,
        )
        for each in request.body.resources
    ]


def _named(key: tuple[int, str]) -> str:
    kind, name = key
    if kind == RESOURCE_TOPIC:
        return f"topic {name}"
    if kind == RESOURCE_BROKER:
        return f"broker {name}" if name else "all brokers"
    return f"{name!r}"


def _reasons(key: tuple[int, str], made: Sequence[MetadataRecord]) -> Iterator[Reason]:
    count = sum(isinstance(record, ConfigRecord) for record in made)
    yield Reason(Code.CONFIGS_CHANGED, f"change of {number_of(count, 'setting')} of {_named(key)}")
    for record in made:
        if isinstance(record, ClearElrRecord):
            whose = f"topic {record.topic_name}" if record.topic_name else "all topics"
            yield Reason(
                Code.ELR_CLEARED,
                f"the eligible leader replicas of {whose} are cleared: min.insync.replicas changed",
                {"topic": record.topic_name},
            )
