"""Credentials of users: what Kafka's ScramControlManager answers."""

from __future__ import annotations

import pytest
from tests.core.token_kit import ALICE, TokenWorld

from anabranch.core.access.scram_credential import ScramCredential
from anabranch.core.controller.scram import added, faults_of
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.features import METADATA_VERSION
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
)
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    ScramCredentialDeletion as Deletion,
)
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    ScramCredentialUpsertion as Upsertion,
)

KNOWN = {(1, "alice"): ScramCredential(b"", b"", b"", 4096)}


def up(name="bob", mechanism=1, iterations=4096):
    return Upsertion(
        name=name, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p"
    )


@pytest.mark.parametrize(
    ("deletions", "upsertions", "code"),
    [
        ([], [up()], None),
        ([Deletion(name="alice", mechanism=1)], [up()], None),
        ([Deletion(name="alice", mechanism=2)], [], ErrorCode.RESOURCE_NOT_FOUND),
        ([Deletion(name="", mechanism=1)], [], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([Deletion(name="alice", mechanism=0)], [], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [up(mechanism=3)], ErrorCode.UNSUPPORTED_SASL_MECHANISM),
        ([], [up(name="")], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [up(name="é" * 512)], None),
        ([], [up(name="é" * 513)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([Deletion(name="é" * 513, mechanism=1)], [], ErrorCode.RESOURCE_NOT_FOUND),
        ([], [up(iterations=4095)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [up(iterations=16385)], ErrorCode.UNACCEPTABLE_CREDENTIAL),
        ([], [up(iterations=16384)], None),
        ([], [up(), up()], ErrorCode.DUPLICATE_RESOURCE),
        ([Deletion(name="alice", mechanism=1)], [up("alice")], ErrorCode.DUPLICATE_RESOURCE),
        ([Deletion(name="alice", mechanism=1)], [up("alice", 2)], None),
    ],
)
def test_what_is_answered(deletions, upsertions, code):
    found = faults_of(KNOWN, deletions, upsertions)
    first = (deletions or upsertions)[0].name
    assert (found[first] and found[first][0]) == code


def test_one_change_that_cannot_be_made_leaves_the_others_of_the_user():
    found = faults_of(KNOWN, [], [up("bob", 1, 1), up("bob", 2), up("carol")])
    assert found["bob"] is not None and found["carol"] is None
    assert found["bob"][0] == ErrorCode.UNACCEPTABLE_CREDENTIAL


def test_the_salted_password_is_not_kept():
    record = added(up())
    assert b"p" not in (record.stored_key, record.server_key) and len(record.stored_key) == 32


def test_below_the_level_of_their_records_there_are_none():
    world = TokenWorld()
    body = AlterUserScramCredentialsRequest(deletions=[], upsertions=[up()])
    world.level(METADATA_VERSION, 10)
    (result,) = world.ask_as(ALICE, body).results
    assert (result.user, result.error_code) == ("bob", ErrorCode.UNSUPPORTED_VERSION)
    assert not world.image.scram
    world.level(METADATA_VERSION, 11)
    (result,) = world.ask_as(ALICE, body).results
    assert result.error_code == ErrorCode.NONE and world.image.scram
