"""One question to every broker, each of which knows a share of the answer: its groups, say.

Rule kept: a broker that cannot answer keeps back its own share only, and who asks is told which
broker that is and why. Not here: questions about partitions (`partition_producers`).
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Generic, NamedTuple, TypeAlias, TypeVar

from anabranch.client.cluster import Cluster, may_help
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError

T = TypeVar("T")
PASS_OVER_SECONDS = 5.0
"""How long an error that may pass is waited for where who cannot answer may also be passed over: an
election takes less."""

Fault: TypeAlias = ApiError | ConnectionLost


class Shares(NamedTuple, Generic[T]):
    """What came of asking all brokers."""

    answers: dict[int, list[T]]
    """By broker id; a broker may stand here with some of its share, and below."""
    faults: dict[int, Fault]
    """The brokers that did not answer, or not wholly, and why."""


async def ask_every_broker(
    cluster: Cluster, ask: Callable[[int], Awaitable[tuple[list[T], Fault | None]]]
) -> Shares[T]:
    """Ask each broker for its share; `ask` gives what it told and, if that is not all, why.

    What may pass is waited for until the cluster's deadline, PASS_OVER_SECONDS at most; what may
    not is raised."""
    answers: dict[int, list[T]] = {}
    faults: dict[int, Fault] = {}

    async def attempt() -> None:
        if faults:
            await cluster.metadata([])
        if faults.keys() - cluster.brokers.keys():
            answers.clear()  # others have taken over what that broker had: they are asked again
        left = cluster.brokers.keys() - (answers.keys() - faults.keys())
        faults.clear()
        for broker_id in sorted(left):
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
    return Shares(answers, faults)


def said(fault: Fault, name: str) -> str:
    """A sentence that names what could not be asked and, where there is one, the code of its
    fault."""
    text = f"{fault.message} ({fault.code.name})" if isinstance(fault, ApiError) else str(fault)
    return text if name in text else f"{name}: {text}"
