"""The rows of transactions, on three brokers beside three."""

from __future__ import annotations

import transactions
from row import MB, Row, less, more, own_less
from trio import NODES, TRIOS

FULL_RATE_BYTES = 150 * MB

TRANSACTION_ROWS = [
    Row(
        "transactions-ids",
        f"{transactions.IDS:,} transactional ids begun: memory of three brokers; SIGKILL of a "
        "coordinator until an id of each of its partitions is begun again",
        transactions.many_ids,
        {"failover s": less(1)},
        servers=TRIOS,
        fresh=True,
        warm_up=False,
        rounds_at_most=2,
    ),
    Row(
        "transactions-commits",
        f"{transactions.TRANSACTIONS:,} transactions of {transactions.RECORDS} records over "
        f"{transactions.PARTITIONS} partitions, one after the other, 3 replicas",
        transactions.commits,
        {"transactions/s": more(1.5), "commit p50 ms": less(0.8), "commit p99 ms": less(0.5)},
        servers=TRIOS,
    ),
    Row(
        "transactions-full-rate",
        f"1 KB records in transactions of 100 ms, 6 partitions, 3 replicas, "
        f"{FULL_RATE_BYTES // MB} MB",
        lambda server: transactions.full_rate(server, total_bytes=FULL_RATE_BYTES),
        {"MB/s": more(2)},
        servers=TRIOS,
        written_bytes=FULL_RATE_BYTES * NODES,
    ),
    Row(
        "transactions-read-committed",
        f"read_committed consumption of {transactions.READ_BYTES // MB} MB from page cache, every "
        "tenth batch aborted",
        transactions.read_committed,
        {"MB/s": more(1)},
        servers=TRIOS,
        prepare=transactions.fill_with_aborts,
    ),
    Row(
        "transactions-killed",
        "SIGKILL of a transactional producer's coordinator: longest gap between commits",
        transactions.killed,
        {"gap s": own_less(1.0)},
        servers=TRIOS,
        warm_up=False,
        rounds_at_most=3,
    ),
]
