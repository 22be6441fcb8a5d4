"""The levels of features that the cluster uses (KIP-584). What levels mean: `features.py`."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire import metadata_records as records


def _feature_level(builder: ImageBuilder, record: records.FeatureLevelRecord) -> None:
    features = builder.changing("features")
    if record.feature_level:
        features[record.name] = record.feature_level
    elif record.name in features:
        del features[record.name]
    builder.features_changed = True


RULES: Rules = {records.FeatureLevelRecord: _feature_level}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every level by name."""
    for name, level in sorted(image.features.items()):
        yield records.FeatureLevelRecord(name=name, feature_level=level)
