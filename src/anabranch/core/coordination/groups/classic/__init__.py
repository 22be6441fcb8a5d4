"""Groups of the classic protocol: members agree on a leader, and it assigns partitions."""
