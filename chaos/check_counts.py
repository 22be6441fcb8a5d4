"""What is wrong with what Kafka Streams counted, exactly once, of the committed orders and lines.

What: these and the counts are read as committed when all is over. Rules kept: a word that is said n
times has the counts 1 to n, each once and in this order, as each count is written when a word is
read; of records that stand in one partition, those whose counts share a partition are counted in
the order in which they stand. Why that shows everything: the first word of a record is said once,
so its count tells whether the record was lost or read twice; words that every order says have
counts that depend on all that was counted before, and show a store that lost something. Not here:
whether orders (`check_transactions.py`) and lines (`check.py`) are right themselves.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping

from anabranch.sim.checks.violation import Violation
from chaos.history import parse_place
from chaos.transfers import COUNTED, COUNTS, Count, count_of, words_of

Shown = Mapping[tuple[str, int], str]
"""(partition, offset) -> value."""


def judge(truth: Shown) -> Iterator[Violation]:
    """Everything that is wrong with these counts."""
    said = Counter(word for _, value in _standing(truth, *COUNTED) for word in words_of(value))
    told: dict[str, list[int]] = defaultdict(list)
    for (at, offset), value in _standing(truth, COUNTS):
        count = count_of(value)
        if count is None or count.word not in said:
            found = {"partition": at, "offset": offset, "value": value}
            yield Violation("count-phantom", "A count of a word that was not said.", found)
        else:
            told[count.word].append(count.count)
    for word, times in sorted(said.items()):
        yield from _of_word(word, times, told[word])
    yield from _out_of_order(truth)


def counted(truth: Shown) -> int:
    """How many orders and lines were counted."""
    said = {words_of(value)[0] for _, value in _standing(truth, *COUNTED)}
    return len(said & {count.word for _, count in _counts(truth)})


def _standing(truth: Shown, *topics: str) -> list[tuple[tuple[str, int], str]]:
    """The records of these topics, as they stand."""
    return sorted(each for each in truth.items() if parse_place(each[0][0]).topic in topics)


def _counts(truth: Shown) -> list[tuple[str, Count]]:
    """The partition of each count, and the count, as they stand."""
    found = [(at, count_of(value)) for (at, _), value in _standing(truth, COUNTS)]
    return [(at, count) for at, count in found if count is not None]


def _of_word(word: str, times: int, counts: list[int]) -> Iterator[Violation]:
    told = {"word": word, "said": times}
    if missing := set(range(1, times + 1)).difference(counts):
        some = {"missing": len(missing), "first": min(missing)}
        yield Violation("not-counted", "A word was not counted.", {**told, **some})
    again = [count for count, often in Counter(counts).items() if often > 1 or count > times]
    if again:
        some = {"again": len(again), "first": min(again)}
        yield Violation("counted-twice", "A word was counted twice.", {**told, **some})
    if counts != sorted(counts):
        yield Violation("counted-late", "A later count stands before an earlier one.", told)


def _out_of_order(truth: Shown) -> Iterator[Violation]:
    """Of one partition, each record that is counted after one that stands behind it."""
    said = {words_of(value)[0]: place for place, value in _standing(truth, *COUNTED)}
    newest: dict[tuple[str, str], int] = {}
    for at, count in _counts(truth):
        if count.word in said:
            source, offset = said[count.word]
            before = newest.get((source, at), -1)
            if offset < before:
                told = {"record": f"{source}@{offset}", "in": at, "behind": before}
                yield Violation("counted-late", "A record was counted after a later one.", told)
            newest[source, at] = max(offset, before)
