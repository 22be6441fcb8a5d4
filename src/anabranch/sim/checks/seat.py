"""A node as the checks of logs see it: its copies, and what it knew until the event that ended.

Why: one event may bring several batches of metadata, and what a broker did between them was right
by what it knew then. Not here: judgements (`logs.py`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from anabranch.sim.checks.copies import Copy
from anabranch.sim.checks.model import Key

if TYPE_CHECKING:
    from anabranch.core.controller.image import MetadataImage
    from anabranch.sim.node import SimNode

MIN_IN_SYNC = "min.insync.replicas"
TOPIC, BROKER = 2, 4


class Seat:
    """A node and its copies. `live` are those that are hosted now."""

    __slots__ = ("broker", "copies", "earlier_image", "image", "live", "node", "offline")

    def __init__(self, node: SimNode) -> None:
        self.node = node
        self.copies: dict[Key, Copy] = {}
        self.live: list[Copy] = []
        self.broker: object = None
        self.image: MetadataImage | None = None
        self.earlier_image: MetadataImage | None = None
        """What it knew until this event: one event may bring several batches of metadata."""
        self.offline = 0

    def required(self, topic: str, replicas: int) -> int:
        """min.insync.replicas as the node knows it, or knew it until this event."""
        least = max(1, replicas)
        for image in (self.node.broker.image, self.earlier_image):
            if image is not None:
                own = image.config(TOPIC, topic).get(MIN_IN_SYNC)
                wanted = own or image.config(BROKER, "").get(MIN_IN_SYNC) or "1"
                least = min(least, int(wanted))
        return least
