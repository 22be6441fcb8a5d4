"""All connections of a node to others of its cluster are opened in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

import anabranch.server
from anabranch.client.connection import Connection
from anabranch.client.sasl import Login
from anabranch.client.security import Security
from anabranch.server import outbound

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
