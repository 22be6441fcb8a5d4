"""The indexes of the rules hold what the rules are, whatever was added and removed."""

from __future__ import annotations

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from tests.core.access.rules import ACLS

from anabranch.core.access.acls import PREFIXED, Acls


@given(st.lists(st.tuples(st.integers(0, 9), ACLS)), st.integers(1, 9))
def test_indexes_follow_the_rules(steps, size) -> None:
    acls, plain = Acls(), {}
    for start in range(0, len(steps), size):
        before, known = acls, dict(plain)
        changing = acls.mutate()
        for number, acl in steps[start : start + size]:
            acl_id = bytes([number])
            assert (acl_id in changing) == (acl_id in plain)
            if acl_id in plain:
                changing.remove(acl_id)
                del plain[acl_id]
            else:
                changing.add(acl_id, acl)
                plain[acl_id] = acl
        acls = changing.finish()
        assert dict(before.by_id) == known
    assert dict(acls.by_id) == plain
    by_resource = {
        (*resource, principal, acl_id): acl
        for resource, principals in acls.by_resource.items()
        for principal, rules in principals.items()
        for acl_id, acl in rules.items()
    }
    assert by_resource == {
        (*acl.resource, acl.principal, acl_id): acl for acl_id, acl in plain.items()
    }
    by_principal = {
        (*who, acl_id): acl for who, rules in acls.by_principal.items()
        for acl_id, acl in rules.items()
    }  # fmt: skip
    assert by_principal == {
        (acl.resource_type, acl.principal, acl_id): acl for acl_id, acl in plain.items()
    }
    prefixed = {acl.resource for acl in plain.values() if acl.pattern_type == PREFIXED}
    assert dict(acls.prefix_lengths) == Counter((kind, len(name)) for kind, _, name in prefixed)
    assert all(acls.by_resource.values())
    assert all(acls.by_principal.values())
