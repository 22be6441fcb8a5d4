"""Diskless topics of a node: their stores, the broker's calls, the active controller's rows."""
