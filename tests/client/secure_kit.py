"""A broker of Apache Kafka with listeners of each kind, and stores as Java's keytool writes them."""

from __future__ import annotations

import subprocess

from bench.servers import Kafka, free_port
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

SECRET, PASSWORD = "alice-secret", "changeit-1"
MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
PLAIN = "org.apache.kafka.common.security.plain.PlainLoginModule"
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule"
SECONDS = 60
USUAL = {
    "offsets.topic.num.partitions": 1, "transaction.state.log.num.partitions": 1,
    "offsets.topic.replication.factor": 1, "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1, "group.initial.rebalance.delay.ms": 0,
}  # fmt: skip
WITH_ACLS = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "super.users": "User:ANONYMOUS",
}
"""Everyone on the listener PLAINTEXT may do all; others what ACLs say."""


def keytool(*words):
    subprocess.run(["keytool", *words], check=True, capture_output=True)


def make_stores(folder):
    """A key each for broker and client, and stores that trust them; the folder."""
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


class SecureKafka:
    """The broker, while a block runs: `listeners` are the addresses by their names."""

    def __init__(self, stores, folder, more=None):
        names = ("PLAINTEXT", "CONTROLLER", "SSL", "MTLS", "SASL", "BOTH")
        ports = {name: free_port() for name in names}
        self.listeners = {name: f"127.0.0.1:{port}" for name, port in ports.items()}
        settings = {**_settings(self.listeners, stores), **USUAL, **(more or {})}
        folder.mkdir(exist_ok=True)
        self._server = Kafka(settings, folder, (ports["PLAINTEXT"], ports["CONTROLLER"]))
        self.bootstrap_servers = self._server.bootstrap

    def __enter__(self):
        self._server.start()
        self.add_user("alice")
        return self

    def __exit__(self, *_fault):
        self._server.stop()

    def add_user(self, name):
        """A user of both SCRAM mechanisms, with the password that all have."""
        admin = AdminClient({"bootstrap.servers": self.bootstrap_servers})
        for kind in (ScramMechanism.SCRAM_SHA_256, ScramMechanism.SCRAM_SHA_512):
            user = UserScramCredentialUpsertion(
                name, ScramCredentialInfo(kind, 4096), SECRET.encode()
            )
            for future in admin.alter_user_scram_credentials([user]).values():
                future.result(SECONDS)


def _settings(listeners, stores):
    plain = f'{PLAIN} required user_alice="{SECRET}";'
    listed = ",".join(f"{name}://{each}" for name, each in listeners.items())
    told = ",".join(f"{name}://{each}" for name, each in listeners.items() if name != "CONTROLLER")
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
    }  # fmt: skip
    for name in ("sasl", "both"):
        settings[f"listener.name.{name}.plain.sasl.jaas.config"] = plain
        for each in MECHANISMS[1:]:
            setting = f"listener.name.{name}.{each.lower()}.sasl.jaas.config"
            settings[setting] = f"{SCRAM} required;"
    return settings


def login(mechanism, password=SECRET, user="alice"):
    """A client's properties of SASL."""
    module = PLAIN if mechanism == "PLAIN" else SCRAM
    return {
        "sasl.mechanism": mechanism,
        "sasl.jaas.config": f'{module} required username="{user}" password="{password}";',
    }


def trust(stores):
    """A client's properties of TLS."""
    return {
        "ssl.truststore.location": str(stores / "trusts-broker.p12"),
        "ssl.truststore.password": PASSWORD, "ssl.truststore.type": "PKCS12",
    }  # fmt: skip


def over_both(stores, mechanism="SCRAM-SHA-512", **more):
    """A client's properties for the listener BOTH."""
    return {"security.protocol": "SASL_SSL", **login(mechanism, **more), **trust(stores)}
