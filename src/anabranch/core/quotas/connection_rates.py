"""How many connections a second an address may open (KIP-612).

Rule kept, as in Kafka: what is over the limit is not counted, and is closed only after it would
have been let in, so that a client that comes back at once gains nothing. Not here: how many may be
open (`server.listener`), rates of whole listeners.
"""

from __future__ import annotations

from collections import OrderedDict

from immutables import Map

from anabranch.core.quotas.limits import QuotasByEntity, address_limits
from anabranch.core.quotas.rates import Rate, Window

MOST_ADDRESSES = 20_000
"""Addresses whose connections are counted; the one that came longest ago is forgotten first."""


class ConnectionRates:
    """The connections of one node, by address."""

    def __init__(self, window: Window, most_addresses: int = MOST_ADDRESSES) -> None:
        self._window = window
        self._most = most_addresses
        self._quotas: QuotasByEntity = Map()
        self._limits: dict[str | None, float] = {}
        """By address, None for the default."""
        self._rates: OrderedDict[str, Rate] = OrderedDict()

    def follow(self, quotas: QuotasByEntity) -> None:
        """Take the quotas of the image."""
        if quotas is not self._quotas:
            self._quotas, self._limits = quotas, address_limits(quotas)

    def rest_ms(self, address: str, now_ms: int) -> int:
        """Count a connection; how long it is held before it is closed, 0 to let it in."""
        limit = self._limits.get(address, self._limits.get(None)) if self._limits else None
        if limit is None:
            return 0
        rate = self._rates.setdefault(address, Rate())
        self._rates.move_to_end(address)
        if len(self._rates) > self._most:
            self._rates.popitem(last=False)
        rate.record(1, now_ms, self._window)
        rest_ms = rate.rest_ms(limit, now_ms, self._window)
        if rest_ms > 0:
            rate.record(-1, now_ms, self._window)
        return min(rest_ms, self._window.sample_ms)
