"""The line that a node writes when it aborts a transaction that outlived its timeout."""

from __future__ import annotations

from anabranch.core.coordination.transactions.upkeep import Late
from anabranch.server.logs import logger

LOG = logger("transactions")
SHOWN = 5
"""Partitions that a line names."""


def say_late(late: Late) -> None:
    """Name the producer, how long its transaction lasted, and what it held back."""
    name, transaction, lasted_ms, unsaid = late
    held = sorted(transaction.partitions)
    places = [f"{place.topic}-{place.partition}" for place in held[:SHOWN]]
    if len(held) > SHOWN:
        places.append(f"and {len(held) - SHOWN} more")
    LOG.warning(
        "a transaction outlived its timeout and is aborted",
        transactional_id=name,
        producer_id=transaction.producer_id,
        producer_epoch=transaction.producer_epoch,
        timeout_ms=transaction.timeout_ms,
        lasted_ms=lasted_ms,
        partitions=", ".join(places),
        **({"unsaid": unsaid} if unsaid else {}),
    )
