"""In which rack a client is, and what it is shown of a diskless partition for that.

What: a client names its rack in its client id, `diskless_az=RACK` at the beginning or after a
comma, a space or `|`; where it does not, the map of its listener may
(`diskless.client.az.listener.map`). Such a client is shown the living replica in its rack as the
only one, which leads, so that it talks to a broker nearby: any broker serves a diskless partition.
Without one it is shown the full set with the dead ones offline, and a living leader, as every
other client. Rule kept: a rack that no registered broker is in is no rack of a client.

Source: decision 0059.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import NamedTuple

from anabranch.core.metadata.image import MetadataImage
from anabranch.core.placement.managed import rack_name
from anabranch.core.types import NO_LEADER

TOKEN = re.compile(r"(?:^|[,| ])diskless_az=([^,| ]+)")
NO_ZONE = ""
"""Of a client whose rack is not known."""


def zone_of(
    client_id: str | None, listener: str, by_listener: Sequence[str], racks: Collection[str]
) -> str:
    """The rack of a client; `by_listener` are pairs LISTENER:RACK."""
    named = TOKEN.search(client_id or "")
    if named is not None and named.group(1) in racks:
        return named.group(1)
    for pair in by_listener:
        name, _, rack = pair.partition(":")
        if name.strip() == listener and rack.strip() in racks:
            return rack.strip()
    return NO_ZONE


def racks_of(image: MetadataImage) -> dict[int, str]:
    """Broker -> rack, of registered brokers."""
    return {each.broker_id: rack_name(each.rack) for each in image.brokers.values()}


class Shown(NamedTuple):
    """What a client is shown of a diskless partition."""

    replicas: tuple[int, ...]
    leader: int
    is_local: bool


def shown(
    replicas: tuple[int, ...],
    leader: int,
    zone: str,
    racks: dict[int, str],
    lives: Callable[[int], bool],
) -> Shown:
    """Its living replica in the zone if there is one, else all with a living leader."""
    living = [each for each in replicas if lives(each)]
    local = [each for each in living if zone and racks.get(each) == zone]
    if local:
        chosen = leader if leader in local else local[0]
        return Shown((chosen,), chosen, True)
    if leader not in living:
        leader = living[0] if living else NO_LEADER
    return Shown(replicas, leader, False)
