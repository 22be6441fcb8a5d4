"""A process that commits one batch after another for a second: `writer.py PATH BROKER`.

It says `ready`, waits for a line, and prints the offsets that it got.
"""

import asyncio
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from coordinator_kit import CLUSTER, batch, placed

from anabranch.stores.coordinator.sqlite import SqliteCoordinator

SECONDS = 1.0


async def write(path: str, broker: int) -> list[int]:
    """The offsets of this process's batches."""
    on = await SqliteCoordinator.open(path, CLUSTER)
    await on.register(broker, 1)
    prepared = await on.prepare(broker, 1, 5000, 60_000)
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    sys.stdin.readline()
    offsets, until = [], time.monotonic() + SECONDS
    while time.monotonic() < until:
        answer = await on.commit(placed(prepared.pop(), batch(), broker=broker, epoch=1))
        offsets.append(answer.verdicts[0].base_offset)
    await on.close()
    return offsets


if __name__ == "__main__":
    sys.stdout.write(json.dumps(asyncio.run(write(sys.argv[1], int(sys.argv[2])))))
