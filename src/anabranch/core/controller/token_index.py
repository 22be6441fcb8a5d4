"""Delegation tokens by their HMACs and by their ends, kept beside the planned image.

Why: a request names a token by its HMAC, which does not tell the id, and there may be 100,000 of
them: no request about one, and no tick, may look at all. Rules kept: what is found is a token
of the image that is given, whatever this has seen; an HMAC is compared as a whole and in constant
time with that of the one token that begins with the same bytes. Each token is hashed once in a
term, when that begins or when the token is made. Not here: what an HMAC is
(`core/access/delegation_tokens.py`).
"""

from __future__ import annotations

import hmac
from collections.abc import Iterable
from heapq import heapify, heappop, heappush

from anabranch.core.access.delegation_tokens import HASH, DelegationToken, Tokens

PREFIX_BYTES = 16
"""Of an HMAC, by which it is looked up: no two tokens' begin alike."""
LEAST_ENDS = 1_000
"""So many ends are kept without looking whether they are still those of tokens."""


class TokenIndex:
    """The tokens of one term, whose secret is "" where there are none."""

    def __init__(self, secret: str, tokens: Tokens) -> None:
        self._secret = hmac.new(secret.encode(), digestmod=HASH)
        self._ids = {self._hmac(each)[:PREFIX_BYTES]: each for each in tokens}
        self._ends: list[tuple[int, str]] = []
        self._read_ends(tokens)

    def follow(self, tokens: Tokens, changed: Iterable[str]) -> None:
        """The tokens with these ids were made, changed or removed; `tokens` has them all."""
        for token_id in changed:
            token, prefix = tokens.get(token_id), self._hmac(token_id)[:PREFIX_BYTES]
            if token is None:
                self._ids.pop(prefix, None)
            else:
                self._ids[prefix] = token_id
                heappush(self._ends, (token.end_ms, token_id))
        if len(self._ends) > 2 * len(tokens) + LEAST_ENDS:  # of tokens that were changed since
            self._read_ends(tokens)

    def find(self, tokens: Tokens, token_hmac: bytes) -> DelegationToken | None:
        """The token that an HMAC belongs to."""
        token_id = self._ids.get(token_hmac[:PREFIX_BYTES])
        if token_id is None or not hmac.compare_digest(self._hmac(token_id), token_hmac):
            return None
        return tokens.get(token_id)

    def over(self, tokens: Tokens, wall_ms: int, most: int) -> list[str]:
        """Ids of at most so many tokens that are over, those that ended first before others."""
        found: dict[str, DelegationToken] = {}
        while self._ends and self._ends[0][0] < wall_ms and len(found) < most:
            _, token_id = heappop(self._ends)
            token = tokens.get(token_id)
            if token is not None and token.is_over(wall_ms):
                found[token_id] = token
        for token_id, token in found.items():  # until they are removed
            heappush(self._ends, (token.end_ms, token_id))
        return list(found)

    def _read_ends(self, tokens: Tokens) -> None:
        self._ends = [(token.end_ms, token_id) for token_id, token in tokens.items()]
        heapify(self._ends)

    def _hmac(self, token_id: str) -> bytes:
        made = self._secret.copy()
        made.update(token_id.encode())
        return made.digest()
