"""What a node keeps of a password for SCRAM."""

from __future__ import annotations

import msgspec


class ScramCredential(msgspec.Struct, frozen=True, gc=False):
    """What proves that a user knows a password, without the password. No `repr` shows the keys."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int

    def __repr__(self) -> str:
        return f"ScramCredential(iterations={self.iterations})"
