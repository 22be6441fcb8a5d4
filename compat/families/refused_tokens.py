"""OAUTHBEARER with tokens that must be refused: what a client is told, message by message.

A client library logs in again and again and tells of one fault in many ways, so requests are sent
as they are here: a connection for each token, a handshake, the token, and what a client answers to
a refusal. The node and its provider are those of `tokens.py`.
"""

from __future__ import annotations

import time
from typing import Any

from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest
from compat.families.tokens import ISSUER, TokenPeer, with_tokens
from compat.peer import Peer
from compat.rights_wire import Wire
from compat.row import Failed, row
from compat.token_provider import claims_of, first_message, new_key, signed, unsecured

HOUR = 3_600
"""Far more than clocks may differ by."""
UNDERSTOOD = b"\x01"
"""What a client says that has read why its token is refused."""
CHANGED: dict[str, dict[str, Any]] = {
    "of another issuer": {"iss": "https://other"},
    "of no issuer": {"iss": None},
    "for another audience": {"aud": "other"},
    "for no audience": {"aud": None},
    "for audiences without ours": {"aud": ["a", "b"]},
    "without a subject": {"sub": None},
    "with an empty subject": {"sub": ""},
    "with a blank subject": {"sub": " "},
    "with a subject that is a number": {"sub": 7},
    "with an empty scope": {"scope": ""},
    "with a blank scope": {"scope": " "},
    "with a scope of blanks": {"scope": ["a", " "]},
    "without an end": {"exp": None},
    "with an end that is no time": {"exp": "soon"},
    "without a time of issue": {"iat": None},
}
"""Claims that are otherwise than in a token that is taken; None: not there."""
GOOD: dict[str, dict[str, Any]] = {
    "as they should be": {},
    "for ours among audiences": {"aud": ["a", ISSUER["aud"]]},
    "with scopes": {"scope": ["a", "b"]},
    "with no scopes": {"scope": []},
}
MESSAGES = {
    "nothing": b"",
    "no token": b"n,,\x01auth=Bearer \x01\x01",
    "no auth": b"n,,\x01host=x\x01\x01",
    "no header": b"auth=Bearer x\x01\x01",
    "no end": b"n,,\x01auth=Bearer x",
    "what PLAIN says": b"\0alice\0alice-secret",
    "no text": b"\xff\xfe\xfd",
}
"""First messages that have no token, or cannot be read. Not here: another scheme than Bearer, upon
which Kafka closes the connection without an answer."""


def claims(**more: Any) -> dict[str, Any]:
    """What a token that is taken says, but for `more`."""
    found = claims_of(**ISSUER) | more
    return {name: value for name, value in found.items() if value is not None}


def tokens(here: TokenPeer) -> dict[str, str]:
    """The tokens by what is wrong with them."""
    key, now = here.provider.key, int(time.time())
    good = signed(key, "RS256", claims())
    head, body, signature = good.split(".")
    other = signed(key, "RS256", claims(sub="bob")).split(".")
    return {
        **{name: signed(key, "RS256", claims(**more)) for name, more in CHANGED.items()},
        "expired": signed(key, "RS256", claims(iat=now - 2 * HOUR, exp=now - HOUR)),
        "not valid yet": signed(key, "RS256", claims(nbf=now + HOUR, exp=now + 2 * HOUR)),
        "issued after its end": signed(key, "RS256", claims(iat=now + 2 * HOUR, exp=now + HOUR)),
        "signed with another key of this name": signed(new_key("RSA", "one"), "RS256", claims()),
        "signed with a key of another name": signed(new_key("RSA", "two"), "RS256", claims()),
        "signed with a key of another kind": signed(new_key("P-256", "one"), "ES256", claims()),
        "with the signature of another": f"{head}.{body}.{other[2]}",
        "with claims of another": f"{head}.{other[1]}.{signature}",
        "with its signature cut off": f"{head}.{body}.",
        "with half its signature": good[: -len(signature) // 2],
        "unsigned": unsecured(claims()),
        "of an unknown algorithm": unsecured(claims(), {"alg": "XS256", "kid": "one"}),
        "whose claims are a text": signed(key, "RS256", b'"alice"'),
        "whose claims are no JSON": signed(key, "RS256", b"alice"),
        "one word": "x",
        "dots alone": "..",
        "three words": "a.b.c",
    }


def said(here: TokenPeer, message: bytes) -> list[Any]:
    """What the node answers to a first message, and to the client that has read a refusal."""
    wire = Wire(here.addresses["PLAIN"])
    shaken = wire.ask(SaslHandshakeRequest("OAUTHBEARER"))
    if shaken is None or shaken.error_code:
        raise Failed(f"no handshake: {shaken}")
    answers = [told(here, wire.ask(SaslAuthenticateRequest(message)))]
    if answers[0][0] == 0 and answers[0][1]:
        answers.append(told(here, wire.ask(SaslAuthenticateRequest(UNDERSTOOD))))
    wire.close()
    return answers


def told(here: TokenPeer, answer: Any) -> list[Any]:
    """Code and the mechanism's bytes; the sentence is for people."""
    if answer is None:
        return ["hangs up", ""]
    here.say(answer.error_message or "")
    return [int(answer.error_code), bytes(answer.auth_bytes).decode()]


@row("secure-oauth-refused")
def refuses(peer: Peer) -> object:
    """Tokens that are expired, not valid yet, of another issuer, audience or key, unsigned, or none
    at all are refused with the same codes and bytes."""
    with with_tokens(peer) as here:
        good = first_message(signed(here.provider.key, "RS256", claims()))
        here.wait(lambda: said(here, good) == [[0, ""]], "a token that is taken")
        messages = {
            **{name: first_message(signed(here.provider.key, "RS256", claims(**more)))
               for name, more in GOOD.items()},
            **{name: first_message(token) for name, token in tokens(here).items()},
            "for another user": first_message(signed(here.provider.key, "RS256", claims()), "bob"),
            **MESSAGES,
        }  # fmt: skip
        seen = {name: said(here, message) for name, message in messages.items()}
    let_in = {name for name, answers in seen.items() if answers == [[int(ErrorCode.NONE), ""]]}
    if let_in != {*GOOD}:
        raise Failed(f"taken, or not: {sorted(let_in ^ {*GOOD})}")
    return seen
