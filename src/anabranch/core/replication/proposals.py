"""A change of a partition's in-sync replicas that its leader has asked for."""

from __future__ import annotations

from dataclasses import dataclass

from anabranch.core.wire.own_fields import Lag


@dataclass(frozen=True, slots=True, eq=False)
class Proposal:
    """An ISR that the leader asks for, on top of the partition epoch that it knows."""

    isr: tuple[int, ...]
    broker_epochs: tuple[int, ...]
    leader_epoch: int
    partition_epoch: int
    growth: int = 0
    """How many members more than before: below 0 for a shrink."""
    lags: tuple[Lag, ...] = ()
    """Why members shall leave, for people."""
