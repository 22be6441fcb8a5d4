"""DescribeClientQuotas: the quotas that a filter matches.

KIP: KIP-546, KIP-612 (addresses).
Versions: 0-1.
Behaviour: needs DESCRIBE_CONFIGS on the cluster. A broker tells what its image has. Each component
    of the filter names a type and matches a name, the default of the type, or both; a strict filter
    leaves out entities that have other types too.
Skipped: nothing
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.context import Broker
from anabranch.core.api.handler import Handler
from anabranch.core.broker.gate import Need
from anabranch.core.errors import ApiError, ClientFault, ErrorCode
from anabranch.core.metadata.image import QuotaEntity
from anabranch.core.quotas.entities import CLIENT_ID, IP, TYPES, USER
from anabranch.core.request import Request
from anabranch.core.wire.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

EXACT, DEFAULT, SPECIFIED = 0, 1, 2
MATCHES = {
    EXACT: "MATCH_TYPE_EXACT",
    DEFAULT: "MATCH_TYPE_DEFAULT",
    SPECIFIED: "MATCH_TYPE_SPECIFIED",
}


def run(broker: Broker, request: Request, _now_ms: int) -> DescribeClientQuotasResponse:
    """Find the entities in this node's image."""
    if not cluster_allowed(broker.authorizer, request, Operation.DESCRIBE_CONFIGS):
        return _refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "Cluster authorization failed.")
    body: DescribeClientQuotasRequest = request.body
    try:
        wanted = _filter(body.components)
    except ApiError as fault:
        return _refused(fault.code, fault.message)
    if body.strict and not wanted:
        return DescribeClientQuotasResponse()
    return DescribeClientQuotasResponse(
        entries=[
            EntryData(
                entity=[EntityData(kind, name) for kind, name in entity],
                values=[ValueData(key, value) for key, value in sorted(values.items())],
            )
            for entity, values in sorted(broker.image.quotas.items(), key=lambda item: str(item[0]))
            if _is_match(entity, wanted, strict=body.strict)
        ]
    )


def _filter(components: list[ComponentData]) -> dict[str, tuple[int, str | None]]:
    """Type -> match type and name. Raises ClientFault for a filter that is none."""
    wanted: dict[str, tuple[int, str | None]] = {}
    for each in components:
        kind, match_type, name = each.entity_type, each.match_type, each.match
        if not kind:
            raise ClientFault(ErrorCode.INVALID_REQUEST, "Invalid empty entity type.")
        if kind in wanted:
            sentence = f"Entity type {kind} cannot appear more than once in the filter."
            raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
        if kind not in TYPES:
            raise ClientFault(ErrorCode.UNSUPPORTED_VERSION, f"Unsupported entity type {kind}")
        if match_type not in MATCHES:
            raise ClientFault(ErrorCode.INVALID_REQUEST, f"Unknown match type {match_type}")
        if match_type == EXACT and name is None:
            sentence = "Request specified MATCH_TYPE_EXACT, but set match string to null."
            raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
        if match_type != EXACT and name is not None:
            sentence = (
                f"Request specified {MATCHES[match_type]}, but also specified a match string."
            )
            raise ClientFault(ErrorCode.INVALID_REQUEST, sentence)
        wanted[kind] = (match_type, name)
    if IP in wanted and (USER in wanted or CLIENT_ID in wanted):
        raise ClientFault(
            ErrorCode.INVALID_REQUEST,
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component.",
        )
    return wanted


def _is_match(
    entity: QuotaEntity, wanted: dict[str, tuple[int, str | None]], *, strict: bool
) -> bool:
    names = dict(entity)
    if strict and len(names) != len(wanted):
        return False
    return all(
        kind in names and (match_type == SPECIFIED or names[kind] == name)
        for kind, (match_type, name) in wanted.items()
    )


def _refused(code: ErrorCode, sentence: str) -> DescribeClientQuotasResponse:
    return DescribeClientQuotasResponse(error_code=code, error_message=sentence, entries=None)


HANDLER = Handler(
    api_key=48,
    name="DescribeClientQuotas",
    versions=range(2),
    broker=run,
    needs=(Need(Operation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),),
    kips=("KIP-546", "KIP-612"),
)
