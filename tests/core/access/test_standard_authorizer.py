"""The authorizer against a slow, plain model that reads every rule for every question."""

from __future__ import annotations

from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tests.core.access.rules import ACLS, ALL

from anabranch.core.access import standard_authorizer
from anabranch.core.access.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl, Acls
from anabranch.core.access.authorize import Operation, ResourceType
from anabranch.core.access.principal import Principal
from anabranch.core.access.standard_authorizer import (
    StandardAuthorizer,
    java_host,
    super_users_of,
)

READ, WRITE, DESCRIBE = Operation.READ, Operation.WRITE, Operation.DESCRIBE
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
IMPLIED = {
    Operation.DESCRIBE: {READ, WRITE, Operation.DELETE, Operation.ALTER},
    Operation.DESCRIBE_CONFIGS: {Operation.ALTER_CONFIGS},
}
PRINCIPALS = st.sampled_from(
    [Principal("User", "alice"), Principal("User", "carol"), Principal("Group", "alice")]
)
QUESTIONS = st.tuples(
    PRINCIPALS,
    st.sampled_from(["10.0.0.1", "10.0.0.3"]),
    st.sampled_from(list(Operation)),
    st.sampled_from([TOPIC, GROUP]),
    st.sampled_from(["a", "ab", "abcd", "b", "c", "*", "a*b"]),
)


def asked(principal=None, host="10.0.0.1", listener="CLIENTS"):
    """A request, as far as the authorizer reads it."""
    principal = principal or Principal("User", "alice")
    return SimpleNamespace(principal=principal, client_host=host, listener=listener)


def rule(name, operation=READ, permission=ALLOW, *, pattern=LITERAL, who="User:alice", host="*"):
    """A rule about a topic."""
    return Acl(int(TOPIC), pattern, name, who, host, int(operation), permission)


def of(*rules):
    """These rules, each with an id."""
    acls = Acls().mutate()
    for number, acl in enumerate(rules):
        acls.add(number.to_bytes(16), acl)
    return acls.finish()


def fits(acl, name):
    """Whether a rule is about that name."""
    if acl.pattern_type == PREFIXED:
        return name.startswith(acl.resource_name)
    return acl.resource_name in (name, "*")


def applies(acl, principal, host):
    """Whether a rule is about whoever asks."""
    return acl.principal in (str(principal), "User:*") and acl.host in ("*", host)


def plainly(rules, principal, host, operation, resource, name, *, is_open):
    """What the documentation of ACLs says, rule by rule."""
    about = [acl for acl in rules if acl.resource_type == resource and fits(acl, name)]
    mine = [acl for acl in about if applies(acl, principal, host)]
    if any(acl.permission == DENY and acl.operation in (ALL, operation) for acl in mine):
        return False
    allowing = {ALL, operation} | IMPLIED.get(operation, set())
    if any(acl.permission == ALLOW and acl.operation in allowing for acl in mine):
        return True
    return is_open and not about


def plainly_any(rules, principal, host, operation, resource, *, is_open):
    """Whether any resource is left that the rules allow, as KIP-679 counts."""
    if plainly(rules, principal, host, operation, resource, "hardcode", is_open=is_open):
        return True
    mine = [
        acl for acl in rules
        if acl.resource_type == resource and applies(acl, principal, host)
        and acl.operation in (ALL, operation)
    ]  # fmt: skip
    denying = [acl for acl in mine if acl.permission == DENY]
    allowing = [acl for acl in mine if acl.permission == ALLOW]
    if any(acl.pattern_type == LITERAL and acl.resource_name == "*" for acl in denying):
        return False
    for acl in allowing:
        if acl.pattern_type == LITERAL and acl.resource_name == "*":
            return True
        covered = any(
            acl.resource_name.startswith(each.resource_name)
            if each.pattern_type == PREFIXED
            else acl.pattern_type == LITERAL and each.resource_name == acl.resource_name
            for each in denying
        )
        if not covered:
            return True
    return False


@given(st.lists(ACLS, max_size=12), st.lists(QUESTIONS, min_size=1), st.booleans())
def test_answers_are_those_of_the_plain_model(rules, questions, is_open) -> None:
    acls = of(*rules)
    authorizer = StandardAuthorizer(lambda: acls, open_without_acl=is_open)
    for question in [*questions, *questions]:  # the second time from the kept decisions
        principal, host, operation, resource, name = question
        request = asked(principal, host)
        expected = plainly(rules, principal, host, operation, resource, name, is_open=is_open)
        assert authorizer.authorize(request, operation, resource, name) == expected, question
        expected = plainly_any(rules, principal, host, operation, resource, is_open=is_open)
        assert authorizer.authorize_by_type(request, operation, resource) == expected, question


ALTER_CONFIGS, DESCRIBE_CONFIGS = Operation.ALTER_CONFIGS, Operation.DESCRIBE_CONFIGS


@pytest.mark.parametrize(
    ("rules", "operation", "name", "is_allowed"),
    [
        ([rule("a", READ)], READ, "a", True),
        ([rule("a", READ)], WRITE, "a", False),
        ([rule("a", READ)], READ, "ab", False),
        ([rule("a", READ, pattern=PREFIXED)], READ, "ab", True),
        ([rule("*", READ)], READ, "ab", True),
        ([rule("*", READ, pattern=PREFIXED)], READ, "ab", False),
        ([rule("a", ALL), rule("a", READ, DENY)], READ, "a", False),
        ([rule("a", READ, DENY), rule("a", ALL)], READ, "a", False),
        ([rule("a", ALL), rule("*", READ, DENY, who="User:*")], READ, "a", False),
        ([rule("a", ALL), rule("a", READ, DENY, host="10.0.0.9")], READ, "a", True),
        ([rule("a", READ)], DESCRIBE, "a", True),
        ([rule("a", ALTER_CONFIGS)], DESCRIBE, "a", False),
        ([rule("a", ALTER_CONFIGS)], DESCRIBE_CONFIGS, "a", True),
        ([rule("a", DESCRIBE), rule("a", READ, DENY)], DESCRIBE, "a", True),
        ([rule("a", DESCRIBE), rule("a", ALL, DENY)], DESCRIBE, "a", False),
        (
            [rule("a", DESCRIBE_CONFIGS), rule("a", ALTER_CONFIGS, DENY)],
            DESCRIBE_CONFIGS,
            "a",
            True,
        ),
        ([rule("a", READ, who="User:*")], READ, "a", True),
        ([rule("a", READ, who="Group:alice")], READ, "a", False),
    ],
)
def test_the_rules_by_example(rules, operation, name, is_allowed) -> None:
    authorizer = StandardAuthorizer(lambda: of(*rules))
    assert authorizer.authorize(asked(), operation, TOPIC, name) == is_allowed


@given(
    st.lists(st.tuples(st.integers(0, 5), ACLS), max_size=20),
    st.lists(QUESTIONS, min_size=1, max_size=4),
)
def test_each_change_of_a_rule_counts_at_once(steps, questions) -> None:
    known = {}
    acls = Acls()
    authorizer = StandardAuthorizer(lambda: acls)
    for number, acl in steps:
        acl_id, changing = bytes([number]), acls.mutate()
        if known.pop(acl_id, None) is not None:
            changing.remove(acl_id)
        else:
            known[acl_id] = acl
            changing.add(acl_id, acl)
        acls = changing.finish()
        for principal, host, operation, resource, name in questions:
            expected = plainly(
                known.values(), principal, host, operation, resource, name, is_open=False
            )
            got = authorizer.authorize(asked(principal, host), operation, resource, name)
            assert got == expected


@pytest.mark.parametrize("is_open", [False, True])
def test_before_the_rules_are_loaded_only_super_users_are_let_in(is_open) -> None:
    authorizer = StandardAuthorizer(
        lambda: None, frozenset({"User:root"}), open_without_acl=is_open
    )
    assert not authorizer.authorize(asked(), READ, TOPIC, "a")
    assert not authorizer.authorize_by_type(asked(), WRITE, TOPIC)
    assert authorizer.authorize(asked(Principal("User", "root")), READ, TOPIC, "a")


def test_no_rule_stops_a_super_user_or_another_node() -> None:
    acls = of(rule("*", ALL, DENY, who="User:*"))
    authorizer = StandardAuthorizer(
        lambda: acls, frozenset({"User:root"}), trusted=frozenset({"INTERNAL"})
    )
    assert authorizer.authorize(asked(Principal("User", "root")), READ, TOPIC, "a")
    assert authorizer.authorize(asked(listener="INTERNAL"), READ, TOPIC, "a")
    assert not authorizer.authorize(asked(Principal("Group", "root")), READ, TOPIC, "a")
    assert not authorizer.authorize(asked(), READ, TOPIC, "a")


def test_kept_decisions_are_bounded(monkeypatch) -> None:
    monkeypatch.setattr(standard_authorizer, "KEPT_DECISIONS", 10)
    acls = of(rule("t1"), rule("t25"))
    authorizer = StandardAuthorizer(lambda: acls)
    allowed = {
        number for number in range(40) if authorizer.authorize(asked(), READ, TOPIC, f"t{number}")
    }
    assert allowed == {1, 25}
    assert len(authorizer._decisions) <= 10


def test_decisions_about_names_of_any_length_are_kept_in_bounded_memory() -> None:
    """Who has no rights may ask about groups and topics with names of a megabyte each."""
    acls = of(rule("long" * 1_000), rule("t1"))
    authorizer = StandardAuthorizer(lambda: acls)
    for name, is_allowed in (("t1", True), ("long" * 1_000, True), ("other" * 1_000, False)):
        for _ in range(2):
            assert authorizer.authorize(asked(), READ, TOPIC, name) is is_allowed
    assert sum(len(str(key)) for key in authorizer._decisions) < 1_000


@pytest.mark.parametrize(
    ("host", "written"),
    [
        ("10.0.0.1", "10.0.0.1"),
        ("::1", "0:0:0:0:0:0:0:1"),
        ("2001:db8::a", "2001:db8:0:0:0:0:0:a"),
        ("::ffff:10.0.0.1", "10.0.0.1"),
        ("", ""),
    ],
)
def test_addresses_are_written_as_by_java(host, written) -> None:
    assert java_host(host) == written


def test_super_users_are_principals() -> None:
    assert super_users_of(" User:a; User:b c;;") == {"User:a", "User:b c"}
    assert super_users_of("") == frozenset()
    with pytest.raises(ValueError, match="'admin' is no principal; write TYPE:NAME"):
        super_users_of("User:a;admin")
