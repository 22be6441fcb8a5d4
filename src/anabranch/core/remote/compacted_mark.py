"""What a compacted segment says of the pass that made it.

What: how far the pass looked for newer records, and how many passes lie behind its records: a
segment has one more than the ones that it replaced. Kept in the custom metadata of its fact and its
description, so that a restore has it too. Not here: what follows from it (`core/tiering`,
`superseded.py`).
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.remote.segments import RemoteSegment

PREFIX = b"compacted"


class Mark(NamedTuple):
    """Of a segment that no pass has made, both are 0."""

    generation: int
    upto: int
    """Below it, each key was compared with each other record."""


NO_MARK = Mark(0, 0)


def encode_mark(mark: Mark) -> bytes:
    """Custom metadata."""
    return b"%s %d %d" % (PREFIX, *mark)


def mark_of(segment: RemoteSegment) -> Mark:
    """What a segment says of itself."""
    words = segment.custom_metadata.split(b" ")
    if len(words) != 3 or words[0] != PREFIX or not all(each.isdigit() for each in words[1:]):
        return NO_MARK
    return Mark(int(words[1]), int(words[2]))
