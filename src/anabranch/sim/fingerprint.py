"""What schedules did, as one line a seed: `python -m anabranch.sim.fingerprint SEED… > FILE`.

What: a digest over every event with its time and process, every draw, what clients saw, what the
disks hold, marks and losses. Why: a change that shall make schedules faster, or the code clearer,
must leave every schedule as it is; two such files, from before and after, then have no difference.
The digest of a trace alone sees less: only what is told there. `200-239` stands for a range.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterable, Iterator
from hashlib import blake2b
from typing import TYPE_CHECKING

from anabranch.sim.life import draw_plan
from anabranch.sim.schedule import Run
from anabranch.sim.trace import Trace

if TYPE_CHECKING:
    from anabranch.sim.disk import SimDisk
    from anabranch.sim.processes import Process

DIGEST_BYTES = 12


def fingerprint(seed: int) -> str:
    """A seed's line: its violation, counts, and digests of events, of draws and of what is left."""
    run = Run(draw_plan(seed), Trace())
    events = _count_events(run)
    violation, _ = run.go()
    outcome = run.outcome(violation, "")
    drawn = [(name, stream.getstate()) for name, stream in sorted(run.world.streams.items())]
    counts = (outcome.operations, outcome.faults, outcome.events, outcome.digest)
    ended = _digest(_left_by(run))
    run.let_go()
    words = (seed, violation or "ok", *counts, events.hexdigest(), _digest([repr(drawn)]), ended)
    return " ".join(map(str, words))


def _count_events(run: Run) -> blake2b:
    """A digest that takes each event of the run: when it was, and whose."""
    world, digest = run.world, blake2b(digest_size=DIGEST_BYTES)
    inner = world.ended

    def ended(process: Process | None) -> None:
        digest.update(f"{world.now_us} {process and process.name}\n".encode())
        if inner is not None:
            inner(process)

    world.ended = ended
    return digest


def _left_by(run: Run) -> Iterator[str]:
    """What clients saw, and what the cluster is like at the end."""
    yield run.history.digest()
    yield repr(run.history.thrown)
    if run.diskless is not None:
        yield run.diskless.clients.history.digest()
    if run.transactions is not None:
        told = run.transactions.history
        yield repr((told.transactions, told.starts, told.reads, told.final_offsets))
    yield repr((sorted(run.suite.marks.items()), sorted(run.suite.losses.items())))
    for node in run.cluster.nodes.values():
        yield repr((node.name, node.state.value, node.life, node.image.offset))
        for replica in node.broker.partitions:
            log = replica.log
            yield repr((replica.topic_partition, log.start_offset, log.end_offset))
            yield repr((replica.leader_epoch, replica.in_sync_replicas, replica.high_watermark))
        yield from _content(node.disk)
        yield from _content(node.metadata_disk)


def _content(disk: SimDisk) -> Iterator[str]:
    yield repr((disk.calls, sorted(disk.stored_names)))
    for name, inode in sorted(disk.names.items()):
        yield repr((name, inode and (inode.seen, inode.stored)))


def _digest(texts: Iterable[str]) -> str:
    digest = blake2b(digest_size=DIGEST_BYTES)
    for text in texts:
        digest.update(text.encode())
    return digest.hexdigest()


def _seeds(words: Iterable[str]) -> Iterator[int]:
    for word in words:
        first, _, last = word.partition("-")
        yield from range(int(first), int(last or first) + 1)


def main() -> None:
    """Print the lines."""
    parser = argparse.ArgumentParser(description="What schedules did, as one line a seed.")
    parser.add_argument("seeds", nargs="+", metavar="SEED", help="a seed, or a range: 200-239")
    for seed in _seeds(parser.parse_args().seeds):
        sys.stdout.write(f"{fingerprint(seed)}\n")
        sys.stdout.flush()


if __name__ == "__main__":
    main()
