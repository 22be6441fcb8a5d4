"""What the checks of rights object to: each claim is broken by hand once."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import replace

from anabranch.core.access.acls import ALLOW, DENY, LITERAL, PREFIXED, Acl
from anabranch.core.broker.authorizer import authorizer_of
from anabranch.core.errors import ErrorCode
from anabranch.core.metadata.concerns.acls import entry
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.quotas.client_quotas import ClientQuotas
from anabranch.core.settings.broker import BrokerConfig
from anabranch.core.wire import metadata_records as records
from anabranch.core.wire.messages.create_acls import AclCreationResult, CreateAclsResponse
from anabranch.sim.checks.marks import Marks
from anabranch.sim.checks.rights import RightsChecks, allowed, limit
from anabranch.sim.checks.violation import Violation
from anabranch.sim.life import draw_plan
from anabranch.sim.plan_parts import RightsChange
from anabranch.sim.rights_plan import FIRST_SEED, QUOTA

PLAN = draw_plan(FIRST_SEED + 2)
RULE = Acl(2, LITERAL, "top", "User:alice", "*", 3, ALLOW)
DENIAL = Acl(2, PREFIXED, "to", "User:*", "*", 2, DENY)


class Scene:
    """The checks, a log of rights, and a node that follows it by hand."""

    def __init__(self) -> None:
        self.marks = Marks()
        metadata: Any = SimpleNamespace(rewound=False)
        self.checks = RightsChecks(metadata, self.marks, PLAN, lambda: True)
        self.image = MetadataImage.empty()
        config = BrokerConfig.of(dict(PLAN.config))
        self.broker: Any = SimpleNamespace(image=self.image, client_quotas=ClientQuotas(config))
        self.broker.authorizer = authorizer_of(config, lambda: self.broker.image)
        self.node: Any = SimpleNamespace(node_id=1, name="node-1", broker=self.broker)

    def commit(self, *batch: Any) -> None:
        first = self.image.next_offset
        self.image = replay_batch(self.image, batch, first + len(batch) - 1, 1)[0]
        self.checks.committed(batch, first + len(batch))

    def follow(self, image: MetadataImage | None = None) -> None:
        self.broker.image = image or self.image
        self.broker.client_quotas.follow(self.broker.image.quotas)

    def violated(self) -> str:
        with pytest.raises(Violation) as caught:
            self.checks.look(self.node)
        return caught.value.id


def test_a_node_that_follows_may_lag_and_decides_by_what_it_has():
    scene = Scene()
    scene.checks.look(scene.node)
    scene.commit(entry(b"1" * 16, RULE))
    scene.checks.look(scene.node)
    scene.follow()
    scene.checks.look(scene.node)
    scene.commit(records.RemoveAccessControlEntryRecord(id=b"1" * 16))
    scene.checks.look(scene.node)
    scene.checks.copy_changed(scene.node, "loaded")
    scene.commit(entry(b"2" * 16, DENIAL))
    scene.follow()
    scene.checks.look(scene.node)
    assert set(scene.marks) == {"right-revoked", "rights-from-snapshot"}


def test_a_node_without_a_rule_of_the_log_is_found():
    scene = Scene()
    scene.commit(entry(b"1" * 16, RULE))
    before = scene.image
    scene.commit(entry(b"2" * 16, DENIAL))
    scene.follow(replace(before, offset=scene.image.offset))
    assert scene.violated() == "A2"


def test_a_decision_of_older_rules_is_found():
    scene = Scene()
    scene.commit(entry(b"1" * 16, RULE))
    older = scene.image
    scene.broker.authorizer = authorizer_of(BrokerConfig.of(dict(PLAN.config)), lambda: older)
    scene.commit(entry(b"2" * 16, DENIAL))
    scene.follow()
    assert scene.violated() == "A3"


def test_a_quota_that_is_not_followed_is_found():
    scene = Scene()
    named = [records.EntityData("user", "alice")]
    scene.commit(records.ClientQuotaRecord(named, QUOTA, 1_000.0, remove=False))
    scene.broker.image = scene.image
    assert scene.violated() == "A3"


def test_an_acknowledged_change_is_in_the_log():
    scene = Scene()
    done = CreateAclsResponse(results=[AclCreationResult()])
    answered = scene.checks.asked(RightsChange(0, RULE, value=True))
    with pytest.raises(Violation, match="acknowledged"):
        answered(done)
    scene.commit(entry(b"1" * 16, RULE))
    answered(done)
    scene.checks.asked(RightsChange(0, RULE, value=True))(done)
    refused = [AclCreationResult(error_code=ErrorCode.INVALID_REQUEST)]
    with pytest.raises(Violation, match="refused"):
        answered(CreateAclsResponse(results=refused))
    with pytest.raises(Violation, match="made again"):
        scene.commit(entry(b"2" * 16, RULE))


def test_the_plain_list_of_rules_decides():
    def asks(
        *rules: Acl, who: str = "User:alice", operation: int = 8, is_open: bool = True
    ) -> bool:
        return allowed(rules, who, "10.0.0.1", operation, "topic-0", is_open=is_open)

    anywhere = replace(RULE, pattern_type=PREFIXED)
    assert asks() and not asks(is_open=False)
    assert asks(anywhere) and asks(anywhere, operation=3)
    assert not asks(anywhere, operation=4) and not asks(anywhere, who="User:bob")
    assert not asks(anywhere, DENIAL) and not asks(DENIAL)


def test_the_most_specific_quota_limits():
    both = (("client-id", "app"), ("user", "alice"))
    quotas = {((("user", None),), QUOTA): 1.0, (both, QUOTA): 2.0}
    assert limit(quotas, "alice", "app") == 2.0
    assert limit(quotas, "alice", "other") == limit(quotas, "bob", "app") == 1.0
    assert limit({}, "alice", "app") == float("inf")
