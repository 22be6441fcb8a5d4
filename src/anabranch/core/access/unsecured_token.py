"""Tokens without a signature, as Kafka's default classes make and take them: for tries alone.

What: `read_unsecured` is the `Verify` of a listener for which
`sasl.oauthbearer.unsecured.tokens.allow` says that it is meant. Rule kept: a token with a signature
is none of these. Source: RFC 7515 (unsecured JWS).
"""

from __future__ import annotations

import base64
import json
from typing import Any

from anabranch.core.access.bearer import Claims, TokenRefused


def read_unsecured(token: str) -> Claims:
    """The claims of a token that anybody can make. Raises TokenRefused."""
    try:
        header, payload, signature = token.split(".")
        found, claims = _part(header), _part(payload)
    except (ValueError, RecursionError):
        raise TokenRefused("it cannot be read") from None
    if signature or found.get("alg") != "none":
        raise TokenRefused("it is signed, and this listener takes unsecured tokens alone")
    return claims


def _part(text: str) -> dict[str, Any]:
    found = json.loads(base64.b64decode(text + "=" * (-len(text) % 4), "-_", validate=True))
    if not isinstance(found, dict):
        raise ValueError("no object")
    return found
