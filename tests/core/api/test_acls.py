"""Requests about ACLs are answered as by Kafka 4.1 without an authorizer, so that tools go on."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import AllowAll
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.messages.create_acls import AclCreation, CreateAclsRequest
from anabranch.core.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.core.wire.messages.describe_acls import DescribeAclsRequest

REQUESTS = (
    DescribeAclsRequest(resource_name_filter=None),
    CreateAclsRequest(creations=[AclCreation(resource_name="t"), AclCreation()]),
    DeleteAclsRequest(filters=[DeleteAclsFilter(), DeleteAclsFilter()]),
)


class Denying(AllowAll):
    allows_all = False

    def authorize(self, request, operation, resource, name):
        return False


def ask(body, role, authorizer):
    """(code, text) of each part of an answer."""
    handler = handlers()[body.api_key]
    run = getattr(handler, role)
    request = SimpleNamespace(body=body, version=3)
    answer = run(SimpleNamespace(authorizer=authorizer, active=True), request, 0)
    parts = getattr(answer, "results", None) or getattr(answer, "filter_results", None) or [answer]
    return [(each.error_code, each.error_message) for each in parts]


@pytest.mark.parametrize("role", ["broker", "controller"])
@pytest.mark.parametrize("body", REQUESTS, ids=lambda body: type(body).__name__)
def test_without_an_authorizer_security_is_disabled(body, role):
    answers = ask(body, role, AllowAll())
    assert len(answers) == (1 if body is REQUESTS[0] else 2)
    for code, text in answers:
        assert code == ErrorCode.SECURITY_DISABLED
        assert text.startswith("No Authorizer is configured")


@pytest.mark.parametrize("body", REQUESTS, ids=lambda body: type(body).__name__)
def test_a_stranger_is_refused(body):
    for code, _ in ask(body, "broker", Denying()):
        assert code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED
