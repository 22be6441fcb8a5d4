"""Transactions: which partitions belong to one, whether it commits, and who may go on with it."""
