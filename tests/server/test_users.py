"""Users that log in with SCRAM: made with our commands and librdkafka, at the start, and gone again."""

from __future__ import annotations

import json
import time

import msgspec
import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialDeletion,
    UserScramCredentialUpsertion,
)
from tests.server.secure_kit import ADMIN, SecureNode

from anabranch.cli.main import main
from anabranch.cli.serve import first_users

SECONDS = 20
MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    running = SecureNode(tmp_path_factory.mktemp("users"))
    file = tmp_path_factory.mktemp("first") / "users"
    file.write_text("SCRAM-SHA-256=[name=first,password=first-secret]\n\n")
    running.config = msgspec.structs.replace(running.config, first_users=first_users([f"@{file}"]))
    yield running.start()
    running.stop()


def users(node, tmp_path, *words, given=None):
    file = tmp_path / "client.properties"
    properties = node.kafka_properties("BOTH", "admin", ADMIN)
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))
    done = CliRunner().invoke(
        main,
        [
            "users",
            *words,
            "--bootstrap-server",
            node.address("BOTH"),
            "--command-config",
            str(file),
        ],
        input=given,
    )
    assert done.exit_code == 0, done.output
    return done.stdout


def is_let_in(node, user, password, mechanism):
    """Whether a login is accepted now; the metadata reaches the broker a moment later."""
    admin = AdminClient(node.properties("BOTH", user, password, mechanism))
    try:
        return bool(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def eventually(told):
    until = time.monotonic() + SECONDS
    while not told():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_new_cluster_has_its_first_users(node):
    assert is_let_in(node, "first", "first-secret", "SCRAM-SHA-256")
    assert not is_let_in(node, "first", "first-secret", "SCRAM-SHA-512")


def test_users_are_set_listed_and_removed(node, tmp_path):
    users(node, tmp_path, "set", "bob", "--password-file", "-", given="bob-secret\n")
    for mechanism in MECHANISMS:
        eventually(lambda kind=mechanism: is_let_in(node, "bob", "bob-secret", kind))
    listed = json.loads(users(node, tmp_path, "list", "bob", "--json"))
    assert [(each["mechanism"], each["iterations"]) for each in listed] == [
        ("SCRAM-SHA-256", 8192), ("SCRAM-SHA-512", 8192),
    ]  # fmt: skip
    users(node, tmp_path, "remove", "bob", "--mechanism", "SCRAM-SHA-256")
    eventually(lambda: not is_let_in(node, "bob", "bob-secret", "SCRAM-SHA-256"))
    assert is_let_in(node, "bob", "bob-secret", "SCRAM-SHA-512")


def test_librdkafka_sets_and_removes_users(node):
    admin = AdminClient(node.properties("BOTH", "admin", ADMIN))
    info = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
    change = UserScramCredentialUpsertion("carol", info, b"carol-secret")
    for future in admin.alter_user_scram_credentials([change]).values():
        future.result(SECONDS)
    eventually(lambda: is_let_in(node, "carol", "carol-secret", "SCRAM-SHA-512"))
    assert not is_let_in(node, "carol", "wrong", "SCRAM-SHA-512")
    found = admin.describe_user_scram_credentials(["carol"])["carol"].result(SECONDS)
    assert found.scram_credential_infos[0].iterations == 4096
    gone = UserScramCredentialDeletion("carol", ScramMechanism.SCRAM_SHA_512)
    for future in admin.alter_user_scram_credentials([gone]).values():
        future.result(SECONDS)
    eventually(lambda: not is_let_in(node, "carol", "carol-secret", "SCRAM-SHA-512"))
    with pytest.raises(KafkaException):
        admin.describe_user_scram_credentials(["carol"])["carol"].result(SECONDS)
