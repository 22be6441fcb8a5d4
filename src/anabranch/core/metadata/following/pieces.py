"""A snapshot that is fetched in pieces.

Rule kept: each piece begins where the last one ended and is of a file of the same length; whatever
else comes means that it is another file, and fetching begins anew. Source: KIP-630.
"""

from __future__ import annotations

from typing import NamedTuple

from anabranch.core.types import Buffer


class Pieces(NamedTuple):
    """What of a snapshot has come so far. `size_bytes` is of the whole file, 0 before it is
    known."""

    end_offset: int
    epoch: int
    received: bytearray
    size_bytes: int = 0

    @property
    def is_whole(self) -> bool:
        """Whether all of it is here."""
        return 0 < self.size_bytes == len(self.received)

    def with_piece(self, position: int, size_bytes: int, piece: Buffer) -> Pieces | None:
        """With one piece more, None when it does not fit."""
        fits = position == len(self.received) and self.size_bytes in (0, size_bytes)
        if not fits or not len(piece) or position + len(piece) > size_bytes:
            return None
        self.received.extend(piece)
        return self._replace(size_bytes=size_bytes)
