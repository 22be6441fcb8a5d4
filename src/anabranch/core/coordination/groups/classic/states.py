"""The life of a classic group: five states, and which may follow which.

                 +-------------------------------------------+
                 v                                           |
    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE
      ^          |        ^                |                 |
      +----------+        +----------------+-----------------+
    every state -> DEAD

EMPTY has no members (but perhaps offsets). PREPARING_REBALANCE waits until the members have joined
again, COMPLETING_REBALANCE for the leader's assignment. In STABLE every member has one. DEAD is
forgotten: deleted, or this broker is not its coordinator any more.

Source: KIP-62 and the Kafka protocol guide. Not here: what moves a group (`rebalance`, `members`).
"""

from __future__ import annotations

from enum import Enum


class GroupState(Enum):
    """A state; its value is the name that Kafka's tools print."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


EMPTY = GroupState.EMPTY
PREPARING_REBALANCE = GroupState.PREPARING_REBALANCE
COMPLETING_REBALANCE = GroupState.COMPLETING_REBALANCE
STABLE = GroupState.STABLE
DEAD = GroupState.DEAD

MAY_COME_FROM = {
    EMPTY: {PREPARING_REBALANCE},
    PREPARING_REBALANCE: {EMPTY, COMPLETING_REBALANCE, STABLE},
    COMPLETING_REBALANCE: {PREPARING_REBALANCE},
    STABLE: {COMPLETING_REBALANCE},
    DEAD: {EMPTY, PREPARING_REBALANCE, COMPLETING_REBALANCE, STABLE, DEAD},
}
"""The transition table: state -> the states before it."""
