"""A login with a delegation token at one node, spoken by hand.

What: `Door` is what a node's listener with SASL would offer in one life of the node, made as the
server makes it; `try_token` plays both messages of SCRAM. Rule kept: passwords and proofs are made
here from KIP-48 and RFC 5802, with nothing of production's; nothing is kept of a login. Not here:
who must be let in (`tokens.py`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Mapping
from functools import lru_cache
from itertools import count
from typing import TYPE_CHECKING, NamedTuple

from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.broker.authentication import Clock, Logins, authenticate, handshake
from anabranch.core.broker.gate import Session
from anabranch.core.broker.listener_logins import Chance, logins_of
from anabranch.core.outcome import Accept, Outcome
from anabranch.core.request import Request
from anabranch.core.settings.listener_security import ListenerSettings
from anabranch.core.settings.listeners import Listener
from anabranch.core.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest

if TYPE_CHECKING:
    from anabranch.core.wire.schema import Message
    from anabranch.sim.node import SimNode

LISTENER = Listener("TOKENS", "", 0, "SASL_PLAINTEXT")
NONCE = "of-the-client"
_HASHES = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
_FIRST_ANSWER = re.compile(r"r=(?P<nonce>[^,]+),s=(?P<salt>[^,]+),i=(?P<iterations>[0-9]+)")


class LetIn(NamedTuple):
    """Who was let in, and until when, by the steady clock."""

    who: str
    expires_ms: int
    is_by_token: bool


class Door:
    """What a node offers to those who log in, for one life of it."""

    def __init__(self, node: SimNode) -> None:
        self.broker = broker = node.broker
        settings = ListenerSettings(node.config, LISTENER)
        numbers = count()
        chance = Chance(lambda: f"of-the-server-{next(numbers)}", lambda: b"salt" * 8)
        found = logins_of(settings, lambda: broker.image, chance)
        assert found is not None
        self.logins: Mapping[str, Logins] = {LISTENER.name: found}
        self.mechanism = settings.mechanisms[0]


def hmac_by_hand(secret: str, token_id: str) -> bytes:
    """KIP-48: HMAC-SHA-512 of the id."""
    return hmac.new(secret.encode(), token_id.encode(), hashlib.sha512).digest()


def try_token(door: Door, token_id: str, token_hmac: bytes, clock: Clock) -> LetIn | None:
    """Log in with a token; None if that is refused."""
    session = Session(ANONYMOUS, is_restricted=True)
    handshake(door, _request(SaslHandshakeRequest(mechanism=door.mechanism), session))
    bare = f"n={token_id},r={NONCE},tokenauth=true"
    answer = _said(door, session, f"n,,{bare}", clock)
    if not isinstance(answer, SaslAuthenticateResponse) or answer.error_code:
        return None
    first = bytes(answer.auth_bytes).decode()
    final = _final(door.mechanism, bare, first, base64.b64encode(token_hmac).decode())
    outcome = _said(door, session, final, clock)
    if not isinstance(outcome, Accept):
        return None
    return LetIn(str(outcome.principal), outcome.expires_ms, outcome.is_by_token)


def _said(door: Door, session: Session, text: str, clock: Clock) -> Outcome:
    request = _request(SaslAuthenticateRequest(auth_bytes=text.encode()), session)
    return authenticate(door, request, clock)


def _request(body: Message, session: Session) -> Request:
    return Request(0, 1, 0, "", body, ANONYMOUS, LISTENER.name, "10.0.0.1", 0, session)


def _final(mechanism: str, bare: str, first: str, password: str) -> str:
    found = _FIRST_ANSWER.fullmatch(first)
    assert found is not None
    kind = _HASHES[mechanism]
    client_key = _client_key(kind, password, found["salt"], int(found["iterations"]))
    stored_key = hashlib.new(kind, client_key).digest()
    without_proof = f"c=biws,r={found['nonce']}"
    said = f"{bare},{first},{without_proof}".encode()
    signature = hmac.new(stored_key, said, kind).digest()
    proof = bytes(a ^ b for a, b in zip(client_key, signature, strict=True))
    return f"{without_proof},p={base64.b64encode(proof).decode()}"


@lru_cache(1_000)
def _client_key(kind: str, password: str, salt: str, iterations: int) -> bytes:
    """It takes thousands of hashes."""
    salted = hashlib.pbkdf2_hmac(kind, password.encode(), base64.b64decode(salt), iterations)
    return hmac.new(salted, b"Client Key", kind).digest()
