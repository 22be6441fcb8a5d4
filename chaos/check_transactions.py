"""What is wrong with what transactional clients did, and what readers of committed records saw.

What: the truth is what one reader of committed records found at the end, when all was over. Against
it are held: what each transfer was told, what other readers were shown while everything failed, and
the receipts of each group of processors. Rules kept: a transaction whose outcome no client knows
may be there or not, but whole; amounts of all that is there add up to 0; each committed order has
exactly one receipt of each group. Not here: writing histories (`clients_transactions.py`), what
Kafka Streams counted (`check_counts.py`).
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from typing import Any

from anabranch.sim.checks.violation import Violation
from chaos import check_counts
from chaos.history import parse_place
from chaos.transfers import COUNTS, ORDERS, PARTS, RECEIPTS, entry_of

VERDICT = "verdict"

Shown = dict[tuple[str, int], str]
"""(partition, offset) -> value."""


class Transactions:
    """Gathers the lines of one run, and judges them."""

    def __init__(self) -> None:
        self.outcomes: dict[str, str] = {}
        self._truth: Shown = {}
        self._shown: dict[str, Shown] = defaultdict(dict)
        """Reader -> what it was shown while the run went on."""
        self._held_back: list[Mapping[str, Any]] = []
        self._groups: set[str] = set()
        self._is_counting = False
        """Whether Kafka Streams took part."""

    @property
    def count(self) -> int:
        """Transfers that are there."""
        return len(self._parts())

    @property
    def counted(self) -> int:
        """Orders and lines that Kafka Streams counted."""
        return check_counts.counted(self._truth)

    def take(self, line: Mapping[str, Any], role: str) -> None:
        """One line, of a client with this role."""
        op = line["op"]
        if op == "transaction":
            self.outcomes[line["name"]] = line["outcome"]
        elif op == "held-back":
            self._held_back.append(line)
        elif op == "processed":
            self._groups.add(line["group"])
        elif op == "counting":
            self._is_counting = True
        elif op == "committed":
            shown = self._truth if role == VERDICT else self._shown[line["client"]]
            for offset, value in line["records"]:
                shown[line["at"], offset] = value

    def judge(self) -> Iterator[Violation]:
        """Everything that is wrong."""
        yield from self._transfers()
        yield from self._readers()
        yield from self._receipts()
        if self._is_counting:
            yield from check_counts.judge(self._truth)
        for line in self._held_back:
            told = {key: line[key] for key in ("client", "at", "position", "end")}
            sentence = "A reader of committed records did not come to the end of a log."
            yield Violation("held-back", sentence, told)

    # Transfers.

    def _parts(self) -> dict[str, list[tuple[int, int]]]:
        """Transaction -> index and amount of each of its records that is there."""
        found: dict[str, list[tuple[int, int]]] = defaultdict(list)
        for (at, _), value in self._truth.items():
            entry = entry_of(value)
            if entry is not None and parse_place(at)[0] not in (RECEIPTS, COUNTS):
                found[entry.transaction].append((entry.index, entry.amount))
        return found

    def _transfers(self) -> Iterator[Violation]:
        parts = self._parts()
        for name, outcome in self.outcomes.items():
            there = parts.get(name, [])
            if outcome == "committed" and not there:
                yield _wrong("transaction-lost", "A committed transaction is not there.", name)
            elif outcome == "aborted" and there:
                yield _wrong("transaction-aborted", "An aborted transaction is there.", name)
        for name, there in parts.items():
            indexes = sorted(index for index, _ in there)
            if name not in self.outcomes:
                yield _wrong("transaction-phantom", "A transaction that nobody began.", name)
            elif len(set(indexes)) < len(indexes):
                yield _wrong("transaction-twice", "A record of a transaction is twice there.", name)
            elif len(indexes) < PARTS:
                yield _wrong("transaction-torn", "A part of a transaction is there.", name)
        total = sum(amount for there in parts.values() for _, amount in there)
        if total:
            yield Violation(
                "transaction-torn", "The sum of all transfers is not 0.", {"sum": total}
            )

    # Readers.

    def _readers(self) -> Iterator[Violation]:
        for reader, shown in sorted(self._shown.items()):
            for place, value in shown.items():
                told = {"reader": reader, "partition": place[0], "offset": place[1], "value": value}
                if place not in self._truth:
                    sentence = "A reader was shown a record that is not committed."
                    yield Violation("transaction-aborted", sentence, told)
                elif self._truth[place] != value:
                    sentence = "Two readers were shown different records."
                    yield Violation("transaction-phantom", sentence, told)

    # Receipts.

    def _receipts(self) -> Iterator[Violation]:
        orders = {
            f"{at}@{offset} {value}"
            for (at, offset), value in self._truth.items()
            if parse_place(at)[0] == ORDERS
        }
        receipts = Counter(
            value for (at, _), value in self._truth.items() if parse_place(at)[0] == RECEIPTS
        )
        seen: dict[str, set[str]] = {group: set() for group in self._groups}
        for value, count in receipts.items():
            group, _, order = value.partition(" ")
            told = {"group": group, "order": order, "receipts": count}
            if count > 1:
                yield Violation("processed-twice", "An order has several receipts.", told)
            if order not in orders:
                sentence = "A receipt for an order that is not there."
                yield Violation("transaction-phantom", sentence, told)
            seen.setdefault(group, set()).add(order)
        for group, done in sorted(seen.items()):
            for order in sorted(orders - done):
                told = {"group": group, "order": order}
                yield Violation("not-processed", "An order has no receipt.", told)


def _wrong(kind: str, sentence: str, name: str) -> Violation:
    return Violation(kind, sentence, {"transaction": name})
