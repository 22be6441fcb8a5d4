"""Kafka's client properties for SASL and TLS: what they mean, what is refused, and no secret told."""

from __future__ import annotations

import pickle

import pytest

from anabranch.client.sasl import Login
from anabranch.client.security import PLAINTEXT, Security, security_of
from anabranch.core.errors import ClientFault

SECRET = "hunter2secret"
TOKEN = {"username": "an-id", "password": SECRET, "tokenauth": "true"}
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"


def jaas(module=PLAIN, **options):
    words = " ".join(f'{name}="{text}"' for name, text in options.items())
    return f"{module} required {words};"


def sasl(**more):
    return {
        "security.protocol": "SASL_SSL", "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": jaas(username="alice", password=SECRET), **more,
    }  # fmt: skip


def test_without_properties_nothing_is_secured():
    assert security_of({}) == PLAINTEXT
    assert security_of({"bootstrap.servers": "x"}).context() is None


def test_a_login_is_read_with_its_quotes():
    found = security_of(sasl())
    assert found.login == Login("PLAIN", "alice", SECRET)
    assert found.uses_tls
    quoted = jaas(username='a\\"b', password="c;d=e f")
    found = security_of(sasl(**{"sasl.jaas.config": quoted, "security.protocol": "sasl_plaintext"}))
    assert found.login == Login("PLAIN", 'a"b', "c;d=e f")
    assert not found.uses_tls


def test_a_delegation_token_is_read_as_kafkas_clients_do():
    texts = {"sasl.mechanism": "SCRAM-SHA-512", "sasl.jaas.config": jaas(SCRAM, **TOKEN)}
    found = security_of(sasl(**texts)).login
    assert found == Login("SCRAM-SHA-512", "an-id", SECRET, is_token=True)
    texts["sasl.jaas.config"] = jaas(SCRAM, **{**TOKEN, "tokenauth": "false"})
    assert security_of(sasl(**texts)).login == Login("SCRAM-SHA-512", "an-id", SECRET)


def test_security_goes_to_tasks_and_tells_no_secret():
    found = security_of(sasl(**{"ssl.key.password": SECRET}))
    assert pickle.loads(pickle.dumps(found)) == found
    assert SECRET not in repr(found) + str(found)


@pytest.mark.parametrize(
    ("change", "name"),
    [
        ({"security.protocol": "TLS"}, "security.protocol"),
        ({"sasl.mechanism": "GSSAPI"}, "sasl.mechanism"),
        ({"sasl.mechanism": "OAUTHBEARER"}, "sasl.jaas.config"),
        ({"sasl.jaas.config": ""}, "sasl.jaas.config"),
        ({"sasl.jaas.config": f'password="{SECRET}"'}, "sasl.jaas.config"),
        ({"sasl.jaas.config": jaas(username="alice")}, "sasl.jaas.config"),
        ({"sasl.jaas.config": jaas(username="a\0b", password=SECRET)}, "sasl.jaas.config"),
        ({"sasl.jaas.config": jaas(username="alice", password=f"{SECRET}\0")}, "sasl.jaas.config"),
        ({"sasl.jaas.config": jaas(password=SECRET)}, "sasl.jaas.config"),
        ({"sasl.jaas.config": jaas("Krb5LoginModule", password=SECRET)}, "sasl.jaas.config"),
        (
            {"sasl.mechanism": "SCRAM-SHA-256", "sasl.jaas.config": jaas(**TOKEN)},
            "sasl.jaas.config",
        ),
        (
            {"sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas(SCRAM, **TOKEN)},
            "sasl.jaas.config",
        ),
        ({"sasl.oauthbearer.client.secret": SECRET}, "sasl.oauthbearer.client.secret"),
        ({"ssl.passwort": SECRET}, "ssl.passwort"),
        ({"ssl.cipher.suites": SECRET}, "ssl.cipher.suites"),
        ({"ssl.engine.factory.class": SECRET}, "ssl.engine.factory.class"),
        ({"ssl.enabled.protocols": "SSLv3"}, "ssl.enabled.protocols"),
        ({"ssl.endpoint.identification.algorithm": "dns"}, "ssl.endpoint.identification.algorithm"),
        ({"security.providers": SECRET}, "security.providers"),
    ],
)
def test_what_cannot_be_is_named_without_its_value(change, name):
    with pytest.raises(ClientFault) as refused:
        security_of(sasl(**change), prefix="kafka.")
    assert str(refused.value).startswith(f"kafka.{name} ")
    assert SECRET not in str(refused.value)


@pytest.mark.parametrize(
    ("properties", "why"),
    [
        ({"ssl.truststore.location": "absent"}, "ssl.truststore.location: .* cannot be read: No"),
        ({"ssl.truststore.location": "noise"}, "ssl.truststore.location is not a PKCS12 or PEM"),
        ({"ssl.truststore.location": "jks"}, "is a JKS file.* keytool -importkeystore"),
        ({"ssl.truststore.location": "half.pem"}, "ssl.truststore.location has no certificates"),
        ({"ssl.truststore.certificates": "words"}, "ssl.truststore.certificates has no cert"),
        ({"ssl.keystore.location": "noise"}, "ssl.keystore.location is not a PKCS12 or PEM"),
        ({"ssl.keystore.location": "half.pem"}, "ssl.keystore.location has no private key"),
        ({"ssl.keystore.key": "words"}, "ssl.keystore.key has no private key"),
    ],
)
def test_a_store_that_cannot_be_used_is_named_with_the_remedy(tmp_path, properties, why):
    (tmp_path / "noise").write_bytes(b"noise" * 20)
    (tmp_path / "jks").write_bytes(b"\xfe\xed\xfe\xed rest")
    (tmp_path / "half.pem").write_text("-----BEGIN CERTIFICATE-----\nAAAA\n")
    given = {
        name: str(tmp_path / text) if name.endswith("location") else text
        for name, text in properties.items()
    }
    given |= {"ssl.truststore.password": SECRET, "ssl.keystore.password": SECRET}
    found = Security(uses_tls=True, tls=given)
    with pytest.raises(ClientFault, match=why) as refused:
        found.context()
    assert SECRET not in str(refused.value)
