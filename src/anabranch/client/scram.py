"""SCRAM as its client speaks it: three messages that prove a password without sending it.

    client  n,,n=USER,r=NONCE
    server  r=NONCE+,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+,p=PROOF
    server  v=SIGNATURE, or e=ERROR

Rules kept: the server proves that it knows the password, too; a count of iterations outside
`ITERATIONS` is refused, below as too weak, above as a waste of the client's time. Source: RFC 5802,
RFC 7677, KIP-48 (delegation tokens), KIP-84. Names and passwords are UTF-8 as they are, as Kafka
takes them. Not here: how the messages are sent (sasl.py).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Mapping

MECHANISMS: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
"""Mechanism -> hash."""
ITERATIONS = range(4096, 1_000_001)
"""Kafka's least, and most of a second of one core."""
CHANNEL = "biws"
"""Base64 of `n,,`: no channel binding."""


class ScramFault(Exception):
    """The server broke the rules, or said why it refuses; the text has no secret."""


class ScramClient:
    """One authentication; `nonce` is text that is never used twice, without a comma. With
    `is_token` the name is a delegation token's id, and the password its HMAC in Base64."""

    def __init__(
        self, mechanism: str, username: str, password: str, nonce: str, *, is_token: bool = False
    ) -> None:
        self._hash = MECHANISMS[mechanism]
        self._password = password.encode()
        self._nonce = nonce
        name = username.replace("=", "=3D").replace(",", "=2C")
        self._first_bare = f"n={name},r={nonce}" + ",tokenauth=true" * is_token
        self._signature = b""

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self._first_bare}".encode()

    def final(self, server_first: bytes) -> bytes:
        """The message that proves the password. Raises ScramFault."""
        text, fields = _fields(server_first)
        try:
            nonce, salt = fields["r"], base64.b64decode(fields["s"], validate=True)
            iterations = int(fields["i"])
        except (KeyError, ValueError):
            raise ScramFault("its first SCRAM message cannot be read") from None
        if not nonce.startswith(self._nonce) or nonce == self._nonce:
            raise ScramFault("its SCRAM nonce does not continue the client's")
        if iterations not in ITERATIONS:
            raise ScramFault(
                f"it asks for {iterations} iterations of SCRAM, and {ITERATIONS[0]} to "
                f"{ITERATIONS[-1]} are accepted"
            )
        return self._proved(text, nonce, salt, iterations)

    def _proved(self, server_first: str, nonce: str, salt: bytes, iterations: int) -> bytes:
        salted = hashlib.pbkdf2_hmac(self._hash, self._password, salt, iterations)
        client_key = self._hmac(salted, b"Client Key")
        stored_key = hashlib.new(self._hash, client_key).digest()
        without_proof = f"c={CHANNEL},r={nonce}"
        said = f"{self._first_bare},{server_first},{without_proof}".encode()
        signature = self._hmac(stored_key, said)
        proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
        self._signature = self._hmac(self._hmac(salted, b"Server Key"), said)
        return f"{without_proof},p={base64.b64encode(proof).decode()}".encode()

    def check(self, server_final: bytes) -> None:
        """Judge the last message. Raises ScramFault."""
        _, fields = _fields(server_final)
        if "e" in fields:
            raise ScramFault(f"it says {fields['e']}")
        try:
            signature = base64.b64decode(fields.get("v", ""), validate=True)
        except ValueError:
            signature = b""
        if not self._signature or not hmac.compare_digest(signature, self._signature):
            raise ScramFault("it does not prove that it knows the password itself")

    def _hmac(self, key: bytes, said: bytes) -> bytes:
        return hmac.digest(key, said, self._hash)


def _fields(message: bytes) -> tuple[str, dict[str, str]]:
    try:
        text = message.decode()
    except UnicodeDecodeError:
        raise ScramFault("its SCRAM message is not text") from None
    return text, {part[:1]: part[2:] for part in text.split(",") if part[1:2] == "="}
