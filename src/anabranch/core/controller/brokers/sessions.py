"""When brokers were last heard from: the active controller's memory of heartbeats.

What: contact times by (broker id, broker epoch), the offset at which a broker began its controlled
shutdown, and who is suspected: fenced, but not yet silent for a whole timeout. Why not in the
image: it is soft; a new controller starts with "heard just now" for every unfenced broker, and
suspects every fenced one, since it cannot know by what it was fenced. Rule kept: every `now_ms`
here is of one clock, a steady one; expired means strictly later than the timeout; an entry of an
older epoch is dropped without fencing anybody. Source: Kafka's BrokerHeartbeatTracker.
"""

from __future__ import annotations

from anabranch.core.metadata.image import MetadataImage

CHECKS_IN_A_TIMEOUT = 8
"""A silent broker is found within 100 to 112.5 % of the session timeout."""
AFTER_A_HIT_MS = 10
"""One broker is fenced a check; after a hit the next check follows soon."""

Registered = tuple[int, int]
"""Broker id and broker epoch."""


class Sessions:
    """Who was heard from when. One a controller term."""

    def __init__(self, timeout_ms: int) -> None:
        self.timeout_ms = timeout_ms
        self.contact_ms: dict[Registered, int] = {}
        self._contacts = 0
        self._numbers: dict[Registered, int] = {}
        """The number of each one's last contact: an order that no clock is too coarse for."""
        self.suspected_ms: dict[Registered, int] = {}
        """Fenced without a whole timeout of silence: last contact, or the term's begin."""
        self.unheard: set[Registered] = set()
        """Unfenced and not heard from in this term."""
        self.offline_folders: dict[int, tuple[int, frozenset[bytes]]] = {}
        """Broker epoch, and the folders that failed since that registration, as heartbeats say."""
        self.closed: set[Registered] = set()
        """Its connection closed, and nothing was heard from it since."""
        self.gone: set[Registered] = set()
        """Nobody, or another, answered at its address since it was out of touch."""
        self.metadata_offsets: dict[int, int] = {}
        self.shutdown_offsets: dict[int, int] = {}
        self.may_stop: dict[int, int] = {}
        """Broker id and the epoch under which it was permitted to stop, the last time."""

    def begin(self, image: MetadataImage, now_ms: int) -> None:
        """A new controller gives every unfenced broker a whole timeout."""
        for broker in image.brokers.values():
            key = (broker.broker_id, broker.epoch)
            if broker.fenced:
                self.suspected_ms[key] = now_ms
            else:
                self.contact_ms[key] = now_ms
                self.unheard.add(key)

    def heard(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat or a registration came."""
        self.contact_ms[broker_id, epoch] = now_ms
        self._contacts += 1
        self._numbers[broker_id, epoch] = self._contacts
        self._in_touch((broker_id, epoch))
        for key in [key for key in self.suspected_ms if key[0] == broker_id]:
            del self.suspected_ms[key]

    def _in_touch(self, registered: Registered) -> None:
        for absent in (self.unheard, self.closed, self.gone):
            absent.discard(registered)

    def hung_up(self, broker_id: int, epoch: int) -> None:
        """The connection on which it was heard has closed."""
        if (broker_id, epoch) in self.contact_ms:
            self.closed.add((broker_id, epoch))

    def is_out_of_touch(self, broker_id: int, epoch: int) -> bool:
        """Whether nothing says that it lives: never heard in this term, or not since its connection
        closed."""
        registered = broker_id, epoch
        return registered in self.unheard or registered in self.closed

    def found_gone(self, broker_id: int, epoch: int) -> None:
        """Whoever was out of touch does not answer at its address."""
        if self.is_out_of_touch(broker_id, epoch):
            self.gone.add((broker_id, epoch))

    def hear_again(self, broker_id: int, epoch: int, now_ms: int) -> None:
        """A heartbeat came that may not be answered: a running session goes on, none begins."""
        if (broker_id, epoch) in self.contact_ms:
            self.contact_ms[broker_id, epoch] = now_ms
            self.closed.discard((broker_id, epoch))
            self.gone.discard((broker_id, epoch))

    def go_on(self, before: Sessions, node_id: int) -> None:
        """This term follows `before` and no other controller was active in between: who was
        silent still is. But not this node's own broker, which looked for a controller elsewhere
        meanwhile."""
        for key in self.unheard & before.contact_ms.keys():
            if key[0] != node_id:
                self.contact_ms[key] = before.contact_ms[key]

    def contact_number(self, broker_id: int, epoch: int) -> int:
        """Which of all contacts of this term was the broker's last one, 0 for none."""
        return self._numbers.get((broker_id, epoch), 0)

    def is_offline(self, broker_id: int, epoch: int, folder: bytes | None) -> bool:
        """Whether that folder of the broker failed in its present life."""
        known_epoch, folders = self.offline_folders.get(broker_id, (epoch, frozenset()))
        return known_epoch == epoch and folder in folders

    def has_read(self, broker_id: int, offset: int) -> None:
        """A broker with a session asks for what follows `offset`: it has that, long before its next
        heartbeat says so. A broker that shuts down need then not wait for all the heartbeats."""
        known = self.metadata_offsets.get(broker_id)
        if known is not None and offset > known:
            self.metadata_offsets[broker_id] = offset

    def forget(self, broker_id: int, epoch: int) -> None:
        """The broker is fenced: it has no session."""
        self.contact_ms.pop((broker_id, epoch), None)
        self._numbers.pop((broker_id, epoch), None)
        self._in_touch((broker_id, epoch))
        self.metadata_offsets.pop(broker_id, None)
        self.shutdown_offsets.pop(broker_id, None)

    def is_stopping(self, broker_id: int, epoch: int) -> bool:
        """Whether the broker was permitted to stop, so that what it said before counts no more."""
        return self.may_stop.get(broker_id) == epoch

    def suspect(self, broker_id: int, epoch: int) -> None:
        """The broker is fenced by a hint: it has no session, and silence has not spoken yet."""
        contact_ms = self.contact_ms.get((broker_id, epoch))
        self.forget(broker_id, epoch)
        if contact_ms is not None:
            self.suspected_ms[broker_id, epoch] = contact_ms

    @property
    def suspects(self) -> frozenset[int]:
        """Ids of brokers whose absence may not yet cost records."""
        return frozenset(broker_id for broker_id, _ in self.suspected_ms)

    def forgive(self, deaf_ms: int, now_ms: int) -> None:
        """The controller itself did not run for so long: what it did not hear is no silence."""
        for times in (self.contact_ms, self.suspected_ms):
            for key, contact_ms in times.items():
                times[key] = min(contact_ms + deaf_ms, now_ms)

    def valid(self, broker_id: int, epoch: int, now_ms: int) -> bool:
        """Whether the broker's session is running."""
        contact_ms = self.contact_ms.get((broker_id, epoch))
        return contact_ms is not None and now_ms <= contact_ms + self.timeout_ms

    def expired(self, now_ms: int) -> Registered | None:
        """The broker (id, epoch) that has been silent longest, beyond the timeout."""
        return self._over(self.contact_ms, now_ms)

    def confirmed(self, now_ms: int) -> Registered | None:
        """The suspected broker whose silence has lasted a whole timeout by now."""
        return self._over(self.suspected_ms, now_ms)

    def _over(self, times: dict[Registered, int], now_ms: int) -> Registered | None:
        if not times:
            return None
        oldest = min(times, key=lambda key: (times[key], key))
        return oldest if now_ms > times[oldest] + self.timeout_ms else None

    def next_end_ms(self, now_ms: int) -> int:
        """When to ask again whose session is over: at the earliest end, and never later than a
        check interval from now."""
        ends = [
            min(times.values()) + self.timeout_ms + 1
            for times in (self.contact_ms, self.suspected_ms)
            if times
        ]
        return max(now_ms + 1, min([*ends, now_ms + self.check_interval_ms]))

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
