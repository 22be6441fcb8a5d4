"""What a row of the benchmark is: a name, a measurement, servers to take it on, and targets.

A row on shared servers uses long-running ones, warmed up, in turn; rows that follow each other and
want the same `servers` with the same `settings` have the same ones. A row on `fresh` servers starts
a new one in a new folder for each measurement.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from servers import SERVERS, Server
from workloads import Sample

MB = 1_000_000


@dataclass(frozen=True)
class Target:
    """A limit: at least it when `more_is_better`, at most it otherwise.

    It bounds the ratio of Anabranch to its peer, or Anabranch's own figure when `is_own`.
    """

    limit: float
    more_is_better: bool = False
    is_own: bool = False

    def is_met(self, measured: float) -> bool:
        """Whether a measured ratio, or figure, meets the target."""
        return measured >= self.limit if self.more_is_better else measured <= self.limit

    def __str__(self) -> str:
        sign = "≥" if self.more_is_better else "≤"
        return f"{sign} {self.limit:.2f}{' own' if self.is_own else '×'}"


@dataclass(frozen=True)
class Row:
    """One row: `measure(server)` is one round on one server; `prepare(server)` runs once before."""

    name: str
    what: str
    measure: Callable[[Server], Sample]
    targets: Mapping[str, Target] = field(default_factory=dict)
    fresh: bool = False
    servers: Mapping[str, type[Server]] = field(default_factory=lambda: SERVERS)
    """What is measured: a name -> its kind; `anabranch`, and the peer that it is compared with.
    One without a peer has no ratio."""
    prepare: Callable[[Server], None] | None = None
    written_bytes: int = 0
    """What a round writes to the page cache: so much memory is made ready before it."""
    settings: Mapping[str, str] = field(default_factory=dict)
    """Settings that both servers are started with, for this row alone."""
    note: str = ""
    """What bounds the figures besides the server."""
    rounds_at_most: int = 99
    """For rows whose round takes a minute."""
    warm_up: bool = True
    """Whether a round goes before that does not count."""


def more(ratio: float) -> Target:
    """At least this ratio."""
    return Target(ratio, more_is_better=True)


def less(ratio: float) -> Target:
    """At most this ratio."""
    return Target(ratio)


def own_less(figure: float) -> Target:
    """At most this figure of Anabranch's own."""
    return Target(figure, is_own=True)


def own_more(figure: float) -> Target:
    """At least this figure of Anabranch's own."""
    return Target(figure, more_is_better=True, is_own=True)
