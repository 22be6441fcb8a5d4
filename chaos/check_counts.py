"""What is wrong with what Kafka Streams counted, exactly once, of the committed orders.

What: orders and counts are both read as committed when all is over. Rules kept: a word that orders
say n times has the counts 1 to n, each once and in this order, as each count is written when a word
is read; of orders that stand in one partition, those whose counts share a partition are counted in
the order in which they stand. Why that shows everything: the name of a transaction is a word that
is said once, so its count tells whether its order was lost or read twice; words that every order
says have counts that depend on all that was counted before, and show a store that lost something.
Not here: whether orders are right themselves (`check_transactions.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from anabranch.sim.checks.violation import Violation
from chaos.history import parse_place
from chaos.transfers import COUNTS, ORDERS, Count, count_of, entry_of, words_of

Shown = Mapping[tuple[str, int], str]
"""(partition, offset) -> value."""


def judge(truth: Shown) -> Iterator[Violation]:
    """Everything that is wrong with the counts of these orders."""
    said = Counter(word for _, value in _standing(truth, ORDERS) for word in words_of(value))
    told: dict[str, list[int]] = defaultdict(list)
    for (at, offset), value in _standing(truth, COUNTS):
        count = count_of(value)
        if count is None or count.word not in said:
            found = {"partition": at, "offset": offset, "value": value}
            yield Violation("count-phantom", "A count of a word that no order says.", found)
        else:
            told[count.word].append(count.count)
    for word, times in sorted(said.items()):
        yield from _of_word(word, times, told[word])
    yield from _out_of_order(truth)


def counted(truth: Shown) -> int:
    """How many orders were counted."""
    orders = {words_of(value)[0] for _, value in _standing(truth, ORDERS)}
    return len(orders & {count.word for _, count in _counts(truth)})


def _standing(truth: Shown, topic: str) -> list[tuple[tuple[str, int], str]]:
    """The records of a topic, as they stand."""
    return sorted(each for each in truth.items() if parse_place(each[0][0]).topic == topic)


def _counts(truth: Shown) -> list[tuple[str, Count]]:
    """The partition of each count, and the count, as they stand."""
    found = [(at, count_of(value)) for (at, _), value in _standing(truth, COUNTS)]
    return [(at, count) for at, count in found if count is not None]


def _of_word(word: str, times: int, counts: list[int]) -> Iterator[Violation]:
    told = {"word": word, "said": times}
    if missing := set(range(1, times + 1)).difference(counts):
        some = {"missing": len(missing), "first": min(missing)}
        yield Violation("not-counted", "A word of an order was not counted.", {**told, **some})
    again = [count for count, often in Counter(counts).items() if often > 1 or count > times]
    if again:
        some = {"again": len(again), "first": min(again)}
        yield Violation("counted-twice", "A word of an order was counted twice.", {**told, **some})
    if counts != sorted(counts):
        yield Violation("counted-late", "A later count stands before an earlier one.", told)


def _out_of_order(truth: Shown) -> Iterator[Violation]:
    """Of one partition of orders, each that is counted after one that stands behind it."""
    orders = {
        words_of(value)[0]: place
        for place, value in _standing(truth, ORDERS)
        if entry_of(value) is not None
    }
    newest: dict[tuple[str, str], int] = {}
    for at, count in _counts(truth):
        if count.word in orders:
            source, offset = orders[count.word]
            before = newest.get((source, at), -1)
            if offset < before:
                told = {"order": f"{source}@{offset} {count.word}", "in": at, "behind": before}
                yield Violation("counted-late", "An order was counted after a later one.", told)
            newest[source, at] = max(offset, before)
