"""Decisions about moves of replicas, and about plans of many moves."""
