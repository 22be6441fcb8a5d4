"""Decisions about the replicas of diskless topics, which the cluster manages: metadata alone."""
