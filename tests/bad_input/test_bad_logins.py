"""Logins, certificates and rights that are wrong, on listeners that ask for them."""

from __future__ import annotations

import math
import ssl
import time
from datetime import timedelta

import pytest
from bad_kit import SECONDS, Raw, framed
from secured_kit import DELAY_SECONDS, PASSWORD, Guest

from anabranch.client.scram import ScramClient
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
    OpData,
)
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from anabranch.core.wire.messages.create_acls import AclCreation, CreateAclsRequest
from anabranch.core.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.core.wire.messages.metadata import MetadataRequest
from anabranch.testing.certificates import Authority

REFUSED = ErrorCode.SASL_AUTHENTICATION_FAILED


def refusal(node, mechanism, user):
    """How a wrong password of a user is answered, and after how many seconds."""
    with Guest(node) as guest:
        assert guest.begin(mechanism) == 0
        began = time.monotonic()
        if mechanism == "PLAIN":
            answer = guest.say(f"\0{user}\0guessed".encode())
        else:
            client = ScramClient(mechanism, user, "guessed", "nonce")
            answer = guest.say(client.final(guest.say(client.first()).auth_bytes))
        took = time.monotonic() - began
        assert guest.ended()
    return answer.error_code, answer.error_message.replace(user, "USER"), took


@pytest.mark.parametrize("mechanism", ["PLAIN", "SCRAM-SHA-256"])
def test_wrong_passwords_and_unknown_users(secured, mechanism):
    known, unknown = (refusal(secured, mechanism, user) for user in ("alice", "nobody"))
    assert known[:2] == unknown[:2] and known[0] == REFUSED
    assert min(known[2], unknown[2]) >= DELAY_SECONDS
    assert "guessed" not in secured.says("a login is refused")


def test_a_mechanism_that_a_listener_does_not_offer(secured):
    with Guest(secured, "SCRAM") as guest:
        assert guest.begin("PLAIN") == ErrorCode.UNSUPPORTED_SASL_MECHANISM
        assert guest.ended()
    secured.says("asks for SASL mechanism", "PLAIN")


def test_a_login_that_is_replayed(secured):
    said = []
    for _ in range(2):
        with Guest(secured) as guest:
            assert guest.begin("SCRAM-SHA-256") == 0
            client = ScramClient("SCRAM-SHA-256", "alice", PASSWORD, "nonce")
            first = guest.say(client.first())
            said.append(said[0] if said else client.final(first.auth_bytes))
            answer = guest.say(said[-1])
            assert answer.error_code == (REFUSED if len(said) == 2 else 0)
            if len(said) == 2:
                assert guest.ended()
    secured.says("a login is refused", "nonce")


def test_requests_before_the_login(secured):
    with Guest(secured) as guest:
        assert guest.send(framed(MetadataRequest(topics=None), 12)).ended()
    secured.says("closing a connection", "LOGIN")


def test_a_megabyte_before_the_login(secured):
    with Guest(secured) as guest:
        assert guest.begin("PLAIN") == 0
        guest.send((1 << 20).to_bytes(4, "big") + bytes(10_000))
        assert guest.ended()
    secured.says("closing a connection", "LOGIN")


def shake(node, context):
    """A handshake, and an answer to what comes after it: with TLS 1.3 a server that refuses a
    client's certificate says so only then."""
    with Guest(node, "MTLS", context) as guest:
        guest.socket.settimeout(SECONDS)
        guest.socket.sendall(framed(MetadataRequest(topics=None), 12))
        if not guest.socket.recv(1):
            raise ConnectionResetError


@pytest.mark.parametrize("case", ["none", "another authority", "expired"])
def test_certificates_that_do_not_let_in(secured, tmp_path, case):
    shown = {
        "none": lambda: None,
        "another authority": lambda: Authority(tmp_path).issue("alice"),
        "expired": lambda: secured.authority.issue("old", valid=timedelta(days=-1)),
    }[case]()
    context = secured.trust()
    if shown is not None:
        context.load_cert_chain(shown.chain, shown.key)
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake(secured, context)
    secured.says("a TLS handshake failed", "MTLS")


@pytest.mark.filterwarnings("ignore:ssl.TLSVersion")
def test_an_older_version_of_tls(secured):
    context = secured.trust()
    context.set_ciphers("DEFAULT@SECLEVEL=0")
    context.minimum_version = ssl.TLSVersion.TLSv1
    context.maximum_version = ssl.TLSVersion.TLSv1_1
    with pytest.raises((ssl.SSLError, ConnectionError)):
        shake(secured, context)
    secured.says("a TLS handshake failed", "MTLS")


RIGHT = {
    "resource_type": 2, "resource_name": "t", "principal": "User:a", "host": "*", "operation": 3,
    "permission_type": 3,
}  # fmt: skip


@pytest.mark.parametrize(
    "odd",
    [
        {"resource_name": ""}, {"resource_type": 99}, {"resource_type": -1}, {"principal": "a"},
        {"principal": ""}, {"operation": 1}, {"operation": 99}, {"permission_type": 1},
        {"resource_pattern_type": 2}, {"resource_type": 4},
    ],
    ids=str,
)  # fmt: skip
def test_access_rules_that_cannot_be(secured, odd):
    with Raw(secured) as client:
        answer = client.ask(CreateAclsRequest([AclCreation(**{**RIGHT, **odd})]), 3).results[0]
        assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.error_message


@pytest.mark.parametrize("name", ["\n\0\x1b[31m", "ü" * 10_000, "a,b;c=d", " "], ids=repr)
def test_access_rules_with_odd_names(secured, name):
    rule = {**RIGHT, "resource_name": name, "principal": f"User:{name}"}
    wanted = DeleteAclsFilter(1, name, 1, None, None, 1, 1)
    with Raw(secured) as client:
        assert client.ask(CreateAclsRequest([AclCreation(**rule)]), 3).results[0].error_code == 0
        (removed,) = client.ask(DeleteAclsRequest([wanted]), 3).filter_results
        assert [each.resource_name for each in removed.matching_acls] == [name]
    assert not [line for line in secured.lines if "\x1b" in line or "\0" in line]


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, 0.5, 1e30], ids=str)
def test_quotas_that_cannot_be(secured, value):
    entry = EntryData([EntityData("user", "a")], [OpData("producer_byte_rate", value, False)])
    with Raw(secured) as client:
        answer = client.ask(AlterClientQuotasRequest([entry]), 1).entries[0]
    assert answer.error_code == ErrorCode.INVALID_REQUEST and answer.error_message


def test_users_that_cannot_be(secured):
    upsertions = [
        ScramCredentialUpsertion("few", 1, 4095, b"salt", bytes(32)),
        ScramCredentialUpsertion("many", 1, 16_385, b"salt", bytes(32)),
        ScramCredentialUpsertion("", 1, 4096, b"salt", bytes(32)),
        ScramCredentialUpsertion("other", 9, 4096, b"salt", bytes(32)),
    ]
    unknown = [ScramCredentialDeletion("unknown", 1)]
    with Raw(secured) as client:
        wanted = AlterUserScramCredentialsRequest(unknown, upsertions)
        found = {each.user: each for each in client.ask(wanted, 0).results}
    codes = {user: each.error_code for user, each in found.items()}
    unacceptable = ErrorCode.UNACCEPTABLE_CREDENTIAL
    assert codes == {
        "few": unacceptable, "many": unacceptable, "": unacceptable,
        "other": ErrorCode.UNSUPPORTED_SASL_MECHANISM, "unknown": ErrorCode.RESOURCE_NOT_FOUND,
    }  # fmt: skip
    assert all(each.error_message for each in found.values())
