"""Which authorizer settings mean, and that it decides by what its role has followed."""

from __future__ import annotations

import pytest

from anabranch.core.access.acls import ALLOW, LITERAL, Acl
from anabranch.core.access.authorize import AllowAll, BrokersApart, Operation, ResourceType
from anabranch.core.access.principal import Principal
from anabranch.core.access.standard_authorizer import STANDARD_AUTHORIZER
from anabranch.core.broker.authorizer import authorizer_of
from anabranch.core.metadata.concerns.acls import entry
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.replay import replay_batch
from anabranch.core.request import Request
from anabranch.core.settings.broker import BrokerConfig

ALICE = Request(0, 0, 0, "", None, Principal("User", "alice"), "CLIENTS", "10.0.0.1", 0)


@pytest.mark.parametrize("is_open", [True, False])
def test_nothing_is_allowed_before_metadata_were_followed(is_open):
    images = [MetadataImage.empty()]
    config = BrokerConfig.of({
        "authorizer.class.name": STANDARD_AUTHORIZER,
        "allow.everyone.if.no.acl.found": str(is_open).lower(),
    })  # fmt: skip
    authorizer = authorizer_of(config, lambda: images[-1])

    def may(topic: str) -> bool:
        return authorizer.authorize(ALICE, Operation.READ, ResourceType.TOPIC, topic)

    assert not may("t")
    rule = Acl(ResourceType.TOPIC, LITERAL, "t", "User:alice", "*", Operation.READ, ALLOW)
    images.append(replay_batch(images[0], [entry(b"1" * 16, rule)], 0, 1)[0])
    assert may("t") and may("other") is is_open


def test_without_an_authorizer_brokers_have_their_own_listener_or_share_it():
    config = BrokerConfig.of({})
    assert isinstance(authorizer_of(config, MetadataImage.empty), AllowAll)
    apart = authorizer_of(config, MetadataImage.empty, brokers_apart="BROKERS")
    assert isinstance(apart, BrokersApart)
    assert not apart.authorize(ALICE, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "c")
