"""Offsets of a stream as its checkpoint has them.

    {"orders": {"0": 23, "1": 17},
     "#": {"version": 1, "ids": {"orders": "…"}, "fresh": true, "first": {"orders": {…}},
           "missing": {"payments": {…}}}}

The topics are written as Spark's Kafka source writes them, so that its checkpoints are understood
here; `#` cannot be the name of a topic. `ids` tell a topic from another one of the same name. Spark
does not keep where the first batch of a query began: a restart within it would begin at what is the
latest offset by then. So a `fresh` beginning is marked, and the end of the first batch says where
that batch began (`first`). `missing` says where to go on in partitions that were not there.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from anabranch.core.types import parse_topic_id, topic_id_text
from anabranch.pipelines.offset_ranges import Offsets, Place

VERSION = 1
OWN = "#"


class CheckpointError(Exception):
    """A checkpoint that this query cannot go on from; the text says why and what to do."""


@dataclass(frozen=True)
class StreamOffsets:
    """Where a stream stands: the next offset of each partition."""

    offsets: Offsets
    topic_ids: dict[str, bytes] = field(default_factory=dict)
    is_fresh: bool = False
    first: Offsets | None = None
    missing: Offsets = field(default_factory=dict)

    @cached_property
    def known(self) -> Offsets:
        """The next offsets, also of partitions that are missing."""
        return self.missing | self.offsets

    def to_json(self) -> dict[str, Any]:
        """What the checkpoint keeps."""
        own: dict[str, Any] = {
            "version": VERSION,
            "ids": {topic: topic_id_text(each) for topic, each in sorted(self.topic_ids.items())},
        }
        if self.is_fresh:
            own["fresh"] = True
        if self.first is not None:
            own["first"] = _nested(_sorted(self.first))
        if self.missing:
            own["missing"] = _nested(self.missing)
        return {**_nested(_sorted(self.offsets)), OWN: own}


def _sorted(offsets: Offsets) -> Offsets:
    return dict(sorted(offsets.items()))


def _nested(offsets: Offsets) -> dict[str, dict[str, int]]:
    nested: dict[str, dict[str, int]] = {}
    for (topic, partition), offset in offsets.items():
        nested.setdefault(topic, {})[str(partition)] = offset
    return nested


def stream_offsets(found: Mapping[str, Any]) -> StreamOffsets:
    """What a checkpoint says. Raises CheckpointError."""
    own = found.get(OWN, {})
    version = own.get("version", VERSION) if isinstance(own, dict) else None
    if version != VERSION:
        raise CheckpointError(
            f"The checkpoint was written in version {version} of the offsets; this package reads "
            f"version {VERSION}. Install the package that wrote it, or start again with another "
            "checkpointLocation."
        )
    try:
        first = own.get("first")
        return StreamOffsets(
            _flat({topic: parts for topic, parts in found.items() if topic != OWN}),
            {topic: bytes(parse_topic_id(text)) for topic, text in own.get("ids", {}).items()},
            bool(own.get("fresh")),
            None if first is None else _flat(first),
            _flat(own.get("missing", {})),
        )
    except (AttributeError, TypeError, ValueError):
        raise CheckpointError(
            "The checkpoint has offsets that are not this source's: it belongs to another query. "
            "Use another checkpointLocation."
        ) from None


def _flat(nested: Mapping[str, Mapping[str, Any]]) -> Offsets:
    return {
        Place(topic, int(partition)): int(offset)
        for topic, parts in nested.items()
        for partition, offset in parts.items()
    }
