"""SCRAM's server against the client of this project, and against what no client may send."""

from __future__ import annotations

import base64
from random import Random

import pytest

from anabranch.client import scram
from anabranch.client.scram import ScramClient, ScramFault
from anabranch.core.access.login import LoginRefused
from anabranch.core.access.scram_server import (
    HASHES,
    Decoys,
    ScramServer,
    decoy_of,
    make_credential,
    salted,
)

KEY = b"k" * 32
NAMES = ("alice", "a,b", "x=y", "=2C", "名前", "o'neil")


class Other(ScramClient):
    """A client that proves the password with a last message about another header."""

    def _proved(self, server_first, nonce, salt, iterations):
        before, scram.CHANNEL = scram.CHANNEL, "eSws"
        try:
            return super()._proved(server_first, nonce, salt, iterations)
        finally:
            scram.CHANNEL = before


def credential(mechanism, password, salt=b"salt", iterations=4096):
    return make_credential(
        mechanism, salted(mechanism, password, salt, iterations), salt, iterations
    )


def server_of(mechanism, users, nonce="server"):
    return ScramServer(
        mechanism, users.get, nonce, lambda name: decoy_of(KEY, name, next(iter(users.values())))
    )


def log_in(server, client):
    """The user; raises LoginRefused or ScramFault."""
    first = server.respond(client.first(), 0)
    assert first.user is None
    last = server.respond(client.final(first.answer), 0)
    client.check(last.answer)
    return last.user


@pytest.mark.parametrize("mechanism", HASHES)
@pytest.mark.parametrize("name", NAMES)
def test_a_user_is_let_in_with_its_password(mechanism, name):
    users = {name: credential(mechanism, "pässword, =")}
    client = ScramClient(mechanism, name, "pässword, =", "client")
    assert log_in(server_of(mechanism, users), client) == name


def refusal(mechanism, users, name, password):
    server = server_of(mechanism, users)
    client = ScramClient(mechanism, name, password, "client")
    first = server.respond(client.first(), 0)
    with pytest.raises(LoginRefused) as refused:
        server.respond(client.final(first.answer), 0)
    return first.answer, refused.value


@pytest.mark.parametrize("mechanism", HASHES)
def test_an_unknown_user_cannot_be_told_from_a_wrong_password(mechanism):
    users = {"alice": credential(mechanism, "right", b"s" * 20, 8192)}
    first, wrong = refusal(mechanism, users, "alice", "wrong")
    other, unknown = refusal(mechanism, users, "bob", "right")
    assert wrong.told == unknown.told
    shape = [[part[:2] for part in answer.split(b",")] for answer in (first, other)]
    assert shape[0] == shape[1]
    assert first.split(b",i=")[1] == other.split(b",i=")[1], "the count of iterations tells"
    assert len(first) == len(other), "the length of the salt tells"
    assert refusal(mechanism, users, "bob", "x")[0] == other, "a salt that changes tells"


@pytest.mark.parametrize("mechanism", HASHES)
def test_a_decoy_is_never_let_in(mechanism):
    """Not even by who knows the keys that an unknown user seems to have."""
    made = credential(mechanism, "right")
    server = ScramServer(mechanism, lambda _name: None, "server", lambda _name: made)
    with pytest.raises(LoginRefused):
        log_in(server, ScramClient(mechanism, "bob", "right", "client"))


def test_nodes_agree_on_what_an_unknown_user_has():
    """Else its salt would tell it from a user that there is."""
    mine, other = credential("SCRAM-SHA-256", "right"), credential("SCRAM-SHA-512", "right")
    known = {(1, "bob"): credential("SCRAM-SHA-256", "x"), (2, "a"): other, (1, "alice"): mine}
    turned = dict(reversed(known.items()))
    decoys = [Decoys(1, bytes([number]) * 32) for number in range(3)]
    seen = {each.of("eve", world) for each in decoys for world in (known, turned)}
    assert len(seen) == 1 and len(seen.pop().salt) == len(mine.salt)
    assert decoys[0].of("eve", known).salt != decoys[0].of("mallory", known).salt
    assert decoys[0].of("eve", {}) != decoys[1].of("eve", {})


def test_a_proof_is_good_for_one_login():
    users = {"alice": credential("SCRAM-SHA-256", "right")}
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "client")
    first = server_of("SCRAM-SHA-256", users).respond(client.first(), 0)
    proof = client.final(first.answer)
    again = server_of("SCRAM-SHA-256", users, nonce="another")
    again.respond(client.first(), 0)
    with pytest.raises(LoginRefused, match="nonce"):
        again.respond(proof, 0)


@pytest.mark.parametrize(
    "message",
    [
        b"", b"n,,", b"n,,n=,r=x", b"n,,n=a=b,r=x", b"p=tls-unique,,n=alice,r=x", b"y,,n=alice,r=x",
        b"n,a=bob,n=alice,r=x", b"n,,n=alice,r=", b"n,,r=x,n=alice", b"\xff\xfe", b"n,,n=al\0ice,r=x",
        b"n,,n=alice,r=x,tokenauth=true",
    ],
)  # fmt: skip
def test_a_first_message_that_is_none_is_refused(message):
    users = {"alice": credential("SCRAM-SHA-256", "right")}
    with pytest.raises(LoginRefused):
        server_of("SCRAM-SHA-256", users).respond(message, 0)


@pytest.mark.parametrize("seed", range(200))
def test_a_changed_last_message_is_refused(seed):
    """A byte changed, left out or added anywhere, or cut, or the proof of nothing."""
    random, mechanism = Random(seed), Random(seed).choice(list(HASHES))
    users = {"alice": credential(mechanism, "right")}
    server, client = server_of(mechanism, users), ScramClient(mechanism, "alice", "right", "c")
    said = bytearray(client.final(server.respond(client.first(), 0).answer))
    at = random.randrange(len(said))
    act = random.choice(["change", "remove", "add", "cut", "empty proof"])
    if act == "change":
        said[at] ^= 1 << random.randrange(7)
    elif act == "remove":
        del said[at]
    elif act == "add":
        said.insert(at, random.randrange(256))
    elif act == "cut":
        del said[at:]
    else:
        del said[said.index(b",p=") + 3 :]
    # Base64 has bits that say nothing in the letter before its padding.
    is_same = act == "change" and said[at + 1 : at + 2] == b"="
    try:
        assert server.respond(bytes(said), 0).user is None or is_same
    except LoginRefused:
        return
    assert is_same


def test_the_last_message_repeats_how_the_first_began():
    """Else one who changes it on its way could take channel binding away."""
    users = {"alice": credential("SCRAM-SHA-256", "right")}
    server, client = (
        server_of("SCRAM-SHA-256", users),
        Other("SCRAM-SHA-256", "alice", "right", "c"),
    )
    first = server.respond(client.first(), 0)
    with pytest.raises(LoginRefused, match="final message"):
        server.respond(client.final(first.answer), 0)


def test_nothing_follows_the_end():
    users = {"alice": credential("SCRAM-SHA-512", "right")}
    server = server_of("SCRAM-SHA-512", users)
    client = ScramClient("SCRAM-SHA-512", "alice", "right", "client")
    proof = client.final(server.respond(client.first(), 0).answer)
    server.respond(proof, 0)
    with pytest.raises(LoginRefused, match="COMPLETE"):
        server.respond(proof, 0)


def test_the_client_is_not_fooled_by_another_server():
    users = {"alice": credential("SCRAM-SHA-256", "other")}
    server = server_of("SCRAM-SHA-256", users)
    client = ScramClient("SCRAM-SHA-256", "alice", "right", "client")
    client.final(server.respond(client.first(), 0).answer)
    with pytest.raises(ScramFault):
        client.check(b"v=" + base64.b64encode(b"\0" * 32))


def test_refusals_have_no_secret():
    users = {"alice": credential("SCRAM-SHA-256", "right")}
    _, refused = refusal("SCRAM-SHA-256", users, "alice", "topsecret")
    assert "topsecret" not in str(refused) + refused.told
