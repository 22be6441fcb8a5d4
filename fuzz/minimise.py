"""A small corpus that reaches what the large one reaches.

Greedy: smallest inputs first, each kept when it reaches a branch or a feature that none before did;
then, from the kept ones, parts are dropped that nothing depends on. Run it after a long run and
commit `fuzz/corpus`.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

from fuzz import coverage, store
from fuzz.target import AFTER, REFUSED, Target

MOST_BYTES = 450_000
"""Of the whole corpus in base64, as it lies in the repository."""
LARGEST_BYTES = 2048
"""An input that is larger is not worth its place."""
GUIDES = (AFTER, REFUSED)


def reach(target: Target, entry: bytes) -> frozenset[Any]:
    """Everything that one input reaches by itself: branches as numbers, features as they are."""
    coverage.clear()
    features = target.run(entry)
    told = (each for each in features if not (isinstance(each, tuple) and each[0] in GUIDES))
    return coverage.reached_places() | frozenset(told)


def chosen(target: Target, entries: list[bytes]) -> list[bytes]:
    """Those that are needed, smallest first."""
    seen: set[Any] = set()
    kept: list[tuple[bytes, frozenset[Any]]] = []
    small = (each for each in set(entries) if len(each) <= LARGEST_BYTES)
    for entry in sorted(small, key=lambda each: (len(each), each)):
        found = reach(target, entry)
        if not found <= seen:
            seen |= found
            kept.append((entry, found))
    needed: Counter[Any] = Counter()
    for _, found in kept:
        needed.update(found)
    result = []
    for entry, found in kept:  # what later ones reach as well is not needed of earlier ones
        if all(needed[each] > 1 for each in found):
            needed.subtract(found)
        else:
            result.append(entry)
    return result


def main(targets: list[Target]) -> int:
    """Write each target's corpus anew."""
    total = 0
    for target in targets:
        entries = [*target.seeds(), *store.known(target.name)]
        kept = chosen(target, entries)
        path = store.CORPUS / f"{target.name}.b64"
        store.write(path, kept)
        total += path.stat().st_size
        print(f"{target.name}: {len(entries):,} inputs -> {len(kept):,}")
    if total > MOST_BYTES:
        print(f"{total:,} bytes are more than {MOST_BYTES:,}: leave rare features out")
        return 1
    return 0
