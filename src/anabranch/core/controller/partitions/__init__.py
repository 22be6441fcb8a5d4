"""Decisions about one partition's leader, in-sync replicas, missing replicas and observers."""
