"""Delegation tokens with our commands: made, used, refused where they may not be, renewed, ended."""

from __future__ import annotations

import json
import time

import pytest
from click.testing import CliRunner
from tests.server.secure_kit import ADMIN, SecureNode

from anabranch.cli.main import main

SECONDS = 20
MODULE = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture(scope="module")
def node(tmp_path_factory):
    running = SecureNode(
        tmp_path_factory.mktemp("tokens"), delegation_token_secret_key="of-all-nodes"
    ).start()
    yield running
    running.stop()


@pytest.fixture
def run(node, tmp_path):
    def of(properties):
        file = tmp_path / "client.properties"
        file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))

        def ask(*words, fails=False):
            at = ("--bootstrap-server", node.address("BOTH"), "--command-config", str(file))
            done = CliRunner().invoke(main, [*words, *at])
            assert bool(done.exit_code) == fails, done.output
            return done.output if fails else done.stdout

        return ask

    return of


def by_token(node, made, mechanism="SCRAM-SHA-256", hmac=None):
    """Client properties of who has a token."""
    options = f'username="{made["token_id"]}" password="{hmac or made["hmac"]}" tokenauth="true"'
    return {
        **node.kafka_properties("BOTH", mechanism=mechanism),
        "sasl.jaas.config": f"{MODULE} {options};",
    }


def eventually(told):
    until = time.monotonic() + SECONDS
    while not (found := told()):
        assert time.monotonic() < until
        time.sleep(0.1)
    return found


def create(ask, *words):
    """A token that the broker has heard of."""
    made = json.loads(ask("tokens", "create", "--json", *words))
    eventually(lambda: made["token_id"] in ask("tokens", "list"))
    return made


@pytest.mark.parametrize("mechanism", ["SCRAM-SHA-256", "SCRAM-SHA-512"])
def test_a_token_lets_its_owner_in(node, run, mechanism):
    made = create(run(node.kafka_properties("BOTH")))
    assert (made["owner"], made["requester"]) == ("User:alice", "User:alice")
    holder = run(by_token(node, made, mechanism))
    assert "User" not in holder("topics", "list")
    for words in (["create"], ["list"], ["renew", made["token_id"]], ["expire", made["token_id"]]):
        told = holder("tokens", *words, fails=True)
        assert "REQUEST_NOT_ALLOWED" in told and made["hmac"] not in told


def test_a_wrong_hmac_is_refused_without_being_told(node, run):
    made = create(run(node.kafka_properties("BOTH")))
    wrong = made["hmac"][::-1]
    told = run(by_token(node, made, hmac=wrong))("topics", "list", fails=True)
    assert made["token_id"] in told and wrong not in told and "tokens list" in told


def test_tokens_are_listed_renewed_and_ended_by_owner_and_renewer(node, run):
    alice = run(node.kafka_properties("BOTH"))
    made = create(alice, "--renewer", "User:admin", "--max-lifetime-ms", "50000")
    (row,) = [row for row in json.loads(alice("tokens", "list", "--json"))
              if row["token_id"] == made["token_id"]]  # fmt: skip
    assert row["renewers"] == ["User:admin"] and "hmac" not in row
    admin = run(node.kafka_properties("BOTH", "admin", ADMIN))
    renewed = json.loads(
        admin("tokens", "renew", made["token_id"], "--period-ms", "1000", "--json")
    )
    assert renewed["expires"] <= row["max"]
    assert "expires at" in admin("tokens", "expire", made["token_id"], "--period-ms", "9000")
    assert "is removed" in admin("tokens", "expire", made["token_id"])
    eventually(lambda: made["token_id"] not in admin("tokens", "list"))
    assert "There is no delegation token" in admin("tokens", "renew", made["token_id"], fails=True)
    holder = run(by_token(node, made))
    assert "SASL_AUTHENTICATION_FAILED" in holder("topics", "list", fails=True)


def test_a_principal_needs_its_type(node, run):
    told = run(node.kafka_properties("BOTH"))("tokens", "create", "--owner", "alice", fails=True)
    assert "User:alice" in told
