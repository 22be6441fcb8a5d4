"""Transactions that one process writes and another one ends.

    in a task      producer = TransactionalProducer(cluster, "job-7-0"); init, begin, produce
                   prepared = await producer.prepare()    # acknowledged, and not visible
    elsewhere      await end_prepared(cluster, prepared, commits=True)

Why: a transaction stays open when its producer's connection ends, and EndTxn asks for its name, id
and epoch only. Who knows these may therefore end it, with brokers of every version; two-phase
commit (KIP-939), which would do without a limit of time, is in no released broker. Rules kept: the
coordinator aborts what is not ended within the transaction's timeout, and an end is then refused
and told; `settle` ends what others left open, and returns when nothing of it is undecided.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from typing import NamedTuple, TypeVar

from anabranch.client.cluster import Cluster
from anabranch.client.transaction_requests import Identity, TransactionRequests
from anabranch.client.transactions import describe_transaction, list_transactions
from anabranch.core.errors import ClientFault, ErrorCode

T = TypeVar("T")
ONGOING = "Ongoing"
UNDER_WAY = (ONGOING, "PrepareCommit", "PrepareAbort", "PrepareEpochFence")
AT_A_TIME = 32
"""Transactions that are ended at once: the answers take a coordinator's log some milliseconds."""
SETTLING_TIMEOUT_MS = 60_000


class Prepared(NamedTuple):
    """A transaction whose records are all acknowledged."""

    transactional_id: str
    producer_id: int
    producer_epoch: int
    is_implicit: bool
    """Whether it was written in the newer flow (KIP-890): the same one ends it."""


async def end_prepared(cluster: Cluster, prepared: Prepared, *, commits: bool) -> None:
    """Commit or abort; the same end again is answered as before. Raises ApiError for a transaction
    that was ended otherwise, ConnectionLost where no coordinator answers."""
    requests = TransactionRequests(cluster, prepared.transactional_id, _Retrying(cluster))
    requests.is_implicit = prepared.is_implicit
    await requests.end(Identity(prepared.producer_id, prepared.producer_epoch), commits=commits)


async def check_open(cluster: Cluster, prepared: Prepared) -> None:
    """Raise ClientFault for a transaction that can no longer be committed, or is already."""
    found = await describe_transaction(cluster, prepared.transactional_id)
    who = (prepared.producer_id, prepared.producer_epoch)
    if found.state != ONGOING or (found.producer_id, found.producer_epoch) != who:
        raise ClientFault(
            ErrorCode.INVALID_TXN_STATE,
            f"The transaction of {prepared.transactional_id} is no longer open: it took longer "
            "than its timeout, or another producer took its id over.",
        )


async def settle(cluster: Cluster, prefix: str, *, but: str | None = None) -> list[str]:
    """Have every transaction of ids that begin with `prefix` be over, those that are not decided
    aborted, and their producers fenced; ids that begin with `but` are left alone. The ids. Raises
    ApiError or ConnectionLost where one coordinator does not answer, as it may have some."""
    found = await list_transactions(cluster, states=UNDER_WAY)
    for fault in found.faults.values():
        raise fault
    ids = [each.transactional_id for each in found.ids]
    ids = [each for each in ids if each.startswith(prefix)]
    ids = [each for each in ids if but is None or not each.startswith(but)]

    async def fence(transactional_id: str) -> None:
        requests = TransactionRequests(cluster, transactional_id, _Retrying(cluster))
        await requests.initialize(SETTLING_TIMEOUT_MS, Identity())

    await each_of(ids, fence)
    return ids


async def each_of(items: Iterable[T], work: Callable[[T], Awaitable[None]]) -> None:
    """Work on all, some at a time. What fails first is raised when all were tried."""
    gate = asyncio.Semaphore(AT_A_TIME)

    async def one(item: T) -> None:
        async with gate:
            await work(item)

    outcomes = await asyncio.gather(*map(one, items), return_exceptions=True)
    for each in outcomes:
        if isinstance(each, BaseException):
            raise each


def _retrying(cluster: Cluster) -> _Retrying:
    return _Retrying(cluster)


class _Retrying:
    """Attempts within the cluster's deadline."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def __call__(self, attempt: Callable[[], Awaitable[T]], what: str, /) -> T:
        return await self._cluster.retrying(attempt)
