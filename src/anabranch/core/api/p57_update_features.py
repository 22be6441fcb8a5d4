"""UpdateFeatures: change the level of a feature of the cluster.

KIP: KIP-584, KIP-590 (forwarded), KIP-778 (downgrades), KIP-1022 (all or nothing).
Versions: 0-2.
Behaviour: needs ALTER on the cluster. Either all updates are applied or none; the first error is
    returned for the whole request. A request may ask for validation only. Features are described by
    ApiVersions.
Skipped: kraft.version cannot be changed.
"""

from __future__ import annotations

from anabranch.core.access.authorize import Operation, ResourceType, cluster_allowed
from anabranch.core.api.handler import Handler, forward
from anabranch.core.broker.gate import Need
from anabranch.core.controller.controller import Controller, decides
from anabranch.core.controller.feature_updates import Update, UpgradeType, update_features
from anabranch.core.controller.result import Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.request import Request
from anabranch.core.wire.messages.update_features import (
    FeatureUpdateKey,
    UpdatableFeatureResult,
    UpdateFeaturesRequest,
    UpdateFeaturesResponse,
)

UPGRADE_TYPES_SINCE = 1
NO_RESULTS_SINCE = 2


def decide(
    controller: Controller, request: Request, _now_ms: int
) -> Result[UpdateFeaturesResponse]:
    """Plan all updates as one."""
    if not cluster_allowed(controller.authorizer, request, Operation.ALTER):
        raise ClientFault(ErrorCode.CLUSTER_AUTHORIZATION_FAILED)
    body: UpdateFeaturesRequest = request.body
    updates = [_update(each, request.version) for each in body.feature_updates]
    minimum = controller.static_config.min_insync_replicas
    try:
        plan = update_features(controller.image, controller.node_id, minimum, updates)
    except ClientFault as fault:
        sentence = "The update failed for all features since the following feature had an error: "
        raise ClientFault(fault.code, sentence + fault.message) from None
    response = UpdateFeaturesResponse(error_message=None)
    if request.version < NO_RESULTS_SINCE:
        response.results = [
            UpdatableFeatureResult(feature=each.feature, error_message="NONE") for each in updates
        ]
    if body.validate_only:
        return Result((), response)
    return Result(plan.records, response, plan.reasons)


def _update(asked: FeatureUpdateKey, version: int) -> Update:
    kind = asked.upgrade_type
    if version < UPGRADE_TYPES_SINCE:
        kind = UpgradeType.SAFE_DOWNGRADE if asked.allow_downgrade else UpgradeType.UPGRADE
    return Update(asked.feature, asked.max_version_level, kind)


def refuse(_request: Request, code: ErrorCode, sentence: str) -> UpdateFeaturesResponse:
    """An answer with the error."""
    return UpdateFeaturesResponse(error_code=code, error_message=sentence)


HANDLER = Handler(
    api_key=57,
    name="UpdateFeatures",
    versions=range(3),
    broker=forward,
    controller=decides(decide, refuse),
    needs=(Need(Operation.ALTER, ResourceType.CLUSTER),),
    kips=("KIP-584", "KIP-590", "KIP-778", "KIP-1022"),
    skipped=("The level of kraft.version cannot be changed.",),
)
