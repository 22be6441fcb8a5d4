"""The lines of a node's log about transactions: one that outlived its timeout and is aborted, and
requests of producers that are refused."""

from __future__ import annotations

from anabranch.core.coordination.transactions.refusals import Refusal
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


def say_refusal(refusal: Refusal) -> None:
    """Name the request, the producer, its client, and why it was refused."""
    name, unsaid = refusal.transactional_id, refusal.unsaid
    LOG.warning(
        "a transactional request was refused",
        request=refusal.request,
        **({} if name is None else {"transactional_id": name}),
        producer_id=refusal.producer_id,
        producer_epoch=refusal.producer_epoch,
        client_id=refusal.client_id,
        peer=refusal.client_host,
        code=refusal.code.name,
        why=refusal.why,
        **({"unsaid": unsaid} if unsaid else {}),
    )
