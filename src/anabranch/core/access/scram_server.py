"""SCRAM as its server: the client proves a password that this node does not know.

    client  n,,n=USER,r=NONCE
    server  r=NONCE+,s=SALT,i=ITERATIONS
    client  c=biws,r=NONCE+,p=PROOF
    server  v=SIGNATURE

What: `ScramServer`, a machine of three states, and `make_credential`, what a node keeps of a
password. Rules kept: an unknown user gets a salt that is always the same for its name, and is
refused at the end as a wrong password is; a proof is good for the nonce of this login alone.
A client that says `tokenauth=true` names a delegation token, and comes in as its owner (KIP-48).
Source: RFC 5802, RFC 7677, KIP-84. Names and passwords are UTF-8 as they are, as Kafka takes them.
Not here: what tokens are (`delegation_tokens.py`), the client (`client/scram.py`).
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from collections.abc import Callable, Mapping
from enum import Enum
from typing import NamedTuple

from anabranch.core.access.login import Reply, invalid_credentials, not_understood
from anabranch.core.access.scram_credential import ScramCredential
from anabranch.core.types import NO_TIME_MS

HASHES: Mapping[str, str] = {"SCRAM-SHA-256": "sha256", "SCRAM-SHA-512": "sha512"}
CODES: Mapping[str, int] = {"SCRAM-SHA-256": 1, "SCRAM-SHA-512": 2}
"""Kafka's number of a mechanism, in records and requests."""
NAMES: Mapping[int, str] = {code: name for name, code in CODES.items()}
ITERATIONS = range(4096, 16_385)
"""What Kafka lets a credential have."""
SALT_BYTES = 24

_FIRST = re.compile(
    r"(?P<header>n,(?:a=(?P<identity>(?:[^=,\0]|=2C|=3D)+))?,)"
    r"(?P<bare>n=(?P<name>(?:[^=,\0]|=2C|=3D)+),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?P<more>(?:,[^\0]*)?))"
)
_FINAL = re.compile(
    r"(?P<without_proof>c=(?P<channel>[^,]*),r=(?P<nonce>[\x21-\x2b\x2d-\x7e]+)(?:,[^\0]*)?),p=(?P<proof>[^,]+)"
)

TOKEN = "tokenauth=true"
"""What a client says that logs in with a delegation token."""


class TokenLogin(NamedTuple):
    """What a delegation token is to a login: who comes with it, and until when it is good, by the
    time of day."""

    credential: ScramCredential
    owner: str
    ends_ms: int


Find = Callable[[str], ScramCredential | None]
FindToken = Callable[[str], TokenLogin | None]


def no_tokens(_token_id: str) -> None:
    """Where delegation tokens are switched off."""


class _State(Enum):
    FIRST = "first"
    FINAL = "final"
    OVER = "over"


class _Begun(NamedTuple):
    """What the first two messages were."""

    name: str
    channel: str
    nonce: str
    said: str
    credential: ScramCredential
    is_known: bool
    token: TokenLogin | None


class ScramServer:
    """One login. `find` gives the credential of a user; `nonce` is text without a comma that is
    never used twice; `decoy` makes the credential that an unknown user seems to have;
    `find_token` finds a delegation token by its id."""

    def __init__(
        self, mechanism: str, find: Find, nonce: str, decoy: Callable[[str], ScramCredential],
        find_token: FindToken = no_tokens,
    ) -> None:  # fmt: skip
        self._mechanism = mechanism
        self._hash = HASHES[mechanism]
        self._find = find
        self._nonce = nonce
        self._decoy = decoy
        self._find_token = find_token
        self._state = _State.FIRST
        self._begun: _Begun | None = None

    def respond(self, message: bytes, wall_ms: int) -> Reply:
        """The answer to the next message. Raises LoginRefused."""
        state, self._state = self._state, _State.OVER
        try:
            text = message.decode()
        except UnicodeDecodeError:
            raise not_understood(self._mechanism, "Invalid SCRAM message: not text") from None
        if state is _State.FIRST:
            reply = self._first(text, wall_ms)
            self._state = _State.FINAL
            return reply
        if state is _State.FINAL:
            return self._final(text)
        raise not_understood(self._mechanism, "Unexpected challenge in Sasl server state COMPLETE")

    def _first(self, text: str, wall_ms: int) -> Reply:
        found = _FIRST.fullmatch(text)
        if found is None:
            raise not_understood(self._mechanism, "Invalid SCRAM client first message format")
        name = _unescaped(found["name"])
        if found["identity"] and _unescaped(found["identity"]) != name:
            raise not_understood(
                self._mechanism,
                "Client requested an authorization id that is different from username",
            )
        token = None
        if TOKEN in found["more"].split(","):
            token = self._token(name, wall_ms)
        known = self._find(name) if token is None else token.credential
        decoy = self._decoy(name)  # made for a known user, too: it takes time
        credential = decoy if known is None else known
        nonce = found["nonce"] + self._nonce
        salt = base64.b64encode(credential.salt).decode()
        answer = f"r={nonce},s={salt},i={credential.iterations}"
        channel = base64.b64encode(found["header"].encode()).decode()
        said = f"{found['bare']},{answer}"
        self._begun = _Begun(name, channel, nonce, said, credential, known is not None, token)
        return Reply(answer.encode())

    def _token(self, token_id: str, wall_ms: int) -> TokenLogin:
        """Its id is no secret, and cannot be guessed: it is refused at once, as by Kafka."""
        token = self._find_token(token_id)
        if token is None:
            raise invalid_credentials(self._mechanism, f"no delegation token {token_id!r}")
        if token.ends_ms < wall_ms:
            raise invalid_credentials(self._mechanism, f"delegation token {token_id!r} is over")
        return token

    def _final(self, text: str) -> Reply:
        begun, found = self._begun, _FINAL.fullmatch(text)
        assert begun is not None
        if found is None or found["channel"] != begun.channel:
            raise not_understood(self._mechanism, "Invalid SCRAM client final message format")
        if not hmac.compare_digest(found["nonce"], begun.nonce):
            raise not_understood(
                self._mechanism, "Invalid client nonce in the final client message"
            )
        try:
            proof = base64.b64decode(found["proof"], validate=True)
        except ValueError:
            raise not_understood(
                self._mechanism, "Invalid SCRAM client final message format"
            ) from None
        said = f"{begun.said},{found['without_proof']}".encode()
        if not self._proves(proof, said, begun.credential) or not begun.is_known:
            raise invalid_credentials(
                self._mechanism, f"unknown user or wrong password ({begun.name!r})"
            )
        signature = hmac.digest(begun.credential.server_key, said, self._hash)
        answer = b"v=" + base64.b64encode(signature)
        if begun.token is not None:
            return Reply(answer, begun.token.owner, begun.token.ends_ms, is_by_token=True)
        return Reply(answer, begun.name, NO_TIME_MS)

    def _proves(self, proof: bytes, said: bytes, credential: ScramCredential) -> bool:
        signature = hmac.digest(credential.stored_key, said, self._hash)
        if len(proof) != len(signature):
            return False
        client_key = bytes(a ^ b for a, b in zip(proof, signature, strict=True))
        stored_key = hashlib.new(self._hash, client_key).digest()
        return hmac.compare_digest(stored_key, credential.stored_key)


def make_credential(
    mechanism: str, salted_password: bytes, salt: bytes, iterations: int
) -> ScramCredential:
    """What a node keeps, from a password that was hashed with salt and iterations."""
    name = HASHES[mechanism]
    client_key = hmac.digest(salted_password, b"Client Key", name)
    return ScramCredential(
        salt=salt,
        stored_key=hashlib.new(name, client_key).digest(),
        server_key=hmac.digest(salted_password, b"Server Key", name),
        iterations=iterations,
    )


def salted(mechanism: str, password: str, salt: bytes, iterations: int) -> bytes:
    """A password as a client sends it to be kept (KIP-554)."""
    return hashlib.pbkdf2_hmac(HASHES[mechanism], password.encode(), salt, iterations)


def decoy_of(key: bytes, name: str, model: ScramCredential | None) -> ScramCredential:
    """The credential that an unknown user seems to have: always the same for a secret `key` and a
    name, and like `model`, one that exists."""
    size = SALT_BYTES if model is None else len(model.salt)
    iterations = ITERATIONS[0] if model is None else model.iterations
    seed = hmac.digest(key, name.encode(), "sha512")
    salt = hashlib.shake_256(seed).digest(size)
    size = 32 if model is None else len(model.stored_key)
    return ScramCredential(
        salt=salt, stored_key=seed[:size], server_key=seed, iterations=iterations
    )


class Decoys:
    """What unknown users of a mechanism seem to have: the same on all nodes and after a restart,
    as a user's own salt is. The key is of the credential that comes first by name, which only
    nodes know; `key` is used while there is none."""

    def __init__(self, code: int, key: bytes) -> None:
        self._code = code
        self._key = key
        self._seen: Mapping[tuple[int, str], ScramCredential] | None = None
        self._model: ScramCredential | None = None

    def of(self, name: str, known: Mapping[tuple[int, str], ScramCredential]) -> ScramCredential:
        """The decoy of a name while `known` are the credentials by mechanism and name."""
        if known is not self._seen:
            places = (place for place in known if place[0] == self._code)
            first = min(places, default=None)
            self._seen, self._model = known, None if first is None else known[first]
        key = self._key if self._model is None else self._model.server_key
        return decoy_of(key, name, self._model)


def _unescaped(name: str) -> str:
    return name.replace("=2C", ",").replace("=3D", "=")
