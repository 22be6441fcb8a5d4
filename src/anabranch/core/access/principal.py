"""Who sends a request: Kafka's principal, a type and a name."""

from __future__ import annotations

from typing import NamedTuple


class Principal(NamedTuple):
    """A `KafkaPrincipal`: `User:alice`. Plaintext connections are `User:ANONYMOUS`."""

    type: str
    name: str

    def __str__(self) -> str:
        return f"{self.type}:{self.name}"


ANONYMOUS = Principal("User", "ANONYMOUS")
