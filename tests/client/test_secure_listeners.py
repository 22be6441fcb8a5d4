"""SASL and TLS with Apache Kafka, with stores as Java's keytool writes them, and as PEM.

Runs with ANABRANCH_TEST_PEER=kafka and the jars of `scripts/kafka-jars`.
"""

from __future__ import annotations

import os

import pytest

if os.environ.get("ANABRANCH_TEST_PEER") != "kafka":
    pytest.skip("needs ANABRANCH_TEST_PEER=kafka", allow_module_level=True)

from click.testing import CliRunner
from tests.client.secure_kit import (
    MECHANISMS,
    PASSWORD,
    SECRET,
    SecureKafka,
    login,
    make_stores,
    trust,
)
from tests.client.transaction_kit import batch_of, create

from anabranch.cli.main import main
from anabranch.client.cluster import Cluster
from anabranch.client.connection import ConnectionLost
from anabranch.client.produce import produce
from anabranch.client.security import security_of
from anabranch.client.transactional_producer import TransactionalProducer
from anabranch.core.errors import ClientFault


@pytest.fixture(scope="module")
def stores(tmp_path_factory):
    return make_stores(tmp_path_factory.mktemp("stores"))


@pytest.fixture(scope="module")
def listeners(stores, tmp_path_factory):
    """Listener name -> address of one Kafka broker."""
    with SecureKafka(stores, tmp_path_factory.mktemp("kafka")) as server:
        yield server.listeners


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
