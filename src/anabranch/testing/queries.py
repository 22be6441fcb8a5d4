"""Questions of a test to its cluster, asked as any client asks them.

What: `ask` runs some work with a client of its own and waits for it, on whatever thread it is
called, also inside a running event loop, which it then blocks. Rule kept: what the cluster refuses
is one `ClusterError` with the cluster's sentence.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from difflib import get_close_matches
from typing import TYPE_CHECKING, TypeVar

from anabranch.testing.nodes import ClusterError

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.testing.security import ClusterSecurity

T = TypeVar("T")

UNKNOWN_TOPIC_SECONDS = 1.0
"""Brokers follow the metadata within milliseconds; a busy machine takes longer."""
ASK_AGAIN_SECONDS = 0.05
SHOWN_TOPICS = 10


def ask(
    what: str,
    bootstrap: str,
    work: Callable[[Cluster], Awaitable[T]],
    timeout_seconds: float = 30.0,
    security: ClusterSecurity | None = None,
) -> T:
    """What `work` finds out. Raises ClusterError: "Cannot `what`: …"."""
    from anabranch.client.cluster import Cluster
    from anabranch.client.connection import ConnectionLost
    from anabranch.client.security import PLAINTEXT
    from anabranch.core.errors import ApiError

    async def run() -> T:
        secured = None if security is None else security.client
        async with Cluster(
            bootstrap, deadline_seconds=timeout_seconds, security=secured or PLAINTEXT
        ) as cluster:
            async with asyncio.timeout(timeout_seconds):
                return await work(cluster)

    try:
        return _apart(run)
    except ApiError as fault:
        raise ClusterError(f"Cannot {what}: {fault.message} ({fault.code.name})") from None
    except ConnectionLost as fault:
        raise ClusterError(f"Cannot {what}: {fault}") from None
    except TimeoutError:
        raise ClusterError(f"Cannot {what}: no answer in {timeout_seconds:g} seconds") from None


def _apart(run: Callable[[], Awaitable[T]]) -> T:
    """Run on a new loop, on another thread where this one has a loop that runs."""
    if asyncio._get_running_loop() is not None:
        with ThreadPoolExecutor(1) as thread:
            return thread.submit(lambda: _apart(run)).result()
    loop = asyncio.new_event_loop()  # not asyncio.run, which takes the thread's own loop away
    try:
        return loop.run_until_complete(run())
    finally:
        loop.run_until_complete(loop.shutdown_asyncgens())
        loop.run_until_complete(loop.shutdown_default_executor())
        loop.close()


async def check_topic(cluster: Cluster, name: str) -> None:
    """Raises ApiError with the topics that there are when one does not exist. One that a client has
    just created may be unknown to a broker for a moment, so it is asked for a while."""
    from anabranch.core.errors import ApiError, ErrorCode

    until = asyncio.get_running_loop().time() + UNKNOWN_TOPIC_SECONDS
    while True:
        known = [each.name or "" for each in (await cluster.metadata(None)).topics]
        if name in known:
            return
        if asyncio.get_running_loop().time() >= until:
            break
        await asyncio.sleep(ASK_AGAIN_SECONDS)
    raise ApiError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, _no_such_topic(name, known))


def _no_such_topic(name: str, known: Sequence[str]) -> str:
    near = get_close_matches(name, known, 1)
    if near:
        return f"there is no topic {name!r}; did you mean {near[0]!r}?"
    shown = ", ".join(sorted(each for each in known if not each.startswith("__"))[:SHOWN_TOPICS])
    return f"there is no topic {name!r}; the topics are: {shown or 'none'}"


async def behind(cluster: Cluster, topic: str | None, serving: Collection[int]) -> list[str]:
    """The partitions whose replicas are not all in sync on brokers that serve, as one broker sees
    it, each in a few words."""
    found = []
    for each in (await cluster.metadata(None if topic is None else [topic])).topics:
        if each.error_code:
            found.append(f"{each.name} is not known yet")
        for partition in each.partitions:
            in_sync = sorted(set(partition.isr_nodes) & set(serving))
            wanted = sorted(partition.replica_nodes)
            if in_sync != wanted or partition.leader_id < 0:
                found.append(
                    f"{each.name}-{partition.partition_index} has replicas {wanted}, in sync "
                    f"{in_sync}, leader {partition.leader_id}"
                )
    return found
