"""All connections of a node to others of its cluster are opened in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import anabranch.server
from anabranch.client.connection import Connection
from anabranch.client.sasl import Login
from anabranch.client.security import Security
from anabranch.core.errors import ClientFault
from anabranch.server import outbound
from anabranch.testing.certificates import Authority

SERVER = Path(anabranch.server.__file__).parent


def opens(tree: ast.AST) -> bool:
    """Whether code opens a connection of Kafka's protocol."""
    return any(
        isinstance(node, ast.Attribute)
        and node.attr == "open"
        and isinstance(node.value, ast.Name)
        and node.value.id == "Connection"
        for node in ast.walk(tree)
    )


def test_one_module_opens_connections():
    found = [path.stem for path in SERVER.rglob("*.py") if opens(ast.parse(path.read_text()))]
    assert found == ["outbound"]


async def test_a_connection_has_the_transport_of_its_listener(monkeypatch: pytest.MonkeyPatch):
    asked = {}

    async def opened(host, port, **how):
        asked.update(how, address=(host, port))

    login = Login("PLAIN", "alice", "secret")
    monkeypatch.setattr(Connection, "open", opened)
    transport = outbound.Transport(Security(login))
    await outbound.reach(
        "host", 9092, transport=transport, client_id="broker-1", timeout_seconds=2.0
    )
    assert asked == {
        "address": ("host", 9092), "client_id": "broker-1", "timeout_seconds": 2.0,
        "login": login, "ssl": None,
    }  # fmt: skip


def tls_of(authority, keys):
    return Security(
        Login("PLAIN", "alice", "secret"), uses_tls=True,
        tls={"ssl.truststore.location": authority.certificate, "ssl.keystore.location": keys},
    )  # fmt: skip


@pytest.mark.parametrize("is_read", [True, False])
def test_keys_that_cannot_be_read_leave_those_of_before(tmp_path, is_read, caplog):
    """Also when the first connection is yet to come: no transport falls back to none at all."""
    authority = Authority(tmp_path)
    good, late = authority.issue("node").both, tmp_path / "late.pem"
    transport = outbound.Transport(tls_of(authority, good))
    before = transport.context() if is_read else None
    for _ in range(3):
        transport.take(tls_of(authority, str(late)))
        kept = transport.context()
        assert kept is not None and before in (None, kept)
        before = kept
        assert transport.security.tls["ssl.keystore.location"] == good
    assert "late.pem" in transport.why and len(caplog.messages) == 1
    late.write_bytes(Path(good).read_bytes())
    assert transport.context() is not before
    assert transport.security.tls["ssl.keystore.location"] == str(late) and not transport.why
    late.write_text("broken while it is replaced")
    assert transport.context() is not None and transport.why


def test_keys_that_never_could_be_read_are_a_fault(tmp_path):
    transport = outbound.Transport(tls_of(Authority(tmp_path), str(tmp_path / "none")))
    with pytest.raises(ClientFault):
        transport.context()
    transport.take(tls_of(Authority(tmp_path), "/dev/zero"))
    with pytest.raises(ClientFault):
        transport.context()
