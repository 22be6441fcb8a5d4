"""What the requests of tiering jobs share: calls of the coordinator, and what their faults are."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from anabranch.core.api.context import Broker
from anabranch.core.diskless.coordinator import Deposed
from anabranch.core.diskless.reads import ClaimsOf, FarRead
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.outcome import Cold, Outcome
from anabranch.core.remote.facts import TryEnded
from anabranch.core.tiering.claims import ClaimHeld, TieredBefore

LOST = StorageFault("the answer of the coordinator was lost; ask again")
NO_STORES = (
    "This broker has diskless.storage.system.enable=false: there are no diskless topics to tier. "
    "Set it to true, with diskless.storage.url and diskless.coordinator.url, on every broker and "
    "restart."
)
_CODES: tuple[tuple[type[StorageFault], ErrorCode], ...] = (
    (ClaimHeld, ErrorCode.CONCURRENT_TRANSACTIONS),
    (TieredBefore, ErrorCode.DUPLICATE_RESOURCE),
    (TryEnded, ErrorCode.FENCED_LEADER_EPOCH),
    (Deposed, ErrorCode.NOT_LEADER_OR_FOLLOWER),
)


def why_none(broker: Broker) -> tuple[ErrorCode, str] | None:
    """What a job is told by a broker that cannot make calls now, or that has no stores at all: to
    ask this one again is of no use."""
    if not broker.config.diskless_storage_system_enable:
        return ErrorCode.INVALID_REQUEST, NO_STORES
    why = broker.diskless.why_off
    return (ErrorCode.KAFKA_STORAGE_ERROR, why) if why else None


def after_call(
    broker: Broker, call: str, arguments: tuple[Any, ...], go_on: Callable[[Any], Outcome]
) -> Cold:
    """What `go_on` makes of a call of `TieringClaims`, or of the StorageFault that it raised."""
    number = broker.diskless.reading.count()
    read = FarRead(ClaimsOf(number, call, arguments))
    return Cold((read,), lambda _now_ms: go_on(broker.diskless.claimed.pop(number, LOST)))


def code_of(fault: StorageFault) -> ErrorCode:
    """What a job is told of a fault, beside its sentence."""
    for kind, code in _CODES:
        if isinstance(fault, kind):
            return code
    return ErrorCode.KAFKA_STORAGE_ERROR
