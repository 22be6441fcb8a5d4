"""Hands what readers lack to the store that has it.

What: a node registers, by `Bringer`, what brings in the reads of each store; `bring` has all reads
of one request brought, each by its own, and calls back once, when the last of them has ended. Why:
who runs handlers asks no read what it is. Rule kept: `bring` is not for reads of the page cache,
which need a thread; `apart` divides them from the others. Not here: how bytes come.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeAlias

from anabranch.core.log.files import Bringer, ColdRead

Done: TypeAlias = Callable[[], None]
Bring: TypeAlias = Callable[[list[Any], Done], None]
"""Has reads of one kind brought in, and calls back in the step in which the last one has ended."""


def apart(reads: Iterable[ColdRead]) -> tuple[list[ColdRead], list[ColdRead]]:
    """Reads that a thread warms in the page cache, and those that stores are asked for."""
    warmed: list[ColdRead] = []
    asked: list[ColdRead] = []
    for read in reads:
        (warmed if read.bringer is Bringer.PAGE_CACHE else asked).append(read)
    return warmed, asked


class Bringers:
    """The stores of one node that are asked for what is not in memory."""

    __slots__ = ("_by_kind",)

    def __init__(self) -> None:
        self._by_kind: dict[Bringer, Bring] = {}

    def register(self, kind: Bringer, bring: Bring) -> None:
        """Have reads that name `kind` brought by `bring`."""
        self._by_kind[kind] = bring

    def bring(self, reads: Iterable[ColdRead], done: Done) -> None:
        """Have reads brought, none of them from the page cache; `done` is called once."""
        by_kind: dict[Bringer, list[ColdRead]] = {}
        for read in reads:
            by_kind.setdefault(read.bringer, []).append(read)
        if len(by_kind) == 1:
            ((kind, alike),) = by_kind.items()
            self._by_kind[kind](alike, done)
            return
        left = len(by_kind)

        def one_ended() -> None:
            nonlocal left
            left -= 1
            if left == 0:
                done()

        if not by_kind:
            done()
        for kind, alike in by_kind.items():
            self._by_kind[kind](alike, one_ended)
