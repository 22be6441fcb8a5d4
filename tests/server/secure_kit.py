"""A node with a listener of each kind, and what clients need for each."""

from __future__ import annotations

from tests.server.node_kit import ThreadNode, settings_of

from anabranch.server.config import load_config
from anabranch.testing.certificates import Authority

SECRET, ADMIN = "alice-secret", "admin-secret"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KINDS = {
    "SSL": "SSL", "MTLS": "SSL", "SASL": "SASL_PLAINTEXT", "BOTH": "SASL_SSL",
    "CONTROLLER": "SASL_SSL",
}  # fmt: skip


class SecureNode(ThreadNode):
    """Broker and controller, which speak SASL over TLS with each other."""

    def __init__(self, folder, **more):
        self.authority = Authority(folder / "tls")
        self.own = self.authority.issue("node")
        self.alice = self.authority.issue("alice", unit="people")
        plain = f'{MODULE} username="admin" password="{ADMIN}" user_admin="{ADMIN}"'
        settings = {
            "listeners": ",".join(f"{name}://127.0.0.1:0" for name in KINDS),
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in KINDS.items()),
            "inter.broker.listener.name": "BOTH",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.location": self.own.both,
            "ssl.truststore.location": self.authority.certificate,
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.mtls.ssl.principal.mapping.rules": "RULE:^CN=([a-z]+),OU=.*$/$1/,DEFAULT",
            "plain.sasl.jaas.config": f'{plain} user_alice="{SECRET}";',
            "listener.name.controller.plain.sasl.jaas.config": f"{plain};",
            "offsets.topic.num.partitions": "1",
            **{name.replace("_", "."): value for name, value in more.items()},
        }
        given = [each for each in settings_of(folder / "data") if not each.startswith("listeners=")]
        given += [f"{name}={value}" for name, value in settings.items()]
        self._take(load_config(None, given))

    def address(self, listener):
        """host:port of one listener."""
        return f"127.0.0.1:{self.node._ports[listener]}"

    def properties(self, listener, user="alice", password=SECRET, mechanism="PLAIN"):
        """Of a client of librdkafka."""
        found = {"bootstrap.servers": self.address(listener)}
        kind = KINDS[listener]
        found["security.protocol"] = kind.lower()
        if kind.endswith("SSL"):
            found["ssl.ca.location"] = self.authority.certificate
        if listener == "MTLS":
            found |= {
                "ssl.certificate.location": self.alice.chain, "ssl.key.location": self.alice.key,
            }  # fmt: skip
        if kind.startswith("SASL"):
            found |= {
                "sasl.mechanism": mechanism, "sasl.username": user, "sasl.password": password,
            }  # fmt: skip
        return found

    def kafka_properties(self, listener, user="alice", password=SECRET, mechanism="PLAIN"):
        """Of Kafka's clients, and of our own."""
        kind = KINDS[listener]
        found = {"security.protocol": kind}
        if kind.endswith("SSL"):
            found["ssl.truststore.location"] = self.authority.certificate
        if listener == "MTLS":
            found["ssl.keystore.location"] = self.alice.both
        if kind.startswith("SASL"):
            module = "Plain" if mechanism == "PLAIN" else "Scram"
            found["sasl.mechanism"] = mechanism
            found["sasl.jaas.config"] = (
                f"org.apache.kafka.common.security.{module.lower()}.{module}LoginModule required "
                f'username="{user}" password="{password}";'
            )
        return found
