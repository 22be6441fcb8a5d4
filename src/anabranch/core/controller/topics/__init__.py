"""Decisions about topics: created, deleted, given partitions, placed."""
