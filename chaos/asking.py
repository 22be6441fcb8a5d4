"""What an operator asks of the cluster while it is in trouble: one question, for a few seconds."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from anabranch.client.cluster import Cluster
from anabranch.core.errors import ApiError
from chaos import secure
from chaos.scene import Scene
from chaos.stores import Nothing

T = TypeVar("T")
ADMIN_SECONDS = 5.0


def ask(scene: Scene, question: Callable[[Cluster], Awaitable[T]]) -> T:
    """What an operator is answered within `ADMIN_SECONDS`. Raises Nothing when it is nothing."""

    async def asked() -> T:
        async with Cluster(
            scene.nodes.bootstrap, deadline_seconds=ADMIN_SECONDS, security=secure.own()
        ) as cluster:
            return await question(cluster)

    try:
        return asyncio.run(asked())
    except (ApiError, OSError) as problem:
        raise Nothing(str(problem)) from None
