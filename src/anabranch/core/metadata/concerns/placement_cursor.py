"""Where computed assignment goes on. A record of our own."""

from __future__ import annotations

from collections.abc import Iterator

from anabranch.core.metadata.builder import ImageBuilder, Rules
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.wire.own_records import PlacementCursorRecord


def _placement_cursor(builder: ImageBuilder, record: PlacementCursorRecord) -> None:
    builder.scalars["placement_cursor"] = record.cursor


RULES: Rules = {PlacementCursorRecord: _placement_cursor}


def snapshot(image: MetadataImage) -> Iterator[PlacementCursorRecord]:
    """The cursor, once something was placed."""
    if image.placement_cursor:
        yield PlacementCursorRecord(cursor=image.placement_cursor)
