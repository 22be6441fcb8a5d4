"""ApiVersions: what this listener serves, in which versions, and the features in force.

KIP: KIP-35, KIP-511, KIP-584
Versions: 0-4
Behaviour: the list is made from the files of this package, for the role that was asked. From
    version 3 the client says its name and version, which must look like names (INVALID_REQUEST).
    An unknown version is answered by `core.node.requests` in version 0 with UNSUPPORTED_VERSION. A
    feature whose lowest level is 0 is left out before version 4, which older clients cannot read
    (KAFKA-17011). Produce is advertised from version 0 (KAFKA-18659).
Skipped: nothing
"""

from __future__ import annotations

import re
from typing import Any

from anabranch.core.api.handler import Handler
from anabranch.core.api.registry import BROKER, CONTROLLER, advertised
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import SUPPORTED_FEATURES
from anabranch.core.request import Request
from anabranch.core.wire.messages.api_versions import (
    ApiVersion,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

SOFTWARE_NAME = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")
FIRST_VERSION_WITH_SOFTWARE_NAME = 3
FIRST_VERSION_WITH_LEVEL_ZERO = 4


def on_broker(node: Any, request: Request, _now_ms: int) -> ApiVersionsResponse:
    """The answer on a client listener."""
    registered = node.image.brokers.get(node.broker_id)
    return answer(BROKER, request, node.image, registered.features if registered else {})


def on_controller(node: Any, request: Request, _now_ms: int) -> ApiVersionsResponse:
    """The answer on the controller listener."""
    return answer(CONTROLLER, request, node.known, SUPPORTED_FEATURES)


def answer(role: str, request: Request, image: Any, supported: Any) -> ApiVersionsResponse:
    """The whole response; `supported` maps a feature to its lowest and highest level."""
    version = request.version
    if version >= FIRST_VERSION_WITH_SOFTWARE_NAME and not names_itself(request.body):
        return ApiVersionsResponse(error_code=ErrorCode.INVALID_REQUEST)
    return ApiVersionsResponse(
        api_keys=[
            ApiVersion(api_key=key, min_version=first, max_version=last)
            for key, first, last in advertised(role)
        ],
        supported_features=[
            SupportedFeatureKey(name=name, min_version=low, max_version=high)
            for name, (low, high) in sorted(supported.items())
            if low > 0 or version >= FIRST_VERSION_WITH_LEVEL_ZERO
        ],
        finalized_features_epoch=image.offset,
        finalized_features=[
            FinalizedFeatureKey(name=name, max_version_level=level, min_version_level=level)
            for name, level in sorted(image.features.items())
            if level > 0
        ],
    )


def names_itself(body: Any) -> bool:
    """Whether the client's name and version look as KIP-511 asks."""
    return bool(
        SOFTWARE_NAME.fullmatch(body.client_software_name)
        and SOFTWARE_NAME.fullmatch(body.client_software_version)
    )


HANDLER = Handler(
    api_key=18,
    name="ApiVersions",
    versions=range(5),
    broker=on_broker,
    controller=on_controller,
    opens_session=True,
    kips=("KIP-35", "KIP-511", "KIP-584"),
)
