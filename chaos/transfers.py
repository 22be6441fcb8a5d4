"""What transactional clients write, so that a judge can tell what belongs together.

What: a transfer takes an amount from one partition of `accounts`, adds it to another one, and
places an order in `orders`: three records in one transaction. A processor reads orders and writes a
receipt for each into `receipts`, together with the offsets that it has come to. So the sum of all
committed amounts is 0 at all times, and each order has one receipt of each group of processors.
Kafka Streams counts the words of all orders: the name of a transaction, which is said once, and an
index and an amount, which every order says. It also counts `lines`, which an ordinary producer
writes: each is one word, said once.
Rule kept: a record names its transaction, and how many records that has. Not here: what is wrong
(`check_transactions.py`, `check_counts.py`), clients (`clients_transactions.py`, `streams.py`).
"""

from __future__ import annotations

from typing import NamedTuple

ACCOUNTS, ORDERS, RECEIPTS = "accounts", "orders", "receipts"
LINES = "lines"
APPLICATION = "streams"
"""The application of Kafka Streams, which is also the name of its group."""
COUNTS = f"{APPLICATION}-counts"
PARTITIONS = {ACCOUNTS: 6, ORDERS: 3, RECEIPTS: 3, LINES: 3, COUNTS: 3}
"""As many of counts as of what is counted: Kafka Streams sorts words into as many partitions before
it counts them, so that each of these writes to one partition of counts."""
COUNTED = (ORDERS, LINES)
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


class Count(NamedTuple):
    """A record that Kafka Streams wrote: so often a word has been said."""

    word: str
    count: int


def words_of(value: str) -> list[str]:
    """What is counted of an order or a line; its first word is said once."""
    return value.lower().split(" ")


def shown_as(topic: str, key: bytes | None, value: bytes | None) -> str:
    """A record as histories have it: its value, and of a count the word too."""
    text = (value or b"").decode("utf-8", "replace")
    return f"{(key or b'').decode('utf-8', 'replace')} {text}" if topic == COUNTS else text


def count_of(text: str) -> Count | None:
    """The count that is shown so; None when it is not one."""
    word, _, count = text.rpartition(" ")
    return Count(word, int(count)) if count.isdigit() else None
