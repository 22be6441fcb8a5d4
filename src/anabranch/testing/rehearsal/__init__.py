"""Rehearsals on real processes: the same file, the same rows, nodes that are killed for real."""
