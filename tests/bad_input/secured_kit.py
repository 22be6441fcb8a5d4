"""A node that asks who is there: by passwords over TLS on one listener, by certificates on another."""

from __future__ import annotations

import hashlib
import socket
import ssl

from bad_kit import SECONDS, Raw, RunningNode
from node_kit import free_port

from anabranch.core.access.standard_authorizer import STANDARD_AUTHORIZER
from anabranch.core.wire.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialUpsertion,
)
from anabranch.core.wire.messages.sasl_authenticate import SaslAuthenticateRequest
from anabranch.core.wire.messages.sasl_handshake import SaslHandshakeRequest
from anabranch.testing.certificates import Authority

PASSWORD, ITERATIONS, SALT = "alice-secret", 4096, b"0123456789abcdef"
DELAY_SECONDS = 0.1
"""connection.failed.authentication.delay.ms"""
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
KINDS = {
    "PLAINTEXT": "PLAINTEXT", "CONTROLLER": "PLAINTEXT", "LOGIN": "SASL_SSL", "SCRAM": "SASL_SSL",
    "MTLS": "SSL",
}  # fmt: skip


class SecuredNode(RunningNode):
    """Its plaintext listener is for the test itself; users there are super users."""

    def __init__(self, folder):
        self.authority = Authority(folder / "tls")
        self.ports = {name: free_port() for name in KINDS}
        listeners = ",".join(f"{name}://127.0.0.1:{port}" for name, port in self.ports.items())
        settings = {
            "port": self.ports["PLAINTEXT"], "listeners": listeners,
            "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in KINDS.items()),
            "inter.broker.listener.name": "PLAINTEXT",
            "ssl.keystore.location": self.authority.issue("node").both,
            "ssl.truststore.location": self.authority.certificate,
            "listener.name.mtls.ssl.client.auth": "required",
            "listener.name.login.sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256",
            "listener.name.scram.sasl.enabled.mechanisms": "SCRAM-SHA-256",
            "plain.sasl.jaas.config": f'{MODULE} user_alice="{PASSWORD}";',
            "authorizer.class.name": STANDARD_AUTHORIZER,
            "super.users": "User:ANONYMOUS",
        }  # fmt: skip
        super().__init__(folder / "data", **settings)

    def with_users(self):
        """Give alice a password for SCRAM, too."""
        salted = hashlib.pbkdf2_hmac("sha256", PASSWORD.encode(), SALT, ITERATIONS)
        alice = ScramCredentialUpsertion("alice", 1, ITERATIONS, SALT, salted)
        with Raw(self) as client:
            wanted = AlterUserScramCredentialsRequest(upsertions=[alice])
            assert client.ask(wanted, 0).results[0].error_code == 0
        return self

    def trust(self):
        """What a client trusts this node by."""
        return ssl.create_default_context(cafile=self.authority.certificate)


class Guest(Raw):
    """A client over TLS that has yet to say who it is."""

    def __init__(self, node, listener="LOGIN", context=None):
        super().__init__(node)
        self.socket.close()
        plain = socket.create_connection(("127.0.0.1", node.ports[listener]), SECONDS)
        try:
            self.socket = (context or node.trust()).wrap_socket(plain, server_hostname="127.0.0.1")
        except BaseException:
            plain.close()
            raise

    def begin(self, mechanism):
        """Name a mechanism; the answer's code."""
        return self.ask(SaslHandshakeRequest(mechanism=mechanism), 1).error_code

    def say(self, message):
        """A message of the mechanism; its answer."""
        return self.ask(SaslAuthenticateRequest(auth_bytes=message), 2)
