"""Copies of segments to a remote store."""
