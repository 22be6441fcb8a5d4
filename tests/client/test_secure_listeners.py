"""SASL and TLS with Apache Kafka, with stores as Java's keytool writes them, and as PEM.

Runs with ANABRANCH_TEST_PEER=kafka and the jars of `scripts/kafka-jars`.
"""

from __future__ import annotations

import os
import subprocess

import pytest

if os.environ.get("ANABRANCH_TEST_PEER") != "kafka":
    pytest.skip("needs ANABRANCH_TEST_PEER=kafka", allow_module_level=True)

from bench.servers import Kafka, free_port
from click.testing import CliRunner
from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    NoEncryption,
    PrivateFormat,
)
from cryptography.hazmat.primitives.serialization.pkcs12 import load_pkcs12
from tests.client.transaction_kit import batch_of, create

from anabranch.cli.main import main
from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.produce import produce
from anabranch.client.security import security_of
from anabranch.client.transactional_producer import TransactionalProducer
from anabranch.core.errors import ClientFault

SECRET, PASSWORD = "alice-secret", "changeit-1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECONDS = 60


def keytool(*words):
    subprocess.run(["keytool", *words], check=True, capture_output=True)


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    """A folder with a key each for broker and client, and stores that trust them."""
    folder = tmp_path_factory.mktemp("stores")
    for name in ("broker", "client"):
        store = [
            "-keystore",
            f"{folder}/{name}.p12",
            "-storetype",
            "PKCS12",
            "-storepass",
            PASSWORD,
        ]
        keytool(
            "-genkeypair", "-alias", name, "-keyalg", "EC", "-dname", f"CN={name}",
            "-ext", "SAN=ip:127.0.0.1", *store,
        )  # fmt: skip
        keytool("-exportcert", "-rfc", "-alias", name, "-file", f"{folder}/{name}.pem", *store)
        keytool(
            "-importcert", "-noprompt", "-alias", name, "-file", f"{folder}/{name}.pem",
            "-keystore", f"{folder}/trusts-{name}.p12", "-storetype", "PKCS12",
            "-storepass", PASSWORD,
        )  # fmt: skip
    found = load_pkcs12((folder / "client.p12").read_bytes(), PASSWORD.encode())
    chain = found.cert.certificate.public_bytes(Encoding.PEM)
    for name, encryption in (
        ("open", NoEncryption()), ("locked", BestAvailableEncryption(PASSWORD.encode()))
    ):  # fmt: skip
        key = found.key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, encryption)
        (folder / f"{name}.pem").write_bytes(key + chain)
        (folder / f"{name}.key").write_bytes(key)
    return folder


@pytest.fixture(scope="module")
def listeners(stores, tmp_path_factory):
    """Listener name -> address of one Kafka broker."""
    ports = {
        name: free_port() for name in ("PLAINTEXT", "CONTROLLER", "SSL", "MTLS", "SASL", "BOTH")
    }
    addresses = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
    listed = ",".join(f"{name}://{each}" for name, each in addresses.items())
    told = ",".join(f"{name}://{each}" for name, each in addresses.items() if name != "CONTROLLER")
    plain = f'{PLAIN} required user_alice="{SECRET}";'
    settings = {
        "listeners": listed, "advertised.listeners": told,
        "listener.security.protocol.map": (
            "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SSL:SSL,MTLS:SSL,SASL:SASL_PLAINTEXT,"
            "BOTH:SASL_SSL"
        ),
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": ",".join(MECHANISMS),
        "ssl.keystore.location": stores / "broker.p12", "ssl.keystore.password": PASSWORD,
        "ssl.keystore.type": "PKCS12", "ssl.key.password": PASSWORD,
        "ssl.truststore.location": stores / "trusts-client.p12",
        "ssl.truststore.password": PASSWORD, "ssl.truststore.type": "PKCS12",
        "listener.name.mtls.ssl.client.auth": "required",
        "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
    }  # fmt: skip
    for name in ("sasl", "both"):
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
        for each in MECHANISMS[1:]:
            setting = f"listener.name.{name}.{each.lower()}.sasl.jaas.config"
            settings[setting] = f"{SCRAM} required;"
    server = Kafka(
        settings, tmp_path_factory.mktemp("kafka"), (ports["PLAINTEXT"], ports["CONTROLLER"])
    )
    server.start()
    admin = AdminClient({"bootstrap.servers": server.bootstrap})
    kinds = (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512)
    for kind in kinds:
        alice = UserScramCredentialUpsertion(
            "alice", ScramCredentialInfo(kind, 4096), SECRET.encode()
        )
        for future in admin.alter_user_scram_credentials([alice]).values():
            future.result(SECONDS)
    yield addresses
    server.stop()


def login(mechanism, password=SECRET):
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="alice" password="{password}";',
    }


def trust(stores):
    return {
        "ssl.truststore.location": str(stores / "trusts-broker.p12"),
        "ssl.truststore.password": PASSWORD, "ssl.truststore.type": "PKCS12",
    }  # fmt: skip


async def works(address, properties):
    """A topic is created and written, also in a transaction."""
    security = security_of(properties)
    async with Cluster(address, security=security, deadline_seconds=20) as cluster:
        topic = f"topic-{abs(hash(frozenset(properties.items())))}-{address.rpartition(':')[2]}"
        await create(cluster, topic, 1)
        assert (await produce(cluster, topic, 0, batch_of(b"value"))).base_offset == 0
        producer = TransactionalProducer(cluster, topic)
        await producer.init()
        producer.begin()
        await producer.produce(topic, 0, batch_of(b"y" * 500_000))
        await producer.commit()


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_each_mechanism_lets_the_right_password_in(listeners, mechanism):
    await works(listeners["SASL"], {"security.protocol": "SASL_PLAINTEXT", **login(mechanism)})


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_a_wrong_password_is_refused_at_once_and_not_told(listeners, mechanism):
    security = security_of(
        {"security.protocol": "SASL_PLAINTEXT", **login(mechanism, "wrong-guess")}
    )
    with pytest.raises(ClientFault, match=r"does not let user 'alice' in.*Check user") as refused:
        async with Cluster(listeners["SASL"], security=security):
            pass
    assert "wrong-guess" not in str(refused.value)


@pytest.mark.parametrize("mechanism", MECHANISMS)
async def test_sasl_over_tls(listeners, stores, mechanism):
    properties = {"security.protocol": "SASL_SSL", **login(mechanism), **trust(stores)}
    await works(listeners["BOTH"], properties)


@pytest.mark.parametrize("kind", ["pkcs12", "pem file", "pem text"])
async def test_each_kind_of_truststore(listeners, stores, kind):
    given = {
        "pkcs12": trust(stores),
        "pem file": {"ssl.truststore.location": str(stores / "broker.pem")},
        "pem text": {"ssl.truststore.certificates": (stores / "broker.pem").read_text()},
    }[kind]
    await works(listeners["SSL"], {"security.protocol": "SSL", **given})


@pytest.mark.parametrize("kind", ["pkcs12", "pem file", "locked pem file", "pem text"])
async def test_each_kind_of_keystore(listeners, stores, kind):
    given = {
        "pkcs12": {
            "ssl.keystore.location": str(stores / "client.p12"), "ssl.keystore.password": PASSWORD
        },
        "pem file": {"ssl.keystore.location": str(stores / "open.pem")},
        "locked pem file": {
            "ssl.keystore.location": str(stores / "locked.pem"), "ssl.key.password": PASSWORD
        },
        "pem text": {
            "ssl.keystore.key": (stores / "locked.key").read_text(),
            "ssl.keystore.certificate.chain": (stores / "client.pem").read_text(),
            "ssl.key.password": PASSWORD,
        },
    }[kind]  # fmt: skip
    await works(listeners["MTLS"], {"security.protocol": "SSL", **trust(stores), **given})


async def refusal(address, properties, kind=ClientFault):
    with pytest.raises(kind) as refused:
        async with Cluster(address, security=security_of(properties), deadline_seconds=1):
            pass
    return str(refused.value)


async def test_what_goes_wrong_is_told_with_its_remedy(listeners, stores):
    tls = {"security.protocol": "SSL"}
    trusted = {**tls, **trust(stores)}
    said = await refusal(listeners["SSL"], tls)
    assert "is not trusted" in said and "ssl.truststore.location" in said
    said = await refusal(listeners["SSL"].replace("127.0.0.1", "localhost"), trusted)
    assert "its certificate is not for localhost" in said
    loose = {**trusted, "ssl.endpoint.identification.algorithm": ""}
    await works(listeners["SSL"].replace("127.0.0.1", "localhost"), loose)
    said = await refusal(listeners["PLAINTEXT"], trusted, (ClientFault, ConnectionLost))
    assert listeners["PLAINTEXT"] in said
    said = await refusal(listeners["MTLS"], trusted, (ClientFault, ConnectionLost))
    assert listeners["MTLS"] in said
    wrong = {**trusted, "ssl.truststore.password": "wrong"}
    assert "ssl.truststore.password is wrong" in await refusal(listeners["SSL"], wrong)
    said = await refusal(
        listeners["PLAINTEXT"], {"security.protocol": "SASL_PLAINTEXT", **login("PLAIN")},
        (ClientFault, ConnectionLost),
    )  # fmt: skip
    assert SECRET not in said


@pytest.mark.parametrize("mechanism", MECHANISMS)
def test_the_command_line_logs_in_by_its_file(listeners, stores, tmp_path, mechanism):
    path = tmp_path / "client.properties"
    given = {"security.protocol": "SASL_SSL", **login(mechanism), **trust(stores)}
    path.write_text("".join(f"{name}={text}\n" for name, text in given.items()))
    words = ["--bootstrap-server", listeners["BOTH"], "--command-config", str(path)]
    topic = f"made-{mechanism.lower()}"
    created = CliRunner().invoke(main, ["topics", "create", "--topic", topic, *words])
    assert created.exit_code == 0, created.output
    assert topic in CliRunner().invoke(main, ["topics", "list", *words]).output
