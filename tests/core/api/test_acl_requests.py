"""CreateAcls, DeleteAcls and DescribeAcls on a node with an authorizer, as Kafka 4.1 answers them."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.access.rules import ACLS, HOSTS, NAMES, OPERATIONS, USERS
from tests.core.api.test_p58_envelope import envelope, frame
from tests.core.controller.world import World

from anabranch.core.access.acl_filter import AclFilter
from anabranch.core.access.acls import Acl
from anabranch.core.access.authorize import AllowAll
from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.access.principal_bytes import write_principal
from anabranch.core.access.standard_authorizer import StandardAuthorizer
from anabranch.core.api.registry import handlers
from anabranch.core.errors import ErrorCode
from anabranch.core.outcome import Forward
from anabranch.core.wire.messages.create_acls import AclCreation, CreateAclsRequest
from anabranch.core.wire.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from anabranch.core.wire.messages.describe_acls import DescribeAclsRequest

INVALID = ErrorCode.INVALID_REQUEST


def world(super_users=("User:ANONYMOUS",)) -> World:
    """A controller whose authorizer follows its image."""
    made = World()
    controller = made.controller
    controller.authorizer = StandardAuthorizer(
        lambda: controller.image.acls, frozenset(super_users)
    )
    return made


def creation(acl: Acl) -> AclCreation:
    return AclCreation(
        resource_type=acl.resource_type, resource_name=acl.resource_name,
        resource_pattern_type=acl.pattern_type, principal=acl.principal, host=acl.host,
        operation=acl.operation, permission_type=acl.permission,
    )  # fmt: skip


def wanted(each: AclFilter) -> DeleteAclsFilter:
    return DeleteAclsFilter(*each)


def described(made: World, each: AclFilter | None = None) -> set[Acl]:
    each = each or AclFilter()
    answer = made.ask(DescribeAclsRequest(*each))
    assert answer.error_code == 0
    return {
        Acl(of.resource_type, of.pattern_type, of.resource_name, acl.principal, acl.host,
            acl.operation, acl.permission_type)
        for of in answer.resources for acl in of.acls
    }  # fmt: skip


FILTERS = st.builds(
    AclFilter,
    resource_type=st.sampled_from([1, 2, 3]),
    resource_name=st.none() | NAMES,
    pattern_type=st.sampled_from([1, 2, 3, 4]),
    principal=st.none() | USERS,
    host=st.none() | HOSTS,
    operation=st.just(1) | OPERATIONS,
    permission=st.sampled_from([1, 2, 3]),
)


def means(each: AclFilter, acl: Acl) -> bool:
    """What the documentation of kafka-acls says of a filter."""
    kind, name, pattern, who, host, operation, permission = each
    plain = [(kind, acl.resource_type), (operation, acl.operation), (permission, acl.permission)]
    if any(asked not in (1, has) for asked, has in plain):
        return False
    if (who and who != acl.principal) or (host and host != acl.host):
        return False
    if pattern in (3, 4) and pattern != acl.pattern_type:
        return False
    if name is None:
        return True
    if pattern == 2 and acl.pattern_type == 4:
        return name.startswith(acl.resource_name)
    return acl.resource_name == name or (pattern == 2 and acl.resource_name == "*")


@given(
    st.lists(
        st.one_of(st.lists(ACLS, max_size=6), st.lists(FILTERS, min_size=1, max_size=3)),
        max_size=8,
    ),
    FILTERS,
)
def test_what_is_made_is_there_until_a_filter_removes_it(steps, last) -> None:
    made, plain = world(), set()
    for step in steps:
        if step and isinstance(step[0], AclFilter):
            answer = made.ask(DeleteAclsRequest(filters=[wanted(each) for each in step]))
            for each, result in zip(step, answer.filter_results, strict=True):
                assert result.error_code == 0
                assert len(result.matching_acls) == sum(means(each, acl) for acl in plain)
            plain = {acl for acl in plain if not any(means(each, acl) for each in step)}
        else:
            answer = made.ask(CreateAclsRequest(creations=[creation(acl) for acl in step]))
            assert [each.error_code for each in answer.results] == [0] * len(step)
            plain |= set(step)
        assert described(made) == plain
        assert len(made.image.acls.by_id) == len(plain)
    assert described(made, last) == {acl for acl in plain if means(last, acl)}


GOOD = Acl(2, 3, "t", "User:a", "*", 3, 3)


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"resource_type": 4}, "The only valid name for the CLUSTER resource is kafka-cluster"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        ({"resource_type": 1}, "Invalid resourceType ANY"),
        ({"resource_type": 99}, "Invalid resourceType UNKNOWN"),
        ({"pattern_type": 2}, "Invalid patternType MATCH"),
        ({"operation": 1}, "Invalid operation ANY"),
        ({"operation": 99}, "Invalid operation UNKNOWN"),
        ({"permission": 0}, "Invalid permissionType UNKNOWN"),
        ({"principal": "alice"}, "Could not parse principal from `alice` (no colon is present"),
    ],
)
def test_a_rule_that_cannot_be_is_refused_alone(changes, sentence) -> None:
    fields = {name: getattr(GOOD, name) for name in GOOD.__struct_fields__}
    made = world()
    bad = creation(Acl(**{**fields, **changes}))
    answer = made.ask(CreateAclsRequest(creations=[bad, creation(GOOD)]))
    refused, taken = answer.results
    assert refused.error_code == INVALID
    assert refused.error_message.startswith(sentence)
    assert taken.error_code == 0
    assert described(made) == {GOOD}


@pytest.mark.parametrize(
    ("bad", "sentence"),
    [
        (AclFilter(resource_type=0), "Unknown patternFilter."),
        (AclFilter(pattern_type=9), "Unknown patternFilter."),
        (AclFilter(operation=0), "Unknown entryFilter."),
        (AclFilter(permission=7), "Unknown entryFilter."),
    ],
)
def test_a_filter_that_nobody_knows_is_refused(bad, sentence) -> None:
    made = world()
    made.ask(CreateAclsRequest(creations=[creation(GOOD)]))
    (result,) = made.ask(DeleteAclsRequest(filters=[wanted(bad)])).filter_results
    assert (result.error_code, result.error_message) == (INVALID, sentence)
    answer = made.ask(DescribeAclsRequest(*bad))
    assert (answer.error_code, answer.error_message) == (INVALID, sentence)
    assert described(made) == {GOOD}


def test_who_has_no_right_neither_sees_nor_changes_rules() -> None:
    made = world(super_users=())
    code = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
    assert made.ask(DescribeAclsRequest()).error_code == code
    (result,) = made.ask(CreateAclsRequest(creations=[creation(GOOD)])).results
    assert result.error_code == code
    (result,) = made.ask(DeleteAclsRequest(filters=[wanted(AclFilter())])).filter_results
    assert result.error_code == code
    assert not made.image.acls.by_id


@pytest.mark.parametrize(
    "body", [CreateAclsRequest(), DeleteAclsRequest()], ids=["create", "delete"]
)
def test_a_broker_leaves_rules_to_the_controller(body) -> None:
    run = handlers()[body.api_key].broker
    request = SimpleNamespace(
        body=body, principal=ANONYMOUS, client_host="", listener="", version=3
    )
    ruled = SimpleNamespace(authorizer=StandardAuthorizer(lambda: None))
    assert isinstance(run(ruled, request, 0), Forward)
    assert not isinstance(run(SimpleNamespace(authorizer=AllowAll()), request, 0), Forward)


@pytest.mark.parametrize("is_allowed", [False, True])
def test_what_is_forwarded_is_not_trusted_as_its_sender_is(is_allowed) -> None:
    """The envelope comes over a listener of nodes; the request inside is a client's."""
    made = world(super_users=("User:alice",) if is_allowed else ())
    controller = made.controller
    controller.authorizer = StandardAuthorizer(
        lambda: controller.image.acls, controller.authorizer._super_users,
        trusted=frozenset({"CONTROLLER"}),
    )  # fmt: skip
    answer = made.ask(
        envelope(
            frame(CreateAclsRequest(creations=[creation(GOOD)]), 3),
            request_principal=write_principal(Principal("User", "alice")),
        )
    )
    assert answer.error_code == 0
    assert len(made.image.acls.by_id) == is_allowed
    made.ask(CreateAclsRequest(creations=[creation(GOOD)]))
    assert len(made.image.acls.by_id) == 1


def test_a_node_without_the_rules_says_so() -> None:
    node = SimpleNamespace(
        authorizer=StandardAuthorizer(lambda: None, frozenset({"User:ANONYMOUS"}))
    )
    request = SimpleNamespace(
        body=DescribeAclsRequest(*AclFilter()), principal=ANONYMOUS, client_host="", listener=""
    )
    answer = handlers()[29].broker(node, request, 0)
    assert answer.error_code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
