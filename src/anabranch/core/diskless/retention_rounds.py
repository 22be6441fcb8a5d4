"""Rounds of retention for diskless partitions: when a broker begins one, and what it asks for.

What: `rounds` is a generator without an end. It yields a pause, a call of the coordinator, or word
of a round that is over; it is sent what a call gave, and is thrown the fault of one that failed.
Why: a broker and the simulator make the same calls in the same order, each in its own way. Rules
kept: a call deletes a bounded number of rows, and a partition is asked about again while there may
be more; a call that fails ends its round, and the next round begins as ever. Not here: which
partitions are looked over, and by which limits (`retention.py`), what is deleted
(`expired_runs.py`), I/O (`server/diskless/shell.py`, `sim/diskless_upkeep.py`).
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias

from anabranch.core.diskless.pause import Pause
from anabranch.core.diskless.retention import MOST_RUNS, Limits, to_look_over
from anabranch.core.diskless.rows import Change, LogKey
from anabranch.core.errors import StorageFault

if TYPE_CHECKING:
    from anabranch.core.diskless.rows import LogState
    from anabranch.core.metadata.image import MetadataImage
    from anabranch.core.settings.broker import BrokerConfig

STATES_AT_ONCE = 1_000
"""Partitions whose sizes one call asks for: without it each empty one would cost a transaction."""


class BrokerView(Protocol):
    """What a round reads of its broker."""

    @property
    def broker_id(self) -> int:
        """Its id."""

    @property
    def config(self) -> BrokerConfig:
        """Its settings."""

    @property
    def image(self) -> MetadataImage:
        """The metadata that it acts on."""


class AskStates(NamedTuple):
    """coordinator.states: gives the state of each partition, None for one that it does not know."""

    keys: list[LogKey]


class Expire(NamedTuple):
    """coordinator.expire: gives (state, how many runs were deleted)."""

    limits: Limits
    most_runs: int = MOST_RUNS


class Shortened(NamedTuple):
    """Runs of a partition were deleted: the broker is told, since its watch may be broken."""

    change: Change


class RoundEnded(NamedTuple):
    """A round is over; the fault that ended it early, if one did."""

    fault: StorageFault | None = None


Step: TypeAlias = Pause | AskStates | Expire | Shortened | RoundEnded


def rounds(
    broker: BrokerView, *, pause_ms: int | None = None, states_at_once: int = STATES_AT_ONCE
) -> Generator[Step, Any, None]:
    """All rounds of a broker. `pause_ms` stands for `log.retention.check.interval.ms`; with 0
    `states_at_once` no sizes are asked for, no partition is left out, and they go by key."""
    while True:
        usual_ms = broker.config.log_retention_check_interval_ms
        wall_ms: int = yield Pause(usual_ms if pause_ms is None else pause_ms)
        limits = to_look_over(broker.image, broker.broker_id, broker.config, wall_ms)
        try:
            yield from _round(limits, states_at_once)
        except StorageFault as fault:
            yield RoundEnded(fault)
        else:
            yield RoundEnded()


def _round(limits: Iterator[Limits], states_at_once: int) -> Generator[Step, Any, None]:
    if not states_at_once:
        for each in sorted(limits):  # in one order, whatever the maps of an image hash
            yield from _shorten(each)
    while page := list(islice(limits, states_at_once)):
        states: list[LogState | None] = yield AskStates([each.key for each in page])
        for each, state in zip(page, states, strict=True):
            if state is not None and state.byte_size:
                yield from _shorten(each)


def _shorten(limits: Limits) -> Generator[Step, Any, None]:
    deleted = MOST_RUNS
    while deleted >= MOST_RUNS:
        state, deleted = yield Expire(limits)
        if deleted:
            yield Shortened(Change(limits.key, state))
