"""Changed keys, trust and users of nodes that are controllers alone, and of a broker's way to them."""

from __future__ import annotations

import asyncio
import ssl
import time

import pytest
from tests.server.node_kit import ThreadNode, free_ports, settings_of
from tests.server.secure_kit import ADMIN, MODULE

from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs
from anabranch.client.cluster import Cluster
from anabranch.client.connection import Connection
from anabranch.client.security import security_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.settings.listener_changes import REFUSED
from anabranch.server.config import load_config
from anabranch.testing.certificates import Authority

SECONDS = 30
JAAS = "listener.name.controller.plain.sasl.jaas.config"
KEYS = "listener.name.controller.ssl.keystore.location"
TRUST = "listener.name.controller.ssl.truststore.location"
OWN = f'{MODULE} username="admin" password="{ADMIN}" user_admin="{ADMIN}"'


class Secured(ThreadNode):
    """A node of which controllers ask for a login over TLS; its clients are asked nothing."""

    def __init__(self, folder, authority, node_id, role, port, controllers):
        name = "CONTROLLER" if role == "controller" else "PLAINTEXT"
        settings = {
            "node.id": node_id, "process.roles": role, "listeners": f"{name}://127.0.0.1:{port}",
            "controller.quorum.bootstrap.servers": controllers,
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:SASL_SSL",
            "controller.listener.names": "CONTROLLER",
            "sasl.mechanism.controller.protocol": "PLAIN",
            "listener.name.controller.sasl.enabled.mechanisms": "PLAIN",
            "ssl.keystore.location": authority.issue(f"node{node_id}").both,
            "ssl.truststore.location": authority.certificate, JAAS: f"{OWN};",
        }  # fmt: skip
        if role == "controller":
            settings["metadata.store.url"] = f"sqlite://{folder}/metadata.db"
        given = {
            name: each for each in settings_of(folder / f"node-{node_id}")
            for name in [each.partition("=")[0]]
        }  # fmt: skip
        given |= {name: f"{name}={text}" for name, text in settings.items()}
        self._take(load_config(None, list(given.values())))
        self.port = port
        self.node_id = node_id


@pytest.fixture(scope="module")
def authority(tmp_path_factory):
    return Authority(tmp_path_factory.mktemp("tls"))


@pytest.fixture
def cluster(tmp_path, authority):
    ports = free_ports(3)
    at = ",".join(f"127.0.0.1:{port}" for port in ports[:2])
    nodes = {
        node_id: Secured(tmp_path, authority, node_id, role, port, at)
        for node_id, role, port in zip(
            (101, 102, 1), ("controller", "controller", "broker"), ports, strict=True
        )
    }
    for node in nodes.values():
        node.start()
    for node in nodes.values():  # a change names a registered one
        eventually(lambda: {101, 102} <= set(node.node._copy.image.controllers))  # noqa: B023
    yield nodes
    for node in reversed(nodes.values()):  # a broker asks the controllers before it stops
        node.close()


def security(authority, user="admin", password=ADMIN):
    """How a controller's listener is spoken to."""
    return security_of({
        "security.protocol": "SASL_SSL", "ssl.truststore.location": authority.certificate,
        "sasl.mechanism": "PLAIN",
        "sasl.jaas.config": f'{MODULE} username="{user}" password="{password}";',
    })  # fmt: skip


def is_let_in(node, authority, user):
    """Whether a user with the password `USER-secret` may log in at a controller."""
    how = security(authority, user, f"{user}-secret")

    async def log_in():
        opened = await Connection.open(
            "127.0.0.1", node.port, ssl=how.context(), login=how.login, timeout_seconds=SECONDS
        )
        await opened.close()

    try:
        asyncio.run(log_in())
    except ApiError as fault:
        return fault.code != ErrorCode.SASL_AUTHENTICATION_FAILED
    return True


def told(cluster, authority, node_id, *changes):
    """What the active controller says against a change of a node's settings."""
    operations = [
        (ConfigOperation.DELETE if text is None else ConfigOperation.SET, name, text)
        for name, text in changes
    ]
    at = ",".join(f"127.0.0.1:{cluster[each].port}" for each in (101, 102))

    async def ask():
        async with Cluster(at, security=security(authority), at_controllers=True) as asked:
            await alter_configs(asked, ResourceKind.BROKER, str(node_id), operations)

    try:
        asyncio.run(ask())
    except ApiError as fault:
        return fault
    return None


def active(cluster):
    return next(each for each in (101, 102) if cluster[each].node.controller.controller.active)


def serial(node):
    return ssl.get_server_certificate(("127.0.0.1", node.port))


def eventually(condition):
    until = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.05)


def is_stored(cluster, node_id, name, text):
    """Whether every node has read it."""
    return all(
        each.node._copy.image.config(4, str(node_id)).get(name) == text for each in cluster.values()
    )


@pytest.mark.parametrize("is_active", [True, False])
def test_keys_and_users_of_a_controller_change_while_it_runs(cluster, authority, is_active):
    first = active(cluster)
    node_id = first if is_active else 203 - first
    node, before = cluster[node_id], serial(cluster[node_id])
    new = authority.issue("another").both
    users = f'{OWN} user_carol="carol-secret";'
    assert told(cluster, authority, node_id, (KEYS, new), (JAAS, users)) is None
    eventually(lambda: serial(node) != before)
    assert is_let_in(node, authority, "carol") and not is_let_in(node, authority, "dave")
    assert node.node.changed.kept_back == 0
    node.stop()
    again = cluster[node_id] = Secured.again(node)
    again.port, again.node_id = node.port, node_id
    again.start()
    eventually(lambda: serial(again) != before)
    assert is_let_in(again, authority, "carol")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        (KEYS, "/not/there"), (KEYS, "/dev/zero"), (KEYS, "a\0b"), (TRUST, "/not/there"),
        (TRUST, "/dev/zero"), (JAAS, "nonsense"), (JAAS, f"{MODULE};"),
        (KEYS.replace("controller", "contorller"), "x"),
        (JAAS.replace("controller", "plaintxt"), f"{OWN};"),
    ],
)  # fmt: skip
def test_what_no_node_could_use_ends_and_weakens_none(cluster, authority, name, text):
    """A controller refuses what it can tell; what another node alone can tell is stored there, and
    that node goes on as before, counts it, and is put right by the next change."""
    first = active(cluster)
    fault = told(cluster, authority, first, (name, text))
    assert fault is not None and fault.code == ErrorCode.INVALID_REQUEST and REFUSED in str(fault)
    for node_id in (203 - first, 1):
        node = cluster[node_id].node
        fault = told(cluster, authority, node_id, (name, text))
        if "contorller" in name or "plaintxt" in name or text == "nonsense":
            assert fault is not None and fault.code == ErrorCode.INVALID_REQUEST
            continue
        assert fault is None
        eventually(lambda: is_stored(cluster, node_id, name, text))  # noqa: B023
        eventually(lambda: node.changed.kept_back > 0)  # noqa: B023
        assert not node.stopped.done()
        assert told(cluster, authority, node_id, (name, None)) is None
        eventually(lambda: node.changed.kept_back == 0)  # noqa: B023
    assert not any(sum(n.node.own_faults.counts.values()) for n in cluster.values())
