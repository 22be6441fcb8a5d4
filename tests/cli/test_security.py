"""`anabranch security check`: each open door is named with its remedy, and a closed node is silent."""

from __future__ import annotations

import json
from datetime import timedelta

import pytest
from click.testing import CliRunner

from anabranch.cli.main import main
from anabranch.testing.certificates import Authority

JAAS = 'x.PlainLoginModule required username="n" password="topsecret" user_n="topsecret";'


@pytest.fixture
def closed(tmp_path):
    authority = Authority(tmp_path)
    return {
        "listeners": "CLIENTS://0.0.0.0:9092,CONTROLLER://0.0.0.0:9093",
        "advertised.listeners": "CLIENTS://kafka-1:9092",
        "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:SASL_SSL",
        "ssl.keystore.location": authority.issue("node", valid=timedelta(days=90)).both,
        "ssl.truststore.location": authority.certificate,
        "sasl.enabled.mechanisms": "PLAIN", "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.clients.plain.sasl.jaas.config": JAAS,
        "listener.name.controller.plain.sasl.jaas.config": JAAS,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:n",
    }  # fmt: skip


def checked(tmp_path, settings, mode=0o600):
    file = tmp_path / "server.properties"
    file.write_text("".join(f"{name}={text}\n" for name, text in settings.items()))
    file.chmod(mode)
    done = CliRunner().invoke(main, ["security", "check", str(file), "--json"])
    assert "topsecret" not in done.output
    found = json.loads(done.output)["open"]
    assert done.exit_code == bool(found)
    return found


def test_a_node_with_everything_closed_is_silent(tmp_path, closed):
    assert checked(tmp_path, closed) == []


@pytest.mark.parametrize(
    ("change", "why"),
    [
        ({"authorizer.class.name": ""}, "set authorizer.class.name"),
        ({"allow.everyone.if.no.acl.found": "true"}, "opens each resource without an ACL"),
        ({"super.users": "User:ANONYMOUS;User:n"}, "may do everything"),
        ({"super.users": "User:n; User:ANONYMOUS "}, "may do everything"),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_SSL,CONTROLLER:PLAINTEXT",
                "listener.plaintext.beyond.loopback.allow": "true",
            },
            "is for controllers",
        ),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SASL_PLAINTEXT,CONTROLLER:SASL_SSL",
                "listener.plaintext.beyond.loopback.allow": "true",
            },
            "passwords of PLAIN without encryption",
        ),
        (
            {
                "listener.security.protocol.map": "CLIENTS:SSL,CONTROLLER:SASL_SSL",
                "listener.unauthenticated.beyond.loopback.allow": "true",
            },
            "lets in any client of other machines",
        ),
        ({"http.listener": "127.0.0.1:0"}, "http.listener"),
    ],
)
def test_each_open_door_is_named(tmp_path, closed, change, why):
    assert any(why in each for each in checked(tmp_path, {**closed, **change}))


def test_a_file_that_others_may_read_is_named(tmp_path, closed):
    assert "chmod 600" in checked(tmp_path, closed, 0o644)[0]


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("metadata.store.url", "postgresql://user:topsecret@db/kafka"),
        ("diskless.storage.url", "s3://bucket?secret_access_key=topsecret"),
        ("delegation.token.secret.key", "topsecret"),
    ],
)
def test_each_kind_of_secret_makes_a_file_that_others_may_read_open(tmp_path, name, text):
    found = checked(tmp_path, {"log.dirs": str(tmp_path / "data"), name: text}, 0o644)
    assert any("chmod 600" in each for each in found)


@pytest.mark.parametrize(("days", "why"), [(3, "ends in 3 days"), (-1, "has ended")])
def test_a_certificate_that_ends_is_named(tmp_path, closed, days, why):
    own = Authority(tmp_path / "x").issue("node", valid=timedelta(days=days, hours=1))
    found = checked(tmp_path, {**closed, "ssl.keystore.location": own.both})
    assert any(why in each for each in found)


def test_a_store_that_cannot_be_used_is_named(tmp_path, closed):
    (tmp_path / "bad.pem").write_text("rubbish")
    found = checked(tmp_path, {**closed, "ssl.keystore.location": str(tmp_path / "bad.pem")})
    assert any("PKCS12 or PEM" in each for each in found)


def test_the_usual_node_is_open(tmp_path):
    assert len(checked(tmp_path, {"log.dirs": str(tmp_path / "data")})) == 3
