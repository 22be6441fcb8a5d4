"""Which topics are diskless. `diskless.enable` is written at creation and never changes later."""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.core.metadata.image import RESOURCE_TOPIC

if TYPE_CHECKING:
    from anabranch.core.metadata.image import MetadataImage

DISKLESS = "diskless.enable"


def is_diskless(image: MetadataImage, topic: str) -> bool:
    """Whether a topic's records lie in object storage."""
    return image.config(RESOURCE_TOPIC, topic).get(DISKLESS) == "true"
