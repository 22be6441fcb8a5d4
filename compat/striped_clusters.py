"""Clusters drawn from a seed, and what each of two placers makes of them for the same chance.

`Placements.java` asks Kafka's class in its jar, `ours` asks the product's; both draw from
java.util.Random with the same seed, whose documented generator is that of the tests.
Racks are named by one digit: Kafka visits racks in the order of a HashMap, which for these names is
the order of the names, as ours is.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator, Sequence
from random import Random
from typing import Any

from tests.core.placement.java_random import JavaRandom

from anabranch.core.errors import ClientFault
from anabranch.core.placement.placer import Ask, UsableBroker, place
from anabranch.core.placement.striped import striped

CLUSTERS = 4_000
SEED = 7
MOST_BROKERS = 24
MOST_RACKS = 9
MOST_PARTITIONS = 60
GROUP = 250
"""Clusters that share a digest, so that a difference says where it is."""

Question = dict[str, Any]


def questions(count: int = CLUSTERS, seed: int = SEED) -> Iterator[Question]:
    """Clusters of up to MOST_BROKERS brokers, some fenced, in racks, without, or mixed; factors
    from 0 to one above what there is."""
    rng = Random(seed)
    for number in range(count):
        size = rng.randint(1, MOST_BROKERS)
        ids = rng.sample(range(200), size)
        racks: list[str | None] = [str(each) for each in range(1, rng.randint(1, MOST_RACKS) + 1)]
        kind = rng.randrange(4)
        labels = [None] if kind == 0 else [None, *racks] if kind == 1 else racks
        fenced_share = rng.choice((0.0, 0.0, 0.2, 0.6, 1.0))
        brokers = [[each, rng.choice(labels), rng.random() < fenced_share] for each in ids]
        factor = rng.choice((rng.randint(0, size + 1), min(size, 3)))
        partitions = rng.randint(1, MOST_PARTITIONS)
        yield {"seed": number, "partitions": partitions, "factor": factor, "brokers": brokers}


def ours(question: Question) -> Question:
    """What the product's placer gives, in the form of `Placements.java`."""
    brokers = [UsableBroker(*each) for each in question["brokers"]]
    ask = Ask(question["partitions"], question["factor"])
    try:
        rows = place(striped, brokers, ask, JavaRandom(question["seed"])).rows
    except ClientFault as refused:
        return {"error": refused.message}
    return {"rows": [list(row) for row in rows]}


def summary(answers: Sequence[Question]) -> list[Question]:
    """What was seen, short enough for a table: counts and a digest of every GROUP clusters."""
    found = []
    for first in range(0, len(answers), GROUP):
        group = answers[first : first + GROUP]
        known = [{key: each[key] for key in ("rows", "error") if key in each} for each in group]
        text = json.dumps(known, separators=(",", ":"))
        lists = sum(len(each.get("rows", ())) for each in group)
        refused = sum("error" in each for each in group)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        found.append({"from": first, "lists": lists, "refused": refused, "digest": digest})
    return found
