"""When brokers were last heard from: the active controller's memory of heartbeats.

What: contact times by (broker id, broker epoch), and the offset at which a broker began its
controlled shutdown. Why not in the image: it is soft; a new controller starts with "heard just now"
for every unfenced broker. Rule kept: every `now_ms` here is of one clock, a steady one; expired
means strictly later than the timeout; an entry of an older epoch is dropped without fencing
anybody. Source: Kafka's BrokerHeartbeatTracker.
"""

from __future__ import annotations

from anabranch.core.controller.image import MetadataImage

CHECKS_IN_A_TIMEOUT = 8
"""A silent broker is found within 100 to 112.5 % of the session timeout."""
AFTER_A_HIT_MS = 10
"""One broker is fenced a check; after a hit the next check follows soon."""


class Sessions:
    """Who was heard from when. One a controller term."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.contact_ms: dict[tuple[int, int], int] = {}
        self.metadata_offsets: dict[int, int] = {}
        self.shutdown_offsets: dict[int, int] = {}

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """A new controller gives every unfenced broker a whole timeout."""
        for broker in image.brokers.values():
            if not broker.fenced:
                self.contact_ms[broker.broker_id, broker.epoch] = now_ms

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat or a registration came."""
        self.contact_ms[broker_id, epoch] = now_ms

    def forget(self, broker_id: int, epoch: int) -> None:
        """The broker is fenced: it has no session."""
        self.contact_ms.pop((broker_id, epoch), None)
        self.metadata_offsets.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)

    def forgive(self, deaf_ms: int, now_ms: int) -> None:
        """The controller itself did not run for so long: what it did not hear is no silence."""
        for key, contact_ms in self.contact_ms.items():
            self.contact_ms[key] = min(contact_ms + deaf_ms, now_ms)

    def valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether the broker's session is running."""
        contact_ms = self.contact_ms.get((broker_id, epoch))
        return contact_ms is not None and now_ms <= contact_ms + self.timeout_ms

    def expired(self, now_ms: int) -> tuple[int, int] | None:
        """The broker (id, epoch) that has been silent longest, beyond the timeout."""
        if not self.contact_ms:
            return None
        oldest = min(self.contact_ms, key=lambda key: (self.contact_ms[key], key))
        if now_ms <= self.contact_ms[oldest] + self.timeout_ms:
            return None
        return oldest

    def lowest_active_offset(self, image: MetadataImage) -> int | None:
        """The lowest metadata offset that an active broker reported, None without active ones."""
        offsets = [
            self.metadata_offsets.get(broker.broker_id, -1)
            for broker in image.brokers.values()
            if broker.active
        ]
        return min(offsets, default=None)

    @property
    def check_interval_ms(self) -> int:
        """How often `expired` should be asked."""
        return max(1, self.timeout_ms // CHECKS_IN_A_TIMEOUT)
