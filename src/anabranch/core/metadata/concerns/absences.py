"""Brokers that cannot be reached, and for how long: what racks without brokers are judged by.

It rides on NoOpRecord, which Kafka passes over. Rule kept: whatever was known of an absence is over
when its broker is back.
"""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import Absence, MetadataImage
from anabranch.core.wire import metadata_records as records


def is_back(builder: ImageBuilder, broker_id: int) -> None:
    """Whatever was known of an absence is over with it."""
    if broker_id in builder.maps.get("absences", builder.image.absences):
        del builder.changing("absences")[broker_id]


def _no_op(builder: ImageBuilder, record: records.NoOpRecord) -> None:
    """It marks a place in the log, and may tell of unreachable brokers."""
    for each in record.absences:
        if each.elapsed_ms < 0:
            is_back(builder, each.broker_id)
        else:
            absence = Absence(each.rack, each.elapsed_ms, each.is_gone)
            builder.changing("absences")[each.broker_id] = absence


RULES: Rules = {records.NoOpRecord: _no_op}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """All of them in one record."""
    if image.absences:
        yield _absences_record(image)


def _absences_record(image: MetadataImage) -> records.NoOpRecord:
    return records.NoOpRecord(
        absences=[
            records.BrokerAbsence(
                broker_id=broker_id,
                rack=absence.rack,
                elapsed_ms=absence.elapsed_ms,
                is_gone=absence.is_gone,
            )
            for broker_id, absence in sorted(image.absences.items())
        ]
    )
