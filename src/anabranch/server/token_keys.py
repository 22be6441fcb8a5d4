"""The keys of an identity provider, and the signatures of tokens that are checked with them.

What: `TokenKeys` has the keys of a JSON Web Key Set as they were last read, and verifies tokens
with them; `is_due` says when they are to be read again: after `refresh_ms`, when a file has
changed, or soon after a token named a key that is not among them. Rules kept: a token names an
algorithm with public keys, never one of a shared secret or none; a key signs with its own kind; a
token of any sender costs a bounded time; keys that cannot be read leave those of before in use,
and are told once. The package `joserfc` does the checking. Source: RFC 7515, RFC 7517, RFC 8725;
Kafka's RefreshingHttpsJwks. Not here: claims (`core/access/bearer.py`).
"""

from __future__ import annotations

import json
import os
import ssl
import urllib.parse
import warnings
from collections.abc import Callable
from typing import Any

from anabranch.client.stores import StoreFault
from anabranch.client.web import Ask, FetchFault, fetch, shown
from anabranch.core.access.bearer import LARGEST_TOKEN_BYTES, Claims, TokenRefused
from anabranch.core.settings.listener_tokens import TokenSettings
from anabranch.server.clocks import steady_ms
from anabranch.server.logs import logger

try:
    from joserfc import jwk, jws
    from joserfc.errors import SecurityWarning
except ImportError:  # the extra `oauth` is not installed
    HAS_PACKAGE = False
else:
    HAS_PACKAGE = True
    warnings.filterwarnings("ignore", category=SecurityWarning)  # which keys do, is decided here

LOG = logger("tokens")

KINDS = {
    **dict.fromkeys(("RS256", "RS384", "RS512", "PS256", "PS384", "PS512"), "RSA"),
    **dict.fromkeys(("ES256", "ES384", "ES512"), "EC"),
    **dict.fromkeys(("EdDSA", "Ed25519"), "OKP"),
}
"""Algorithm -> kind of its keys."""
SMALLEST_RSA_BITS = 2048
"""As RFC 7518 asks for, and Kafka."""
MOST_KEYS = 100
"""More are not a key set."""
MOST_TRIED = 4
"""Keys for one token, which may name none: strangers' tokens are checked while clients wait."""
LARGEST_HEADER_BYTES = 16 << 10
"""It may have a chain of certificates, which is not used."""
RETRY_MS = 5_000
"""Between tries that fail, and between reads for keys that are not there."""
MISSING = (
    "OAUTHBEARER needs the package joserfc: install it (pip install joserfc, the extra oauth), or "
    "take OAUTHBEARER out"
)


class KeysFault(Exception):
    """A key set that cannot be used: the sentence begins with where it is."""


class TokenKeys:
    """See the module. `trust`: whom an https address is trusted by."""

    def __init__(
        self,
        settings: TokenSettings,
        trust: Callable[[], ssl.SSLContext | None] = lambda: None,
        now_ms: Callable[[], int] = steady_ms,
    ) -> None:
        self._settings = settings
        self._trust = trust
        self._now_ms = now_ms
        self._keys: tuple[Any, ...] | None = None
        self._registry = _registry()
        self._due_ms = now_ms()
        self._tried_ms = now_ms() - RETRY_MS
        self._stamp = self._file_stamp()
        self._told = ""

    @property
    def is_due(self) -> bool:
        """Whether `reload` has something to do."""
        return self._now_ms() >= self._due_ms or self._file_stamp() != self._stamp

    def reload(self) -> None:
        """Read the keys again; may take a while."""
        now_ms, stamp = self._now_ms(), self._file_stamp()
        self._tried_ms = now_ms
        try:
            self._keys = self.read()
        except KeysFault as fault:
            self._due_ms = now_ms + RETRY_MS
            self._tell(str(fault))
            return
        self._stamp, self._told = stamp, ""
        self._due_ms = now_ms + max(RETRY_MS, self._settings.refresh_ms)

    def read(self) -> tuple[Any, ...]:
        """The keys as they are now. Raises KeysFault."""
        settings = self._settings
        ask = Ask(
            settings.keys_url,
            connect_seconds=settings.connect_timeout_ms / 1000,
            read_seconds=settings.read_timeout_ms / 1000,
        )
        try:
            return keys_of(fetch(ask, self._trust()))
        except KeysFault as fault:
            where = shown(settings.keys_url)
            raise KeysFault(f"the keys of tokens cannot be read: {where}: {fault}") from None
        except (FetchFault, StoreFault) as fault:
            raise KeysFault(f"the keys of tokens cannot be read: {fault}") from None

    def _tell(self, why: str) -> None:
        if why != self._told:
            self._told = why
            state = "every token is refused" if self._keys is None else "the keys of before stay"
            LOG.warning(state, why=why)

    def _file_stamp(self) -> tuple[int, int, int]:
        url = self._settings.keys_url
        if not url.startswith("file:"):
            return 0, 0, 0
        try:
            found = os.stat(urllib.parse.unquote(urllib.parse.urlsplit(url).path))
        except OSError:
            return 0, 0, 0
        return found.st_mtime_ns, found.st_size, found.st_ino

    def verify(self, token: str) -> Claims:
        """The claims of a token that one of the keys has signed. Raises TokenRefused."""
        if self._keys is None:
            raise TokenRefused("the keys that sign tokens are not known yet")
        try:
            signed = jws.extract_compact(token.encode(), None, self._registry)
            header: Any = signed.headers()
        except Exception:  # of whatever a stranger sent
            raise TokenRefused("it is no signed token") from None
        fitting = self._fitting(header)
        if not any(_is_good(signed, key, self._registry) for key in fitting):
            raise TokenRefused("its signature is wrong")
        try:
            claims = json.loads(signed.payload)
        except (ValueError, RecursionError):
            claims = None
        if not isinstance(claims, dict):
            raise TokenRefused("it has no claims")
        return claims

    def _fitting(self, header: Any) -> list[Any]:
        algorithm, name = header.get("alg"), header.get("kid")
        kind = KINDS.get(algorithm) if isinstance(algorithm, str) else None
        if kind is None:
            raise TokenRefused(f"its algorithm is {str(algorithm)[:16]!r}, none with public keys")
        assert self._keys is not None
        found = [
            each
            for each in self._keys
            if each.key_type == kind
            and (name is None or each.kid == name)
            and each.alg in (None, algorithm)
        ]
        if not found:
            self._due_ms = min(self._due_ms, self._tried_ms + RETRY_MS)
            raise TokenRefused(f"there is no key {str(name)[:64]!r} for {algorithm}")
        if len(found) > MOST_TRIED:
            raise TokenRefused(
                f"it does not tell which of {len(found)} keys for {algorithm} signed it"
            )
        return found


def _registry() -> Any:
    registry = jws.JWSRegistry(algorithms=list(KINDS), strict_check_header=False)
    registry.max_header_length = LARGEST_HEADER_BYTES
    registry.max_payload_length = LARGEST_TOKEN_BYTES
    return registry


def _is_good(signed: Any, key: Any, registry: Any) -> bool:
    try:
        return bool(jws.validate_compact(signed, key, None, registry))
    except Exception:  # of whatever a stranger sent, such as a point that is on no curve
        return False


def keys_of(text: bytes) -> tuple[Any, ...]:
    """The public keys of a JSON Web Key Set that sign; others are left out. Raises KeysFault."""
    try:
        found = json.loads(text)["keys"]
    except (ValueError, TypeError, KeyError, RecursionError):
        raise KeysFault("it is no JSON Web Key Set") from None
    if not isinstance(found, list) or len(found) > MOST_KEYS:
        raise KeysFault(f"a JSON Web Key Set has a list of at most {MOST_KEYS} keys")
    keys = [key for each in found if (key := _key(each)) is not None]
    if not keys:
        raise KeysFault("it has no public key that can sign tokens")
    return tuple(keys)


def _key(value: Any) -> Any:
    if not isinstance(value, dict) or value.get("kty") not in KINDS.values():
        return None
    if value.get("use", "sig") != "sig":
        return None
    try:
        key = jwk.import_key(value)
        native: Any = key.public_key
    except Exception:  # of whatever an address answers
        return None
    too_small = key.key_type == "RSA" and native.key_size < SMALLEST_RSA_BITS
    return None if too_small else key
