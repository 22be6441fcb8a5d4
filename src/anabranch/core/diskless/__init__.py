"""Diskless topics: bytes lie in object storage, their order in SQL, replicas are metadata."""
