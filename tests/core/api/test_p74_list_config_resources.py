"""ListConfigResources: topics, brokers, and what has settings without being either."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api.p74_list_config_resources import HANDLER
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.list_config_resources import ListConfigResourcesRequest

IMAGE = SimpleNamespace(
    topics_by_id={1: SimpleNamespace(name="t"), 2: SimpleNamespace(name="a")},
    brokers={1: None},
    configs={(2, "t"): {}, (16, "watch"): {}, (32, "g"): {}, (4, ""): {}},
)


class Denying(AllowAll):
    allows_all = False

    def authorize(self, request, operation, resource, name):
        return False


def ask(*types, version=1, authorizer=None):
    broker = SimpleNamespace(image=IMAGE, authorizer=authorizer or AllowAll())
    body = ListConfigResourcesRequest(resource_types=list(types))
    answer = HANDLER.broker(broker, SimpleNamespace(body=body, version=version), 0)
    return answer.error_code, [(e.resource_type, e.resource_name) for e in answer.config_resources]


@pytest.mark.parametrize(
    ("types", "version", "found"),
    [
        ((), 0, [(16, "watch")]),
        ((16,), 1, [(16, "watch")]),
        ((32, 2), 1, [(2, "a"), (2, "t"), (32, "g")]),
        ((), 1, [(16, "watch"), (8, "1"), (4, "1"), (2, "a"), (2, "t"), (32, "g")]),
    ],
)
def test_resources_are_listed_by_type(types, version, found):
    assert ask(*types, version=version) == (0, found)


def test_an_unknown_type_and_a_stranger_are_refused():
    assert ask(64) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert ask(authorizer=Denying()) == (ErrorCode.CLUSTER_AUTHORIZATION_FAILED, [])
