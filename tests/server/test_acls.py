"""A node with an authorizer: rules are made at the controller's listener and hold at once."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import (
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    ResourcePatternType,
    ResourceType,
)
from confluent_kafka.cimpl import NewTopic
from tests.server.node_kit import ThreadNode, free_port, settings_of
from tests.server.three_kit import followed

from anabranch.cli.main import main
from anabranch.core.access.standard_authorizer import STANDARD_AUTHORIZER
from anabranch.server.config import load_config

SECONDS = 20


@pytest.fixture
def node(tmp_path):
    """Clients have no right; who reaches the controller's listener has all."""
    running = ThreadNode.__new__(ThreadNode)
    listeners = f"PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:{free_port()}"
    settings = settings_of(tmp_path, authorizer_class_name=STANDARD_AUTHORIZER)
    running._take(load_config(None, [*settings, f"listeners={listeners}"]))
    running.controller = listeners.rpartition("//")[2]
    yield running.start()
    running.stop()


def acls(node, words, where="controller"):
    """`anabranch acls WORDS` at the broker (`server`) or the controller; its JSON, once the broker
    knows what was decided."""
    place = node.controller if where == "controller" else node.bootstrap
    done = CliRunner().invoke(
        main, ["acls", *words.split(), f"--bootstrap-{where}", place, "--json"]
    )
    assert done.exit_code == 0, done.output
    followed([node.node])
    return json.loads(done.stdout)


def create(node, name):
    """Ask for a topic as a client; the error's name, "" for success."""
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (asked,) = admin.create_topics([NewTopic(name, 1, 1)], request_timeout=SECONDS).values()
    try:
        asked.result(SECONDS)
    except KafkaException as fault:
        return fault.args[0].name()
    return ""


def produce(node, topic, **settings):
    """Send a record as a client; the error's name, "" for success."""
    said = []
    producer = Producer({
        "bootstrap.servers": node.bootstrap, "message.timeout.ms": SECONDS * 1000, **settings,
        "error_cb": lambda error: said.append(error.name()) if error.fatal() else None,
    })  # fmt: skip
    producer.produce(topic, b"x", on_delivery=lambda error, _: said.append(error and error.name()))
    producer.flush(SECONDS)
    return said[0] or ""


def test_rules_hold_while_the_node_runs(node) -> None:
    seen = AdminClient({"bootstrap.servers": node.bootstrap})

    def change(words):
        return acls(node, words)

    assert create(node, "t-1") == "TOPIC_AUTHORIZATION_FAILED"
    added = change(
        "add --allow-principal User:ANONYMOUS --operation create --operation describe --topic t- "
        "--resource-pattern-type prefixed"
    )
    assert [each["operation"] for each in added] == ["create", "describe"]
    assert sorted(change("list"), key=str) == sorted(added, key=str)
    assert create(node, "t-1") == ""
    assert create(node, "u") == "TOPIC_AUTHORIZATION_FAILED"
    assert set(seen.list_topics(timeout=SECONDS).topics) == {"t-1"}
    assert produce(node, "t-1") == "TOPIC_AUTHORIZATION_FAILED"
    change("add --allow-principal User:ANONYMOUS --operation write --topic t-1")
    assert produce(node, "t-1") == ""
    assert produce(node, "t-1", **{"enable.idempotence": True}) == ""
    change("add --deny-principal User:* --topic *")
    assert produce(node, "t-1") != ""
    assert not seen.list_topics(timeout=SECONDS).topics
    removed = change("remove --deny-principal User:* --topic *")
    assert [(each["name"], each["permission"]) for each in removed] == [("*", "deny")]
    assert produce(node, "t-1") == ""


def test_a_client_neither_sees_nor_makes_rules(node) -> None:
    for words in ("add --allow-principal User:a --topic t", "list", "remove --topic t"):
        done = CliRunner().invoke(
            main, ["acls", *words.split(), "--bootstrap-server", node.bootstrap]
        )
        assert done.exit_code == 1
        assert "luster authorization failed" in done.output
    assert acls(node, "list") == []


def test_a_client_with_the_right_makes_rules_at_a_broker(node) -> None:
    acls(node, "add --allow-principal User:ANONYMOUS --operation alter --cluster")
    made = acls(node, "add --allow-principal User:a --operation read --group g", "server")
    everything = AclBindingFilter(
        ResourceType.ANY, None, ResourcePatternType.ANY, None, None, AclOperation.ANY,
        AclPermissionType.ANY,
    )  # fmt: skip
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    found = admin.describe_acls(everything).result(SECONDS)
    assert {(each.name, each.principal) for each in found} == {
        ("kafka-cluster", "User:ANONYMOUS"), ("g", "User:a"),
    }  # fmt: skip
    assert made[0] in acls(node, "list", "server")


def test_rules_of_delegation_tokens(node):
    allow = "--allow-principal User:bob"
    for words in (
        f"{allow} --user-principal User:alice --operation create-tokens",
        f"{allow} --delegation-token an-id --operation describe",
    ):
        assert acls(node, f"add {words}") == acls(node, f"remove {words}")
    (rule,) = acls(node, f"add {allow} --user-principal User:alice --operation describe-tokens")
    assert (rule["resource"], rule["name"]) == ("user", "User:alice")
    assert acls(node, "list --user-principal User:alice") == [rule]


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (["add", "--topic", "t"], "Name whom: --allow-principal or --deny-principal."),
        (["add", "--allow-principal", "User:a"], "Name what: --topic, --group,"),
        (["add", "--allow-principal", "a", "--topic", "t"], "'a' is no principal; write User:a."),
        (["add", "--topic", "t", "--deny-host", "h"], "--deny-host needs --deny-principal."),
        (["remove"], "Name what: --topic, --group,"),
        (["remove", "--topic", "t", "--operation", "read"], "--operation needs --allow-principal"),
    ],
)
def test_flags_that_name_no_rule_are_usage_errors(words, sentence) -> None:
    done = CliRunner().invoke(main, ["acls", *words])
    assert done.exit_code == 2
    assert sentence in done.output
