"""The histories of a run, sorted into one file a partition, so that the judge holds one at a time.

What is added to the lines on the way: the group of a reader's process, and its turn. A turn is one
stretch in which a reader goes on where it was: it ends with its process, with an assignment of the
partition, and where a reader was thrown out; between turns it may go back. The audits' names begin
as the judge expects. Not here: judgement.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from anabranch.sim.checks.anomalies import AUDITOR
from chaos.check_transactions import Transactions
from chaos.history import read_lines
from chaos.operator_log import NAME as OPERATOR

SENDERS = {"send", "ok", "unknown", "ends", "start"}
"""Lines whose client's name stays: a producer's lives are their own names, the audit has no turns
but its processes."""

EVENTS = {"clock", "deletion", "reborn"}
KEPT = {"kept", "recalled"}
TRANSACTIONAL = {"transaction", "committed", "held-back", "processed", "counting"}


class Spool:
    """See the module."""

    def __init__(self, folder: Path) -> None:
        self.places: dict[str, BinaryIO] = {}
        self.notes: Counter[str] = Counter()
        self.assignments = 0
        self.events: list[dict[str, Any]] = []
        """What the operator did, in order."""
        self.transactions = Transactions()
        self.kept: list[dict[str, Any]] = []
        """What keepers committed and were told."""
        self._folder = folder
        self._encode = msgspec.json.Encoder().encode
        self._acks: list[int] = []
        self._began: set[str] = set()
        self._worked: set[str] = set()
        self._drained: dict[str, set[str]] = defaultdict(set)
        """Topic -> groups of which a process said that it reads everything that is left."""

    def add(self, path: Path) -> None:
        """One client's file."""
        hello: dict[str, Any] = {"role": "", "group": "", "topics": ""}
        processes = 0
        turns: Counter[str] = Counter()
        for line in read_lines(path):
            op = line["op"]
            if op == "hello":
                hello, processes = line, processes + 1
                turns.clear()
                if hello["role"] != OPERATOR:
                    self._began.add(_part(hello))
            elif op in EVENTS:
                self.events.append(line)
            elif op in KEPT:
                self.kept.append(line)
                self._worked.add(_part(hello))
            elif op in TRANSACTIONAL:
                self.transactions.take(line, hello["role"])
                if line.get("records", 1):
                    self._worked.add(_part(hello))
            elif op == "note":
                self.notes[line["what"]] += line["count"]
            elif op == "assigned":
                self.assignments += 1
                turns.update(line["places"])
                for at in line["places"]:
                    self._put(at, self._turned(line, hello, processes, turns[at]))
            elif op == "bye":
                if hello["role"] == "drain" and line["status"] == 0:
                    for topic in hello["topics"].split(","):
                        self._drained[topic].add(hello["group"])
            else:
                at = line["at"]
                if op == "ok":
                    self._acks.append(line["t"])
                if op in ("ok", "poll"):
                    self._worked.add(_part(hello))
                self._put(at, self._turned(line, hello, processes, turns[at]))
                turns[at] += op == "thrown"

    def _turned(
        self, line: dict[str, Any], hello: dict[str, Any], process: int, turn: int
    ) -> dict[str, Any]:
        if line["op"] in SENDERS:
            return line
        role = AUDITOR if hello["role"] == "audit" else hello["role"]
        name = f"{role} {line['client']} {process}.{turn}"
        return {**line, "client": name, "group": line.get("group", hello["group"])}

    def _put(self, at: str, line: dict[str, Any]) -> None:
        file = self.places.get(at)
        if file is None:
            file = self.places[at] = (self._folder / f"{at}.jsonl").open("w+b")
        file.write(self._encode(line) + b"\n")

    def lines(self, at: str) -> list[dict[str, Any]]:
        """All lines of one partition; its file ends with this."""
        file = self.places[at]
        file.flush()
        file.close()
        return list(read_lines(self._folder / f"{at}.jsonl"))

    def drained(self, topic: str) -> set[str]:
        """Groups that read everything that is left of a topic."""
        return self._drained.get(topic, set())

    def idle(self) -> list[str]:
        """Parts of which no process was acknowledged or shown a record: what they were to prove is
        not proved. A drain may find nothing left."""
        return sorted(each for each in self._began - self._worked if not each.endswith("drain"))

    def longest_gap_ms(self) -> float:
        """The longest time without an acknowledgement between the first and the last."""
        self._acks.sort()
        return max((b - a for a, b in pairwise(self._acks)), default=0) / 1000


def _part(hello: dict[str, Any]) -> str:
    return f"{hello.get('kind', 'unknown')} {hello['role']}"
