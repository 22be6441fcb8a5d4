"""Log levels: a broker describes and alters its own, whole or not at all, in Kafka's words."""

from __future__ import annotations

import pytest
from tests.core.api.in_memory_node import InMemoryNode

from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Forward
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)

LOGGER, TOPIC = 8, 2
SET, DELETE, APPEND = 0, 1, 2


class Loggers:
    """Levels in a dict; what is given back has that of root."""

    def __init__(self):
        self.own = {"root": "INFO", "a.b": None}

    def levels(self):
        return {name: level or self.own["root"] for name, level in self.own.items()}

    def set_level(self, logger, level):
        self.own[logger] = level


@pytest.fixture
def node(node: InMemoryNode) -> InMemoryNode:
    node.broker.loggers = Loggers()
    return node


def alter(node, *configs, name=None, validate_only=False):
    resource = AlterConfigsResource(
        resource_type=LOGGER,
        resource_name=str(node.broker.broker_id) if name is None else name,
        configs=[
            AlterableConfig(name=logger, config_operation=operation, value=value)
            for logger, operation, value in configs
        ],
    )
    request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=validate_only)
    (answer,) = node.send(request, 1).responses
    return answer.error_code, answer.error_message


def described(node):
    resource = DescribeConfigsResource(
        resource_type=LOGGER, resource_name=str(node.broker.broker_id), configuration_keys=None
    )
    (result,) = node.send(DescribeConfigsRequest(resources=[resource]), 4).results
    return {each.name: (each.value, each.config_source) for each in result.configs}


def test_a_level_is_set_described_and_given_back(node):
    assert described(node) == {"a.b": ("INFO", 6), "root": ("INFO", 6)}
    assert alter(node, ("a.b", SET, "DEBUG"), ("root", SET, "WARN")) == (0, None)
    assert described(node) == {"a.b": ("DEBUG", 6), "root": ("WARN", 6)}
    assert alter(node, ("a.b", DELETE, None)) == (0, None)
    assert described(node)["a.b"] == ("WARN", 6)


@pytest.mark.parametrize(
    ("config", "code", "words"),
    [
        (("a.b", SET, "LOUD"), ErrorCode.INVALID_CONFIG, "Cannot set the log level of a.b to LOUD"),
        (("c", SET, "DEBUG"), ErrorCode.INVALID_CONFIG, "Logger c does not exist!"),
        (("root", DELETE, None), ErrorCode.INVALID_REQUEST, "Removing the log level of the root"),
        (("a.b", APPEND, "DEBUG"), ErrorCode.INVALID_REQUEST, "APPEND operation is not allowed"),
    ],
)
def test_a_bad_level_changes_nothing(node, config, code, words):
    before = described(node)
    found, sentence = alter(node, ("root", SET, "ERROR"), config)
    assert found == code
    assert words in sentence
    assert described(node) == before


@pytest.mark.parametrize("name", ["", "x", "77"])
def test_another_broker_is_refused(node, name):
    assert alter(node, ("a.b", SET, "DEBUG"), name=name)[0] == ErrorCode.INVALID_REQUEST


def test_a_rehearsal_changes_nothing(node):
    assert alter(node, ("a.b", SET, "DEBUG"), validate_only=True) == (0, None)
    assert described(node)["a.b"] == ("INFO", 6)


def test_everything_else_is_the_controllers(node):
    resource = AlterConfigsResource(resource_type=TOPIC, resource_name="t", configs=[])
    assert isinstance(node.send(IncrementalAlterConfigsRequest(resources=[resource]), 1), Forward)
