"""What transactional clients write, so that a judge can tell what belongs together.

What: a transfer takes an amount from one partition of `accounts`, adds it to another one, and
places an order in `orders`: three records in one transaction. A processor reads orders and writes a
receipt for each into `receipts`, together with the offsets that it has come to. So the sum of all
committed amounts is 0 at all times, and each order has one receipt of each group of processors.
Rule kept: a record names its transaction, and how many records that has. Not here: what is wrong
(`check_transactions.py`), clients (`clients_transactions.py`).
"""

from __future__ import annotations

from typing import NamedTuple

ACCOUNTS, ORDERS, RECEIPTS = "accounts", "orders", "receipts"
PARTITIONS = {ACCOUNTS: 6, ORDERS: 3, RECEIPTS: 3}
PARTS = 3
"""Records of a transfer: taken, added, ordered."""
TIMEOUT_MS = 12_000
"""A client's transaction.timeout.ms: within a round of faults some are over."""


class Entry(NamedTuple):
    """One record of a transfer."""

    transaction: str
    index: int
    amount: int

    @property
    def value(self) -> bytes:
        """As it is written."""
        return f"{self.transaction} {self.index} {self.amount}".encode()


def entry_of(text: str) -> Entry | None:
    """The record that a value is; None when no transfer wrote it."""
    words = text.split(" ")
    if len(words) != 3 or not words[1].isdigit() or not words[2].lstrip("-").isdigit():
        return None
    return Entry(words[0], int(words[1]), int(words[2]))


def entries(transaction: str, amount: int) -> list[Entry]:
    """All records of a transfer."""
    amounts = (-amount, amount, 0)
    return [Entry(transaction, index, each) for index, each in enumerate(amounts)]


def receipt_of(group: str, order: str) -> bytes:
    """What a group of processors writes for an order."""
    return f"{group} {order}".encode()
