"""The rows, a module for each family of tools, in the order of the table."""

FAMILIES = ("topics",)
"""Modules of this package; importing one registers its rows."""
