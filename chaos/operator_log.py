"""What the operator of a run did that allows records or offsets to be gone, for the judge.

What: one history beside those of the clients. It tells when a topic was asked to be deleted, since
when its successor is known to all brokers, and when a clock was wrong. Why a topic's id decides: an
operator who is not answered does not know whether anything was deleted. Not here: the faults.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from chaos.history import Writer

NAME = "operator"


class OperatorLog:
    """See the module. `ids` tells the id of a topic as it is committed, None when it is gone."""

    def __init__(self, folder: Path, ids: Callable[[str], Any]) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self._writer = Writer(folder / f"{NAME}.jsonl", NAME)
        self._writer.line("hello", kind=NAME, role=NAME, group="", topics="")
        self._ids = ids
        self._known: dict[str, Any] = {}
        self._asked: dict[str, list[tuple[int, bool]]] = {}
        self._created: dict[str, int] = {}

    def deletion(self, topic: str) -> int:
        """A topic is about to be asked to go; `answered` tells what came of that."""
        self._writer.line("deletion", topic=topic)
        self._writer.flush()
        self._asked.setdefault(topic, []).append((now_us(), False))
        return len(self._asked[topic]) - 1

    def answered(self, topic: str, number: int) -> None:
        """That deletion took place."""
        self._asked[topic][number] = (self._asked[topic][number][0], True)
        self._created.pop(topic, None)

    def creation(self, topic: str) -> None:
        """A topic is about to be asked for; one that is asked for again may be there already."""
        self._created.setdefault(topic, now_us())

    def settled(self, topics: Iterable[str]) -> None:
        """Every broker serves, with all replicas in sync: all know the topics as they are now."""
        for topic in topics:
            found, before = self._ids(topic), self._known.get(topic)
            self._known[topic] = found
            if before is not None and found != before:
                asked = self._asked.get(topic, [(0, True)])
                sure = [at for at, done in asked if done]
                self._writer.line(
                    "reborn", topic=topic, asked=sure[-1] if sure else asked[0][0],
                    created=self._created.get(topic, 0),
                )  # fmt: skip
                self._writer.flush()
            self._asked[topic] = []
            self._created.pop(topic, None)

    def clock(self, began_us: int, seconds: float) -> None:
        """A broker's clock was wrong by so much from then until now."""
        self._writer.line("clock", began=began_us, seconds=seconds)
        self._writer.flush()

    def close(self) -> None:
        """Nothing more happens."""
        self._writer.close()


def now_us() -> int:
    """The clock of histories."""
    return time.monotonic_ns() // 1000
