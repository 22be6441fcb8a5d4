"""The login target: what clients send before they have shown who they are.

    input:  frame …      a frame is a byte, what it is, and then what it holds:
            0 to 127: SaslHandshake, its mechanism and version | 128 to 255: a message of the
            mechanism

The rule in one sentence: each frame is answered, refused or hung up on without an exception, and a
session is a user's only after a message that proves this user's password.
"""

from __future__ import annotations

import base64
import json
import re
from random import Random
from types import SimpleNamespace
from typing import Any

from anabranch.core.access.bearer import BearerServer, TokenRules
from anabranch.core.access.plain import PlainServer
from anabranch.core.access.principal import ANONYMOUS
from anabranch.core.access.scram_server import (
    HASHES,
    ScramServer,
    decoy_of,
    make_credential,
    salted,
)
from anabranch.core.access.unsecured_token import read_unsecured
from anabranch.core.broker.authentication import Clock, Logins, authenticate, handshake
from anabranch.core.broker.gate import Session
from anabranch.core.outcome import Accept, Hangup, Refuse
from anabranch.core.request import Request
from anabranch.core.wire.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from fuzz import chunks, havoc
from fuzz.chunks import join, split
from fuzz.target import Features, Target
from fuzz.verdict import expect

PASSWORD = "right"
NAMES = ("PLAIN", *HASHES, "GSSAPI", "OAUTHBEARER")
TOKEN = 128
RIGHT = (b"\0alice\0right", b"alice\0alice\0right")
"""What proves the password of PLAIN; of SCRAM nothing does, since no input knows the nonce."""
RULES = TokenRules(needs_time_of_issue=False)
_TOKEN = re.compile(rb"bearer +[-\w~+/]+\.([-\w~+/]+)", re.IGNORECASE)
END = 100
"""When the tokens that come first end, in seconds; the time of a frame is its number."""
KEY = b"k" * 32
USERS = {
    name: {"alice": make_credential(name, salted(name, PASSWORD, b"salt", 4096), b"salt", 4096)}
    for name in HASHES
}


def scram(name: str, nonce: str) -> ScramServer:
    """A login of a mechanism of SCRAM."""
    users = USERS[name]
    return ScramServer(name, users.get, nonce, lambda user: decoy_of(KEY, user, users["alice"]))


def node(nonce: str) -> Any:
    """Whose listener has all mechanisms."""
    begin: dict[str, Any] = {"PLAIN": lambda: PlainServer({"alice": PASSWORD.encode()})}
    begin |= {name: lambda name=name: scram(name, nonce) for name in HASHES}
    begin["OAUTHBEARER"] = lambda: BearerServer(read_unsecured, RULES)
    return SimpleNamespace(logins={"L": Logins(begin, {"PLAIN": 1_000})})


def run(entry: bytes) -> Features:
    """Give a connection the frames, in order, until it is closed."""
    features: Features = set()
    at, session = node(str(len(entry))), Session(ANONYMOUS, is_restricted=True)
    for number, frame in enumerate(split(entry)):
        if not frame:
            continue
        outcome = _asked(at, session, frame, number)
        name = session.login.name if session.login is not None else ""
        features.add((type(outcome).__name__, name, number))
        if isinstance(outcome, Accept):
            _check_user(session, outcome, frame[1:])
            session.accept(outcome.principal, outcome.expires_ms)
        elif isinstance(outcome, Hangup | Refuse):
            break
        else:
            kinds = (SaslHandshakeResponse, SaslAuthenticateResponse)
            expect(isinstance(outcome, kinds), "a frame is answered by what it asks for")
    return features


def _check_user(session: Session, outcome: Accept, message: bytes) -> None:
    if session.mechanism != "OAUTHBEARER":
        expect(message in RIGHT, "only a message that proves the password is accepted")
        expect(outcome.principal.name == "alice", "a session is the user's who has proved it")
        return
    expect(outcome.expires_ms > 0, "a token's session has an end")
    (found,) = _TOKEN.findall(message)
    claims = json.loads(base64.b64decode(found + b"=" * (-len(found) % 4), b"-_"))
    expect(claims["sub"] == outcome.principal.name, "a session is the user's whom its token names")
    expect(claims["exp"] > -RULES.skew_seconds, "a token that has ended is refused")


def _asked(at: Any, session: Session, frame: bytes, number: int) -> Any:
    kind, held = frame[0], frame[1:]
    if kind < TOKEN:
        body: Any = SaslHandshakeRequest(mechanism=NAMES[kind % len(NAMES)])
        request = Request(17, kind % 2, 0, None, body, ANONYMOUS, "L", "", 0, session)
        return handshake(at, request)
    body = SaslAuthenticateRequest(auth_bytes=held)
    request = Request(36, 0, 0, None, body, ANONYMOUS, "L", "", 0, session)
    return authenticate(at, request, Clock(number, number, number))


def token(**claims: object) -> bytes:
    """The first message of a login with a token that has no signature."""
    parts = ({"alg": "none"}, {"sub": "alice", "exp": END, **claims})
    texts = (base64.urlsafe_b64encode(json.dumps(each).encode()).rstrip(b"=") for each in parts)
    return b"n,,\x01auth=Bearer " + b".".join(texts) + b".\x01\x01"


FIRST = (
    b"\0alice\0right", b"\0alice\0wrong", b"alice\0alice\0right", b"bob\0alice\0right",
    b"n,,n=alice,r=abc", b"n,a=alice,n=alice,r=abc", b"n,,n=a=2Cb,r=abc,tokenauth=true",
    b"c=biws,r=abc3,p=AAAA", b"c=biws,r=abc3,p=", b"", b"\x01", b"n,,\x01auth=Bearer x\x01\x01",
    token(), token(sub=""), token(exp=-END), token(exp=1e300, nbf=0), token(nbf=END),
    token(exp="x"), token(aud=["x"], scope=[]), token().replace(b"n,,", b"n,a=bob,"),
)  # fmt: skip


def frame(random: Random) -> bytes:
    """A frame, most often a message."""
    kind = random.choice([random.randrange(TOKEN), 200, 200])
    return bytes((kind,)) + (random.choice(FIRST) if kind >= TOKEN else b"")


def make(random: Random) -> bytes:
    """A conversation that begins as one should."""
    count = random.randint(1, 4)
    return join([bytes((random.randrange(TOKEN),)), *(frame(random) for _ in range(count))])


def change(random: Random, entry: bytes, other: bytes) -> bytes:
    """Another conversation."""
    return chunks.change(random, entry, other, frame, havoc.change)


TARGET = Target(
    "login", run, make, change, share=3, steps=lambda entry: len(split(entry)), parts=chunks.parts,
    seeds=lambda: [join([b"\0", b"\xc8" + each]) for each in FIRST],
)  # fmt: skip
