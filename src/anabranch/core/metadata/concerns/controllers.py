"""Registrations of controllers (KIP-919)."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.concerns.endpoints import endpoints_of
from anabranch.core.metadata.features import offered
from anabranch.core.metadata.image import ControllerImage, Endpoint, MetadataImage
from anabranch.core.wire import metadata_records as records


def _register_controller(builder: ImageBuilder, record: records.RegisterControllerRecord) -> None:
    """A controller is where it says; one that is nowhere and knows nothing is forgotten."""
    if not record.end_points and not record.features:
        builder.changing("controllers").pop(record.controller_id, None)
        return
    builder.changing("controllers")[record.controller_id] = ControllerImage(
        record.controller_id,
        bytes(record.incarnation_id),
        endpoints_of(record.end_points),
        offered(record.features),
    )


RULES: Rules = {records.RegisterControllerRecord: _register_controller}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every registration by id."""
    for controller_id in sorted(image.controllers):
        yield _controller_record(image.controllers[controller_id])


def _controller_record(controller: ControllerImage) -> records.RegisterControllerRecord:
    def endpoint(name: str, point: Endpoint) -> records.ControllerEndpoint:
        return records.ControllerEndpoint(
            name=name,
            host=point.host,
            port=point.port,
            security_protocol=point.security_protocol,
        )

    return records.RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        end_points=[endpoint(*item) for item in sorted(controller.endpoints.items())],
        features=[
            records.ControllerFeature(
                name=name, min_supported_version=low, max_supported_version=high
            )
            for name, (low, high) in sorted(controller.features.items())
        ],
    )
