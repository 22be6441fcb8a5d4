"""Controllers say where they are and what they know, so that every node can name them all.

What: the plan for ControllerRegistration. A controller that is registered already with the same
incarnation and place changes nothing. Rule kept: a controller that does not support a level which
the cluster uses is refused, since it could not read the records that this level allows. Source:
KIP-919; the texts are those of Kafka's ClusterControlManager. Not here: who is active, which the
metadata store's lease says.
"""

from __future__ import annotations

from anabranch.core.controller.reasons import Code
from anabranch.core.controller.result import Reason, Result
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import (
    CONTROLLERS_SINCE,
    METADATA_VERSION,
    missing_level,
    offered,
)
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay
from anabranch.core.wire.messages.controller_registration import (
    ControllerRegistrationRequest,
    ControllerRegistrationResponse,
)
from anabranch.core.wire.metadata_records import (
    ControllerEndpoint,
    ControllerFeature,
    RegisterControllerRecord,
)
from anabranch.core.wire.schema import same_fields


def register_controller(
    image: MetadataImage, request: ControllerRegistrationRequest
) -> Result[ControllerRegistrationResponse]:
    """Register a controller. Raises ClientFault UNSUPPORTED_VERSION."""
    if image.features.get(METADATA_VERSION, 0) < CONTROLLERS_SINCE:
        raise ClientFault(
            ErrorCode.UNSUPPORTED_VERSION,
            "The current MetadataVersion is too old to support controller registrations.",
        )
    record = _record(request)
    missing = missing_level(image, offered(request.features))
    if missing is not None:
        raise ClientFault(ErrorCode.UNSUPPORTED_VERSION, missing.sentence("controller"))
    answer = ControllerRegistrationResponse(error_message=None)
    if replay(image, record).controllers == image.controllers:
        return Result((), answer)
    reason = Reason(
        Code.CONTROLLER_REGISTERED,
        f"controller {request.controller_id} registered",
        {"controller_id": request.controller_id},
    )
    return Result((record,), answer, (reason,))


def _record(request: ControllerRegistrationRequest) -> RegisterControllerRecord:
    return RegisterControllerRecord(
        controller_id=request.controller_id,
        incarnation_id=request.incarnation_id,
        end_points=[same_fields(ControllerEndpoint, each) for each in request.listeners],
        features=[same_fields(ControllerFeature, each) for each in request.features],
    )
