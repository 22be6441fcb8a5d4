"""Applying metadata records to an image: the only way the cluster's state changes.

What: `replay_batch` turns an image and the records of one batch into the next image and the delta.
Why: controller, brokers, simulator and dump tools run the same few functions, so they cannot come
to differ. Rule kept: the cost is that of the records, never that of what exists; a record that does
not fit the image raises `Bug`, because committed records are facts and must fit. Sources: KIP-500,
KIP-631. Not here: what each record does (`concerns/`).
"""

from __future__ import annotations

from collections.abc import Iterable

from anabranch.core.errors import Bug
from anabranch.core.metadata.builder import ImageBuilder
from anabranch.core.metadata.concerns.table import RULES
from anabranch.core.metadata.image import MetadataDelta, MetadataImage
from anabranch.core.wire.metadata_records import MetadataRecord


def replay(image: MetadataImage, record: MetadataRecord) -> MetadataImage:
    """The image after one record, which takes the next offset."""
    return replay_batch(image, (record,), image.offset + 1, image.epoch)[0]


def replay_batch(
    image: MetadataImage, batch: Iterable[MetadataRecord], offset: int, epoch: int
) -> tuple[MetadataImage, MetadataDelta]:
    """The image after a batch whose last record has `offset`, and what the batch touched."""
    builder = ImageBuilder(image)
    for record in batch:
        rule = RULES.get(type(record))
        if rule is None:
            raise Bug(f"no rule replays {type(record).__name__}")
        rule(builder, record)
    return builder.finish(offset, epoch)


def everything(image: MetadataImage) -> MetadataDelta:
    """The delta from nothing to the image: for whoever begins with a whole one."""
    topics = sorted(image.topics_by_id.items())
    return MetadataDelta(
        created_topics=tuple(topic_id for topic_id, _ in topics),
        changed_partitions={topic_id: tuple(topic.partitions) for topic_id, topic in topics},
        changed_configs=frozenset(image.configs),
        changed_brokers=frozenset(image.brokers),
        changed_tokens=frozenset(image.tokens),
        features_changed=bool(image.features),
    )
