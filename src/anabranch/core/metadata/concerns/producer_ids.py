"""Which producer ids were granted (KIP-730)."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire import metadata_records as records


def _producer_ids(builder: ImageBuilder, record: records.ProducerIdsRecord) -> None:
    builder.scalars["next_producer_id"] = record.next_producer_id


RULES: Rules = {records.ProducerIdsRecord: _producer_ids}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """The first id that was not granted."""
    if image.next_producer_id:
        yield records.ProducerIdsRecord(
            broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id
        )
