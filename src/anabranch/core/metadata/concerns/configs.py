"""Settings of topics, brokers and other resources."""

from __future__ import annotations

from collections.abc import Iterator

from immutables import Map

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire import metadata_records as records


def _config(builder: ImageBuilder, record: records.ConfigRecord) -> None:
    key = (int(record.resource_type), record.resource_name)
    configs = builder.changing("configs")
    values = configs.get(key, Map())
    if record.value is not None:
        configs[key] = values.set(record.name, record.value)
    elif record.name in values:
        remaining = values.delete(record.name)
        if remaining:
            configs[key] = remaining
        else:
            del configs[key]
    builder.configs.add(key)


RULES: Rules = {records.ConfigRecord: _config}


def snapshot(image: MetadataImage) -> Iterator[records.MetadataRecord]:
    """Every value that is set."""
    for (resource_type, resource_name), values in sorted(image.configs.items()):
        for name, value in sorted(values.items()):
            yield records.ConfigRecord(
                resource_type=resource_type, resource_name=resource_name, name=name, value=value
            )
