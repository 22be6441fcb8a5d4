"""Clusters and the mirrors between them, simulated: every crash, every order of two attempts.

What: `run_mirror` draws clusters, flows and faults from a seed, runs the decisions of `core.mirror`
against clusters that have transactions, fencing, compaction, retention and unclean elections, and
checks what readers and groups find. Why beside the simulated cluster: here a cluster's own machines
are taken to be right, so that thousands of orders of a mirror's requests fit into a minute.
"""
