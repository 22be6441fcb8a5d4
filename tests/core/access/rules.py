"""Random access rules over few names, so that they meet."""

from __future__ import annotations

from hypothesis import strategies as st

from anabranch.core.access.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl
from anabranch.core.access.authorize import Operation, ResourceType

NAMES = st.sampled_from(["a", "ab", "abc", "b", "*", "a*", "hardcode", "kafka-cluster"])
USERS = st.sampled_from(["User:alice", "User:bob", "User:*", "Group:alice"])
HOSTS = st.sampled_from(["*", "10.0.0.1", "10.0.0.2"])
ALL = 2
OPERATIONS = st.sampled_from([ALL, *map(int, Operation)])

ACLS = st.builds(
    Acl,
    resource_type=st.sampled_from([int(ResourceType.TOPIC), int(ResourceType.GROUP)]),
    pattern_type=st.sampled_from([LITERAL, PREFIXED]),
    resource_name=NAMES,
    principal=USERS,
    host=HOSTS,
    operation=OPERATIONS,
    permission=st.sampled_from([ALLOW, DENY]),
)
