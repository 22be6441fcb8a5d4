"""The audit log: a line for each decision, while its logger is at DEBUG."""

from __future__ import annotations

import logging

import pytest

from anabranch.core.access.acls import ALLOW, LITERAL, NO_ACLS, Acl
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import Principal
from anabranch.core.access.standard_authorizer import StandardAuthorizer
from anabranch.core.request import Request
from anabranch.server.audit_log import audit
from anabranch.server.logs import FIELDS, TextLines

READ, WRITE, TOPIC = Operation.READ, Operation.WRITE, ResourceType.TOPIC


@pytest.fixture
def authorizer():
    rules = NO_ACLS.mutate()
    rules.add(bytes(16), Acl(TOPIC, LITERAL, "orders", "User:alice", "*", READ, ALLOW))
    known = rules.finish()
    return StandardAuthorizer(lambda: known, frozenset({"User:root"}), audit=audit)


def asked(name):
    return Request(0, 9, 1, "c", None, Principal("User", name), "L", "10.0.0.1", 1)


def test_each_decision_is_told(authorizer, caplog):
    caplog.set_level(logging.DEBUG, "anabranch.authorizer")
    for _ in range(2):  # the second one from the kept decisions
        assert authorizer.authorize(asked("alice"), READ, TOPIC, "orders")
        assert not authorizer.authorize(asked("alice"), WRITE, TOPIC, "orders")
    assert authorizer.authorize(asked("root"), WRITE, TOPIC, "orders")
    assert not authorizer.authorize_by_type(asked("bob"), WRITE, TOPIC)
    lines = [(each.getMessage(), getattr(each, FIELDS)) for each in caplog.records]
    said = ["access allowed", "access denied"] * 2 + ["access allowed", "access denied"]
    assert [sentence for sentence, _ in lines] == said
    assert lines[1][1] == {
        "principal": "User:alice", "operation": "WRITE", "host": "10.0.0.1", "resource": "TOPIC",
        "name": "orders", "request": "Produce",
    }  # fmt: skip
    assert lines[-1][1]["name"] == "(any)"


def test_nothing_is_told_while_it_is_off(authorizer, caplog):
    caplog.set_level(logging.INFO, "anabranch.authorizer")
    assert not authorizer.authorize(asked("bob"), WRITE, TOPIC, "orders")
    assert not caplog.records


def test_a_name_makes_no_line_of_its_own(authorizer, caplog):
    caplog.set_level(logging.DEBUG, "anabranch.authorizer")
    authorizer.authorize(asked("eve\naccess allowed"), WRITE, TOPIC, "orders")
    (record,) = caplog.records
    assert "\n" not in TextLines().format(record)
