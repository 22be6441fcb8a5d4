"""One question to every broker, each of which knows a share of the answer: its groups, say.

Rule kept: a broker that cannot answer keeps back its own share only, and who asks is told which
broker that is and why. Not here: questions about partitions (`partition_producers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from anabranch.client.cluster import Cluster, check, may_help
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.wire.messages.metadata import MetadataResponsePartition

T = TypeVar("T")
PASS_OVER_SECONDS = 5.0
"""How long a passing error is waited for before who cannot answer is passed over; an election takes
less."""

Fault: TypeAlias = ApiError | ConnectionLost


class Shares(NamedTuple, Generic[T]):
    """What came of asking all brokers."""

    told: list[T]
    """Of all brokers. A share that changed hands meanwhile may come from two; the later one, which
    counts, is from who has it now."""
    faults: dict[int, Fault]
    """The brokers that did not answer, or not wholly, and why."""


async def ask_every_broker(
    cluster: Cluster, ask: Callable[[int], Awaitable[tuple[list[T], Fault | None]]]
) -> Shares[T]:
    """Ask each broker for its share; `ask` gives what it told and, if that is not all, why.

    What may pass is waited for until the cluster's deadline, PASS_OVER_SECONDS at most; then all
    are asked again, since others may have taken over a share. What may not pass is raised."""
    answers: dict[int, list[T]] = {}
    faults: dict[int, Fault] = {}

    async def attempt() -> None:
        if faults:
            with suppress(ApiError, ConnectionLost):  # then those that are known are asked
                await cluster.metadata([])
        faults.clear()
        for broker_id in answers.keys() - cluster.brokers.keys():
            del answers[broker_id]
        for broker_id in sorted(cluster.brokers):
            try:
                answers[broker_id], fault = await ask(broker_id)
            except (ApiError, ConnectionLost) as raised:
                if not may_help(raised):
                    raise
                fault = raised
            if fault is not None:
                faults[broker_id] = fault
        for passing in faults.values():
            raise passing

    try:
        await cluster.retrying(attempt, seconds=PASS_OVER_SECONDS)
    except (ApiError, ConnectionLost) as fault:
        if fault not in faults.values():
            raise
    older_first = sorted(answers, key=lambda broker_id: (broker_id not in faults, broker_id))
    return Shares([each for broker_id in older_first for each in answers[broker_id]], faults)


def still_loading(code: int, *, of: str = "") -> ApiError | None:
    """Why a coordinator listed a part only: it still loads the rest. Raises what else it says; `of`
    names what was refused."""
    if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
        return ApiError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
    check(code, of=of)
    return None


async def coordinating(
    cluster: Cluster, topic: str, *, exists: bool
) -> list[MetadataResponsePartition]:
    """The partitions of a topic whose leaders are coordinators. Empty while there is none, or where
    the client may not ask. A broker that does not know the topic is believed at once, unless it
    `exists`, as what was listed shows: then its metadata is old."""
    nothing = {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.TOPIC_AUTHORIZATION_FAILED}

    async def attempt() -> list[MetadataResponsePartition]:
        try:
            return (await cluster.topic(topic)).partitions
        except ApiError as fault:
            if exists or fault.code not in nothing:
                raise
            return []

    try:
        return await cluster.retrying(attempt, seconds=PASS_OVER_SECONDS)
    except ApiError as fault:
        if fault.code in nothing:
            return []
        raise


def said(fault: Fault, name: str) -> str:
    """A sentence that names what could not be asked and, where there is one, the code of its
    fault."""
    text = f"{fault.message} ({fault.code.name})" if isinstance(fault, ApiError) else str(fault)
    return text if name in text else f"{name}: {text}"
