"""TLS and SASL of a test's cluster: certificates and users that it makes for itself.

What: `ClusterSecurity` has the settings of the nodes, and the properties of a client, for one of
Kafka's security protocols. With SSL clients show certificates; with SASL they log in with PLAIN or
SCRAM. Nodes speak the same protocol with each other. Rule kept: keys and passwords are new for each
cluster, and gone with it.
"""

from __future__ import annotations

import secrets
import tempfile
from typing import TYPE_CHECKING

from anabranch.core.settings.listeners import PROTOCOLS
from anabranch.testing.nodes import ClusterError

if TYPE_CHECKING:
    from anabranch.client.security import Security
    from anabranch.testing.certificates import Authority, Identity

USER, NODE = "test", "node"
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
SECURE = PROTOCOLS[1:]
PASSWORD_BYTES = 12


class ClusterSecurity:
    """See the module. `user` is the client that tests are, with `password` where it logs in."""

    def __init__(self, protocol: str) -> None:
        if protocol not in SECURE:
            raise ClusterError(f"security is one of {', '.join(SECURE)}, not {protocol!r}.")
        self.protocol = protocol
        self.user = USER
        self.password = secrets.token_urlsafe(PASSWORD_BYTES)
        self._node_password = secrets.token_urlsafe(PASSWORD_BYTES)
        self._uses_tls = protocol.endswith("SSL")
        self._uses_sasl = protocol.startswith("SASL")
        self._folder = tempfile.TemporaryDirectory(prefix="anabranch-tls-")
        self._authority: Authority | None = None
        self._node: Identity | None = None
        self._client: Identity | None = None
        if self._uses_tls:
            self._make_certificates()

    def _make_certificates(self) -> None:
        try:
            from anabranch.testing.certificates import Authority
        except ImportError:
            raise ClusterError(
                "A cluster with TLS makes its own certificates, which needs the package "
                "cryptography: pip install cryptography"
            ) from None
        self._authority = authority = Authority(self._folder.name)
        self._node, self._client = authority.issue(NODE), authority.issue(USER)

    def close(self) -> None:
        """Remove the certificates."""
        self._folder.cleanup()

    def listeners(self, client_port: int, controller_port: int) -> str:
        """What a node's `listeners` are."""
        clients = f"{self.protocol}://127.0.0.1:{client_port}"
        return f"{clients},CONTROLLER://127.0.0.1:{controller_port}"

    def node_settings(self) -> dict[str, str]:
        """The settings of each node, apart from its listeners."""
        kind = self.protocol
        found = {
            "listener.security.protocol.map": f"{kind}:{kind},CONTROLLER:{kind}",
            "super.users": f"User:{NODE};User:{USER}",
        }
        if self._authority is not None and self._node is not None:
            found |= {
                "ssl.keystore.location": self._node.both,
                "ssl.truststore.location": self._authority.certificate,
            }
        if self._uses_tls and not self._uses_sasl:
            found["ssl.client.auth"] = "required"
            found["ssl.principal.mapping.rules"] = "RULE:^CN=([^,]+)$/$1/,DEFAULT"
        if self._uses_sasl:
            found |= {
                "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512",
                "sasl.mechanism.inter.broker.protocol": "PLAIN",
                "sasl.mechanism.controller.protocol": "PLAIN",
                "plain.sasl.jaas.config": (
                    f'{MODULE} username="{NODE}" password="{self._node_password}" '
                    f'user_{NODE}="{self._node_password}" user_{USER}="{self.password}";'
                ),
            }
        return found

    @property
    def properties(self) -> dict[str, str]:
        """Of Kafka's clients and tools, and of `--command-config`."""
        found = {"security.protocol": self.protocol}
        if self._authority is not None:
            found["ssl.truststore.location"] = self._authority.certificate
            found["ssl.truststore.type"] = "PEM"
        if self._client is not None and not self._uses_sasl:
            found["ssl.keystore.location"] = self._client.both
            found["ssl.keystore.type"] = "PEM"
        if self._uses_sasl:
            found["sasl.mechanism"] = "PLAIN"
            found["sasl.jaas.config"] = (
                f'{MODULE} username="{self.user}" password="{self.password}";'
            )
        return found

    @property
    def librdkafka_properties(self) -> dict[str, str]:
        """Of clients on librdkafka, such as confluent-kafka."""
        found = {"security.protocol": self.protocol}
        if self._authority is not None:
            found["ssl.ca.location"] = self._authority.certificate
        if self._client is not None and not self._uses_sasl:
            found["ssl.certificate.location"] = self._client.chain
            found["ssl.key.location"] = self._client.key
        if self._uses_sasl:
            found |= {
                "sasl.mechanism": "PLAIN", "sasl.username": self.user,
                "sasl.password": self.password,
            }  # fmt: skip
        return found

    @property
    def client(self) -> Security:
        """Of Anabranch's own client."""
        from anabranch.client.security import security_of

        return security_of(self.properties)
