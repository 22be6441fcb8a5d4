"""A node answers each request, with each right missing, as Apache Kafka 4.1 did when it was recorded."""

from __future__ import annotations

import json

import pytest
from compat.rights import RIGHTS
from compat.rights_table import (
    DATA,
    EVERY,
    NONE,
    PAGE,
    SETTINGS,
    Node,
    Table,
    classes,
    differences,
    page,
    told,
)
from compat.token_rights import LISTENERS, settings
from tests.server.node_kit import ProcessNode

from anabranch.client.ports import free_ports

MISSING = [
    f"not {operation} on {kind.name}"
    for kind, operations in RIGHTS.items()
    for operation in operations.split()
]


@pytest.fixture(scope="module")
def recorded():
    return json.loads(DATA.read_text())


@pytest.fixture
def table(tmp_path):
    ports = free_ports(len(LISTENERS))
    node = ProcessNode(tmp_path, ports[0], **{**SETTINGS, **settings(*ports)}).start()
    try:
        yield Table(Node(node.ready().bootstrap), f"127.0.0.1:{ports[2]}")
    finally:
        node.close()


def test_a_client_with_no_right_and_with_all_is_answered_as_by_kafka(recorded, table):
    assert not differences(recorded, table.rows(some=()))


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_a_client_without_one_right_is_answered_as_by_kafka(recorded, table):
    assert not differences(recorded, table.rows())


def test_each_right_was_missing_once(recorded):
    for answers in recorded.values():
        lacks = [missing for _, those in answers for missing in those]
        assert sorted(lacks) == sorted([EVERY, NONE, *MISSING])


def test_the_page_is_what_was_recorded(recorded):
    assert PAGE.read_text() == page(recorded)


def test_what_differs_is_found_and_told():
    full, less = {"error_code": 0, "name": "t"}, {"error_code": 29, "name": "t"}
    rows = {NONE: {"A 1 ": less}, EVERY: {"A 1 ": full}, "not READ on TOPIC": {"A 1 ": full}}
    wanted = classes(rows)
    assert wanted == {"A 1 ": [[full, [EVERY, "not READ on TOPIC"]], [less, [NONE]]]}
    assert not differences(wanted, rows)
    assert len(differences(wanted, {NONE: {"A 1 ": full, "B 1 ": full}})) == 2
    assert told(full, less) == "`TOPIC_AUTHORIZATION_FAILED`"
    assert told(full, {"error_code": 0}) == "less is shown"
