"""What the metadata holds, one file a concern: how its records change an image, and how a snapshot
writes it.

Each has `RULES`, what a record does to an image that is being built, and `snapshot`, the records
that make its part of an image. `table.py` joins them.
"""
