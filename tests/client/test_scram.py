"""The client's side of SCRAM, against the example of RFC 7677, a server by the book, and a bad one."""

from __future__ import annotations

import base64
import hashlib
import hmac

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.client.scram import MECHANISMS, ScramClient, ScramFault

NONCE = "rOprNGfwEbeRWgbNEkqO"
FIRST = f"r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096".encode()


def test_the_example_of_the_rfc():
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    assert client.first() == f"n,,n=user,r={NONCE}".encode()
    assert (
        client.final(FIRST)
        == (
            f"c=biws,r={NONCE}%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
            "p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
        ).encode()
    )
    client.check(b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4=")


@given(
    mechanism=st.sampled_from(sorted(MECHANISMS)),
    username=st.text(min_size=1, max_size=8), password=st.text(max_size=8),
    wrong=st.booleans(), salt=st.binary(min_size=1, max_size=16),
)  # fmt: skip
def test_a_server_by_the_book_lets_in_who_knows_the_password(
    mechanism, username, password, wrong, salt
):
    if "\ud800" <= max(username + password, default="") <= "\udfff":
        return
    name = MECHANISMS[mechanism]
    client = ScramClient(mechanism, username, password, "abc")
    first_bare = client.first().decode()[3:]
    server_first = f"r=abcdef,s={base64.b64encode(salt).decode()},i=4096"
    final = client.final(server_first.encode()).decode()
    without_proof, _, proof = final.rpartition(",p=")
    known = password + "!" if wrong else password
    salted = hashlib.pbkdf2_hmac(name, known.encode(), salt, 4096)
    said = f"{first_bare},{server_first},{without_proof}".encode()
    client_key = hmac.digest(salted, b"Client Key", name)
    stored_key = hashlib.new(name, client_key).digest()
    signature = hmac.digest(stored_key, said, name)
    found = bytes(a ^ b for a, b in zip(base64.b64decode(proof), signature, strict=True))
    assert (hashlib.new(name, found).digest() == stored_key) != wrong
    server_key = hmac.digest(salted, b"Server Key", name)
    last = b"v=" + base64.b64encode(hmac.digest(server_key, said, name))
    if wrong:
        with pytest.raises(ScramFault, match="does not prove"):
            client.check(last)
    else:
        client.check(last)


@pytest.mark.parametrize(
    ("first", "why"),
    [
        (b"r=other,s=AAAA,i=4096", "does not continue"),
        (f"r={NONCE},s=AAAA,i=4096".encode(), "does not continue"),
        (f"r={NONCE}x,s=AAAA,i=1".encode(), "asks for 1 iterations"),
        (f"r={NONCE}x,s=AAAA,i=99999999".encode(), "asks for 99999999 iterations"),
        (f"r={NONCE}x,s=AAAA,i=many".encode(), "cannot be read"),
        (f"r={NONCE}x,i=4096".encode(), "cannot be read"),
        (b"", "cannot be read"),
        (b"\xff", "not text"),
    ],
)
def test_a_server_that_breaks_the_rules_is_refused(first, why):
    with pytest.raises(ScramFault, match=why):
        ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE).final(first)


@pytest.mark.parametrize("last", [b"", b"v=", b"v=AAAA", b"v=&", b"e=other-error", b"\xff"])
def test_a_server_that_does_not_know_the_password_is_refused(last):
    client = ScramClient("SCRAM-SHA-256", "user", "pencil", NONCE)
    client.final(FIRST)
    with pytest.raises(ScramFault):
        client.check(last)
