"""Settings of listeners that a running node goes over to: keys, trust, users, and its own login."""

from __future__ import annotations

import asyncio
import json
import ssl
import time
from datetime import timedelta
from pathlib import Path
from tempfile import mkdtemp

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from tests.server.secure_kit import ADMIN, MODULE, SECRET, SecureNode

from anabranch.cli.main import main
from anabranch.client.admin import ConfigOperation, ResourceKind, alter_configs
from anabranch.client.cluster import Cluster
from anabranch.client.security import security_of
from anabranch.core.errors import ApiError, ErrorCode
from anabranch.testing.certificates import Authority

SECONDS = 20
SCRAM = "org.apache.kafka.common.security.scram.ScramLoginModule required"


@pytest.fixture
def node(tmp_path):
    running = SecureNode(tmp_path / "node").start()
    yield running
    running.stop()


@pytest.fixture
def run(node, tmp_path):
    file = tmp_path / "client.properties"
    properties = node.kafka_properties("BOTH", "admin", ADMIN)
    file.write_text("".join(f"{name}={text}\n" for name, text in properties.items()))

    def ask(*words, fails=False, given=None):
        at = ("--bootstrap-server", node.address("BOTH"), "--command-config", str(file))
        done = CliRunner().invoke(main, [*words, *at], input=given)
        assert bool(done.exit_code) == fails, done.output
        return done.output if fails else done.stdout

    return ask


def alter(run, change, *more, fails=False):
    name, _, text = change.partition("=")
    file = Path(mkdtemp()) / "changes.properties"
    file.write_text(f"{name}={text}\n")
    words = ("configs", "alter", "--broker", "1", "--add-config-file", str(file), *more)
    return run(*words, fails=fails)


def serial(node, listener):
    host, port = node.address(listener).split(":")
    text = ssl.get_server_certificate((host, int(port)))
    return hash(text)


def is_let_in(node, user, password, mechanism="PLAIN"):
    admin = AdminClient(node.properties("BOTH", user, password, mechanism))
    try:
        return bool(admin.list_topics(timeout=5).brokers)
    except KafkaException:
        return False


def eventually(told):
    until = time.monotonic() + SECONDS
    while not told():
        assert time.monotonic() < until
        time.sleep(0.1)


def test_a_new_key_file_is_shown_from_then_on(node, run):
    before = serial(node, "SSL")
    new = node.authority.issue("another")
    alter(run, f"listener.name.ssl.ssl.keystore.location={new.both}")
    eventually(lambda: serial(node, "SSL") != before)
    assert serial(node, "BOTH") == before
    run(
        "configs",
        "alter",
        "--broker",
        "1",
        "--delete-config",
        "listener.name.ssl.ssl.keystore.location",
    )
    eventually(lambda: serial(node, "SSL") == before)


@pytest.mark.parametrize("content", [None, "no key", ""])
def test_a_key_file_that_cannot_be_used_is_refused(node, run, tmp_path, content):
    before, file = serial(node, "SSL"), tmp_path / "bad.pem"
    if content is not None:
        file.write_text(content)
    told = alter(run, f"listener.name.ssl.ssl.keystore.location={file}", fails=True)
    assert "INVALID_REQUEST" in told and "ssl.keystore.location" in told
    assert serial(node, "SSL") == before
    shown = run("configs", "describe", "--broker", "1", "--json")
    assert "listener.name.ssl.ssl.keystore.location" not in shown


@pytest.mark.parametrize("listener", ["both", "controller"])
@pytest.mark.parametrize("case", ["another authority", "expired", "trust in another authority"])
def test_keys_by_which_nodes_would_not_reach_each_other_are_refused(
    node, run, tmp_path, listener, case
):
    """As Kafka refuses them for the listener between brokers; clients may have other trust."""
    other = Authority(tmp_path / "other", "Another authority")
    name, text = {
        "another authority": ("keystore", other.issue("node").both),
        "expired": ("keystore", node.authority.issue("old", valid=timedelta(days=-1)).both),
        "trust in another authority": ("truststore", other.certificate),
    }[case]
    setting = f"ssl.{name}.location={text}"
    told = alter(run, f"listener.name.{listener}.{setting}", fails=True)
    assert "INVALID_REQUEST" in told and "could not reach each other" in told
    alter(run, f"listener.name.ssl.{setting}")
    assert is_let_in(node, "alice", SECRET)


def test_nodes_go_over_to_another_authority_in_three_steps(node, run, tmp_path):
    other = Authority(tmp_path / "other", "Another authority")
    both = tmp_path / "both.pem"
    both.write_bytes(
        Path(node.authority.certificate).read_bytes() + Path(other.certificate).read_bytes()
    )
    prefix, before = "listener.name.controller.ssl", serial(node, "CONTROLLER")
    alter(run, f"{prefix}.truststore.location={both}")
    alter(run, f"{prefix}.keystore.location={other.issue('node').both}")
    eventually(lambda: serial(node, "CONTROLLER") != before)
    alter(run, f"{prefix}.truststore.location={other.certificate}")
    run("users", "set", "dora", given="pencil\npencil\n")


def test_users_of_plain_change_and_their_passwords_are_told_nowhere(node, run, tmp_path):
    name = "listener.name.both.plain.sasl.jaas.config"
    users = f'{MODULE} username="admin" password="{ADMIN}" user_admin="{ADMIN}"'
    alter(run, f'{name}={users} user_carol="carol-secret";')
    eventually(lambda: is_let_in(node, "carol", "carol-secret"))
    assert not is_let_in(node, "alice", SECRET)
    shown = run("configs", "describe", "--broker", "1", "--json")
    assert name in shown and "carol-secret" not in shown
    folder = str(node.config.metadata_log_dir)
    for words in (["metadata", "dump", folder], ["metadata", "dump", folder, "--json"]):
        dumped = CliRunner().invoke(main, words).stdout
        assert name in dumped and "carol-secret" not in dumped
    run("configs", "alter", "--broker", "1", "--delete-config", name)
    eventually(lambda: is_let_in(node, "alice", SECRET))
    assert not is_let_in(node, "carol", "carol-secret")


@pytest.mark.parametrize(
    "text",
    [
        "nonsense", f"{MODULE} password=hunter2;", f"{SCRAM};",
        f"{MODULE} password=hunter2 user_alice=hunter2;",
    ],
)  # fmt: skip
def test_a_login_that_cannot_be_read_is_refused_without_being_told(node, run, text):
    told = alter(run, f"listener.name.both.plain.sasl.jaas.config={text}", fails=True)
    assert "INVALID_REQUEST" in told and "hunter2" not in told
    assert is_let_in(node, "alice", SECRET)


@pytest.mark.parametrize(
    "change",
    [
        "listener.name.both.sasl.enabled.mechanisms=PLAIN", "ssl.keystore.location=/a/file",
        "listener.name.ssl.ssl.client.auth=none", "plain.sasl.jaas.config=x",
        "listener.name.both.oauthbearer.sasl.jaas.config=x",
    ],
)  # fmt: skip
def test_other_settings_of_listeners_need_a_restart(run, change):
    told = alter(run, change, fails=True)
    assert "dynamically" in told


def test_a_nodes_own_password_changes_while_it_runs(node, run):
    """Towards brokers and controllers new connections log in with the new one: the old user is gone
    from the controller's listener, and what was open there is closed."""
    role = node.node.broker
    logins = lambda: [  # noqa: E731 - asked again and again
        each.transport.security.login for each in (role.connections, role._channel)
    ]
    assert [each.username for each in logins()] == ["admin", "admin"]
    for listener, users in (("both", f'user_admin="{ADMIN}" '), ("controller", "")):
        users += 'user_node="new-secret"'
        jaas = f'{MODULE} username="node" password="new-secret" {users};'
        alter(run, f"listener.name.{listener}.plain.sasl.jaas.config={jaas}")
    new = [("node", "new-secret")] * 2
    eventually(lambda: [(each.username, each.password) for each in logins()] == new)
    before = {each.name: each.accepted_total for each in acceptors(node)}
    drop_all(node, "CONTROLLER")
    assert json.loads(run("topics", "create", "t", "--partitions", "1", "--json"))
    after = {each.name: each.accepted_total for each in acceptors(node)}
    assert after["CONTROLLER"] > before["CONTROLLER"]


def drop_all(node, name):
    """Close what is open at a listener."""
    (listener,) = (each for each in acceptors(node) if each.name == name)

    async def close():
        for each in tuple(listener.connections):
            each.channel.drop()

    asyncio.run_coroutine_threadsafe(close(), node._loop).result(SECONDS)


def acceptors(node):
    return node.node._acceptors_of(node.config.listeners)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("ssl.keystore.location", "a\0b"), ("ssl.truststore.location", "a\0b"),
        ("ssl.truststore.certificates", "-----BEGIN \u00fc"), ("ssl.keystore.location", "/dev/zero"),
        ("ssl.keystore.key", "-----BEGIN \0"),
    ],
)  # fmt: skip
def test_no_text_about_keys_stops_a_node(node, run, caplog, name, text):
    """Whoever is asked refuses it; what a former version stored is left unused, told once, and
    counted until it is gone."""
    before, whole = serial(node, "MTLS"), f"listener.name.mtls.{name}"
    for listener in ("BOTH", "CONTROLLER"):
        told = changed(node, listener, (whole, text))
        assert told is not None and told.code == ErrorCode.INVALID_REQUEST
    node.node.controller.controller.refuse_listeners = lambda _config: None
    assert changed(node, "CONTROLLER", (whole, text)) is None
    eventually(lambda: whole in run("configs", "describe", "--broker", "1", "--json"))
    eventually(lambda: node.node.changed.kept_back == 1)
    for threads in ("2", "1"):
        assert changed(node, "BOTH", ("log.cleaner.threads", threads)) is None
    assert serial(node, "MTLS") == before
    drop_all(node, "CONTROLLER")
    assert changed(node, "CONTROLLER", (whole, None)) is None
    eventually(lambda: whole not in run("configs", "describe", "--broker", "1", "--json"))
    eventually(lambda: node.node.changed.kept_back == 0)
    assert len([each for each in caplog.messages if "keeping the" in each]) == 1
    assert not any(node.node.own_faults.counts.values())


@pytest.mark.parametrize(
    "name",
    ["listener.name.mtsl.ssl.truststore.location", "listener.name.x.plain.sasl.jaas.config"],
)
def test_a_listener_that_is_not_there_is_refused(node, run, name):
    """Else the trust or the users that were to go would stay, and nobody would know."""
    text = node.authority.certificate if "ssl" in name else f'{MODULE} user_carol="pw";'
    for listener in ("BOTH", "CONTROLLER"):
        told = changed(node, listener, (name, text))
        assert told is not None and told.code == ErrorCode.INVALID_REQUEST
        assert name in str(told) and "BOTH, CONTROLLER, MTLS" in str(told)
    assert name not in run("configs", "describe", "--broker", "1", "--json")


def changed(node, listener, *changes):
    """What a node says against a change of its settings that comes to one of its listeners."""
    security = security_of(node.kafka_properties(listener, "admin", ADMIN))
    operations = [
        (ConfigOperation.DELETE if text is None else ConfigOperation.SET, name, text)
        for name, text in changes
    ]

    async def ask():
        at = node.address(listener)
        is_controllers = listener == "CONTROLLER"
        async with Cluster(at, security=security, at_controllers=is_controllers) as cluster:
            await alter_configs(cluster, ResourceKind.BROKER, "1", operations)

    try:
        asyncio.run(ask())
    except ApiError as fault:
        return fault
    return None
