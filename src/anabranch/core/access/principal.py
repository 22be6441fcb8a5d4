"""Who sends a request: Kafka's principal, a type and a name."""

from __future__ import annotations

from typing import NamedTuple

LARGEST_USER_BYTES = 1024
"""Of a name that logs in."""


class Principal(NamedTuple):
    """A `KafkaPrincipal`: `User:alice`. Plaintext connections are `User:ANONYMOUS`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
