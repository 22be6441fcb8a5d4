"""The seam between the roles and the clients: what a role asks of a client, and what it is told.

Not here: the clients (`clients_confluent.py`, `clients_kafka_python.py`), the roles.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from chaos.history import NAME_HEADER, Place, name_of

BATCH = 500
"""Records of one poll."""


class Token(NamedTuple):
    """A record under way: the life of the producer that sent it, where to, and its number."""

    client: str
    place: Place
    n: int

    @property
    def headers(self) -> list[tuple[str, bytes]]:
        """What names a record that has no value."""
        return [(NAME_HEADER, name_of(self.client, self.n))]


class Full(Exception):
    """The producer takes nothing at the moment; it took nothing of this record."""


class Thrown(NamedTuple):
    """A reader was told that where it stands is no place of the log."""

    place: Place
    why: str


@dataclass
class Read:
    """What one poll gave."""

    records: list[tuple[Place, int, bytes | None]] = field(default_factory=list)
    thrown: list[Thrown] = field(default_factory=list)
    ends: list[tuple[Place, int]] = field(default_factory=list)
    """Where the reader stands at a log's end, also where no record is the last."""
    errors: list[str] = field(default_factory=list)


Heard = Callable[[Token, int], None]
"""Told of an acknowledged record and its offset, -1 where the client was not told one."""

Failed = Callable[[Token, str], None]
"""Told of a record whose outcome is not known, and why."""

Assigned = Callable[[list[Place]], None]
Committed = Callable[[Place, int, str], None]
"""Told of a commit's place and offset, and why it may not have taken effect ("" when it did)."""
