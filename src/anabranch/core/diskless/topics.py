"""Which topics are diskless. `diskless.enable` is written at creation, or once when a classic topic
has become diskless, and never taken away.

Rule kept: its text is read as every boolean is, for what reads as classic is deleted.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.metadata.image import RESOURCE_TOPIC
from anabranch.core.settings.setting import is_true

if TYPE_CHECKING:
    from collections.abc import Mapping

    from anabranch.core.metadata.image import MetadataImage

DISKLESS = "diskless.enable"
BEGINS = "diskless.start.offsets"
"""Of a topic that was classic: where each partition became diskless. Written with it, once."""


def is_diskless(image: MetadataImage, topic: str) -> bool:
    """Whether a topic's records lie in object storage."""
    return makes_diskless(image.config(RESOURCE_TOPIC, topic))


def begins_of(image: MetadataImage, topic: str) -> tuple[int, ...]:
    """Where the partitions of a topic became diskless; none of one that was created so."""
    text = image.config(RESOURCE_TOPIC, topic).get(BEGINS, "")
    return tuple(int(each) for each in text.split(",") if each.isdecimal())


def makes_diskless(own: Mapping[str, str]) -> bool:
    """Whether a topic that has these settings of its own is diskless."""
    return is_true(own.get(DISKLESS))
