"""The placers side by side: the table of docs/concepts/placement.md.

`.venv/bin/python scripts/placement_table.py` prints it; `--write` puts it into the page, and a test
keeps the two alike. The same topics are created one after the other by each placer on the same
clusters, with the same seed. What is counted:

- replicas, leaders: those of the busiest broker less those of the idlest;
- rack: partitions with more replicas in one rack than racks make necessary;
- pairs: pairs of brokers that share a partition, of those that there are: where a broker dies, its
  work falls to so many others;
- joins: replicas that `plan add` moves to a broker that joins, and those that would be elsewhere if
  everything were placed again by the same placer.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, combinations
from pathlib import Path
from random import Random

from anabranch.core.placement.layout import BrokerSite, Layout
from anabranch.core.placement.move_plans import fill
from anabranch.core.placement.placer import Ask, Loads, UsableBroker, place
from anabranch.core.placement.placers import PLACERS
from anabranch.core.types import TopicPartition

PAGE = Path(__file__).resolve().parents[1] / "docs" / "concepts" / "placement.md"
MARKED = re.compile(r"(<!-- placers -->\n)(.*?)(<!-- end of placers -->)", re.DOTALL)
SEED = 1
TOPICS = (6, 12, 1, 3, 30, 6, 12, 5, 24, 1)
"""Partitions of each topic; together 100."""
FACTOR = 3
NAMES = ("striped", "computed", "spread")
HEAD = (
    "| cluster, 100 partitions, RF 3 | placer | replicas | leaders | rack | pairs | joins |\n"
    "| --- | --- | --- | --- | --- | --- | --- |\n"
)

Row = tuple[int, ...]


@dataclass(frozen=True)
class Cluster:
    """Brokers 1, 2, 3 … in racks of these sizes; one rack without a name where there are none."""

    what: str
    racks: tuple[int, ...]
    has_racks: bool = True

    def brokers(self) -> list[UsableBroker]:
        """The brokers, rack after rack."""
        labels = [chr(ord("a") + at) for at, size in enumerate(self.racks) for _ in range(size)]
        return [
            UsableBroker(number, label if self.has_racks else None, False)
            for number, label in enumerate(labels, 1)
        ]

    def grown(self) -> list[UsableBroker]:
        """The same with one more, in the smallest rack."""
        smallest = chr(ord("a") + self.racks.index(min(self.racks)))
        new = UsableBroker(sum(self.racks) + 1, smallest if self.has_racks else None, False)
        return [*self.brokers(), new]


CLUSTERS = (
    Cluster("6 brokers, racks of 2, 2, 2", (2, 2, 2)),
    Cluster("9 brokers, racks of 5, 3, 1", (5, 3, 1)),
    Cluster("8 brokers, racks of 4, 4", (4, 4)),
    Cluster("10 brokers without racks", (10,), has_racks=False),
)


def created(name: str, brokers: Sequence[UsableBroker]) -> dict[TopicPartition, Row]:
    """All topics, one after the other, as a controller would have them."""
    rng, cursor = Random(SEED), 0
    replicas: Counter[int] = Counter()
    leaders: Counter[int] = Counter()
    found: dict[TopicPartition, Row] = {}
    for number, count in enumerate(TOPICS):
        ask = Ask(count, FACTOR, cursor=cursor, loads=Loads(replicas, leaders))
        made = place(PLACERS[name], brokers, ask, rng)
        cursor = made.cursor
        replicas.update(chain.from_iterable(made.rows))
        leaders.update(row[0] for row in made.rows)
        for index, row in enumerate(made.rows):
            found[TopicPartition(f"topic-{number}", index)] = row
    return found


def figures(name: str, cluster: Cluster) -> Iterator[str]:
    """The columns of a placer on a cluster."""
    brokers = cluster.brokers()
    ids = [broker.broker_id for broker in brokers]
    rack = {broker.broker_id: broker.rack for broker in brokers}
    found = created(name, brokers)
    rows = list(found.values())
    yield _apart(Counter(chain.from_iterable(rows)), ids)
    yield _apart(Counter(row[0] for row in rows), ids)
    needed = -(-FACTOR // len(cluster.racks))
    crowded = sum(max(Counter(rack[each] for each in row).values()) > needed for row in rows)
    yield str(crowded) if cluster.has_racks else "–"
    pairs = {pair for row in rows for pair in combinations(sorted(row), 2)}
    yield f"{len(pairs)} of {len(ids) * (len(ids) - 1) // 2}"
    again = created(name, cluster.grown())
    elsewhere = sum(len(set(again[place]) - set(row)) for place, row in found.items())
    yield f"{_moved(cluster, found)}, from scratch {elsewhere}"


def _apart(counts: Counter[int], ids: Sequence[int]) -> str:
    return str(max(counts[each] for each in ids) - min(counts[each] for each in ids))


def _moved(cluster: Cluster, found: dict[TopicPartition, Row]) -> int:
    sites = [BrokerSite(broker.broker_id, broker.rack) for broker in cluster.grown()]
    return len(fill(Layout(sites, found), [len(sites)]).moves)


def table() -> str:
    """The whole table."""
    lines = [
        f"| {cluster.what if name == NAMES[0] else ''} | `{name}` | "
        f"{' | '.join(figures(name, cluster))} |\n"
        for cluster in CLUSTERS
        for name in NAMES
    ]
    return HEAD + "".join(lines)


def main() -> int:
    """Print the table, or write it into the page."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0] if __doc__ else "")
    parser.add_argument("--write", action="store_true", help=f"into {PAGE.name}")
    if not parser.parse_args().write:
        print(table(), end="")
        return 0
    PAGE.write_text(MARKED.sub(lambda found: found[1] + table() + found[3], PAGE.read_text()))
    return 0


if __name__ == "__main__":
    sys.exit(main())
