"""Tiering of diskless topics: aged batches become segments of the remote store."""
