"""Tokens of those who may read a node's pages over HTTP: a file with one a line.

What: `tokens_of` reads its text, `is_let_in` judges the header `Authorization: Bearer TOKEN`. Rule
kept: a comparison takes as long for any token, and none is repeated in an error. Source: RFC 6750.
Not here: the file (`server/http_guard.py`).
"""

from __future__ import annotations

import hashlib
import hmac
import re
from collections.abc import Sequence

LEAST_LETTERS = 16
"""A shorter one is soon guessed."""
MOST_TOKENS = 100
_TOKEN = re.compile(r"[-A-Za-z0-9._~+/]+=*")
_BEARER = re.compile(r"bearer +(\S+)", re.IGNORECASE)


class TokensFault(ValueError):
    """A text that cannot be used; the sentence repeats none of it."""


def tokens_of(text: str) -> tuple[bytes, ...]:
    """The digests of the tokens; lines that are empty or begin with # do not count. Raises
    TokensFault."""
    found = []
    for number, line in enumerate(text.splitlines(), 1):
        token = line.strip()
        if not token or token.startswith("#"):
            continue
        if not _TOKEN.fullmatch(token) or len(token) < LEAST_LETTERS:
            raise TokensFault(
                f"line {number} is no token: write at least {LEAST_LETTERS} letters, digits or "
                "-._~+/ without blanks, such as `openssl rand -hex 32` prints"
            )
        found.append(_digest(token))
    if not 0 < len(found) <= MOST_TOKENS:
        raise TokensFault(f"write between 1 and {MOST_TOKENS} tokens, each on a line of its own")
    return tuple(found)


def is_let_in(header: str, tokens: Sequence[bytes]) -> bool:
    """Whether a header `Authorization` has one of the tokens."""
    given = _BEARER.fullmatch(header.strip())
    digest = _digest(given[1]) if given is not None else b""
    same = [hmac.compare_digest(digest, each) for each in tokens]
    return True in same


def _digest(token: str) -> bytes:
    return hashlib.sha256(token.encode("utf-8", "surrogateescape")).digest()
