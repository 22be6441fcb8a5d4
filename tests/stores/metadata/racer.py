"""A process that takes the lease and appends, again and again: `racer.py URL HOLDER ROUNDS`."""

import asyncio
import sys

from anabranch.core.metadata.store import Committed, StoredBatch
from anabranch.stores.metadata.engines import open_store


async def race(url: str, holder: int, rounds: int) -> int:
    """How many appends were committed."""
    store = await open_store(url)
    committed = 0
    for _ in range(rounds):
        lease = await store.take_lease(await store.lease(), holder, f"node-{holder}", "")
        if lease is None:
            continue
        end = (await store.end()).end_offset
        batch = StoredBatch(end, end + 1, lease.epoch, b"x")
        answer = await store.append(lease, end, [batch])
        committed += isinstance(answer, Committed)
    await store.close()
    return committed


if __name__ == "__main__":
    sys.stdout.write(str(asyncio.run(race(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))))
