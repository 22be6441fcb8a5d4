"""How many connections single addresses may have: `max.connections.per.ip.overrides`, looked up.

What: the setting names addresses and hosts. A host's addresses are asked of the name service when
the setting changes, each of them has the host's limit, and what the setting said before holds until
then. A host without an answer keeps the addresses that it had, and is asked for again. Source:
Kafka's ConnectionQuotas, which takes the first address alone. Rule kept: neither the loop nor a
stop waits for a name service. Not here: who is let in (`listener.py`).
"""

from __future__ import annotations

import asyncio
import ipaddress
import socket
from collections.abc import Callable, Mapping
from contextlib import suppress
from threading import Thread
from typing import Any

from anabranch.core.settings.validation import PER_ADDRESS, limits_by_address
from anabranch.core.types import NEVER_MS
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger

LOG = logger("listener")

RETRY_MS = 10_000
"""When hosts without an address are asked for again."""


class AddressLimits:
    """The limits by address, as the setting had them when it was followed last."""

    def __init__(self) -> None:
        self._text = ""
        self._by_address: dict[str, int] = {}
        self._addresses: dict[str, list[str]] = {}
        """Of each host, as they were told last."""
        self._told: set[str] = set()
        """Hosts of which it was said that they have no address."""
        self._due_ms = NEVER_MS
        self._lookup: asyncio.Task[None] | None = None

    def of(self, address: str) -> int | None:
        """How many connections that address may have; None when the setting does not name it."""
        return self._by_address.get(address)

    def follow(self, text: str) -> None:
        """Take the setting as it is now; called again from time to time."""
        if text == self._text and steady_ms() < self._due_ms:
            return
        self._text, self._due_ms = text, NEVER_MS
        self.stop()
        limits = limits_by_address(text) or {}
        known = {written(host): most for host, most in limits.items() if written(host)}
        names = {host: most for host, most in limits.items() if not written(host)}
        if not names:
            self._by_address = known
            return
        self._by_address.update(known)
        self._lookup = asyncio.get_running_loop().create_task(self._look_up(names, known))

    def stop(self) -> None:
        """Look nothing up any more."""
        if self._lookup is not None:
            self._lookup.cancel()

    async def _look_up(self, names: Mapping[str, int], known: Mapping[str, int]) -> None:
        found: dict[str, int] = {}
        failed = set()
        for host, most in names.items():
            try:
                self._addresses[host] = await addresses_of(host)
            except (OSError, UnicodeError) as fault:
                failed.add(host)
                if host not in self._told:
                    why = f"{PER_ADDRESS} has no effect for it: {fault}"
                    LOG.warning("a host has no address", host=host, why=why)
            found.update(dict.fromkeys(self._addresses.get(host, ()), most))
        self._by_address = {**found, **known}
        self._told = failed
        self._due_ms = steady_ms() + RETRY_MS if failed else NEVER_MS


def written(host: str) -> str:
    """An address as sockets write it; "" for the name of a host."""
    try:
        return str(ipaddress.ip_address(host.removeprefix("[").removesuffix("]")))
    except ValueError:
        return ""


async def addresses_of(host: str) -> list[str]:
    """All addresses of a host; the case of its letters counts for nothing. Raises OSError.

    In a thread of its own: one of the loop's would be waited for when the node stops."""
    loop = asyncio.get_running_loop()
    answer: asyncio.Future[list[str]] = loop.create_future()

    def tell(settle: Callable[[Any], None], what: Any) -> None:
        if not answer.done():
            settle(what)

    def look() -> None:
        settle: Callable[[Any], None] = answer.set_result
        what: Any
        try:
            found = socket.getaddrinfo(host, None, type=socket.SOCK_STREAM)
            what = [str(address[0]) for *_, address in found]
        except (OSError, UnicodeError) as fault:
            settle, what = answer.set_exception, fault
        with suppress(RuntimeError):  # the loop has ended meanwhile
            loop.call_soon_threadsafe(tell, settle, what)

    Thread(target=look, name="name-service", daemon=True).start()
    return await answer
