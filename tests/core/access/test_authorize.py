"""What brokers ask is taken on the brokers' own listener, where they have one (R4)."""

from types import SimpleNamespace

import pytest

from anabranch.core.access.authorize import (
    BrokersApart,
    Operation,
    ResourceType,
    cluster_allowed,
    topic_allowed,
)


@pytest.mark.parametrize("operation", list(Operation))
def test_only_what_brokers_ask_is_kept_from_the_clients_listener(operation):
    authorizer = BrokersApart("INTERNAL")
    client, broker = SimpleNamespace(listener="EXTERNAL"), SimpleNamespace(listener="INTERNAL")
    assert cluster_allowed(authorizer, broker, operation)
    assert cluster_allowed(authorizer, client, operation) == (
        operation is not Operation.CLUSTER_ACTION
    )
    assert topic_allowed(authorizer, client, Operation.READ, "t")
    assert not authorizer.authorize(
        client, Operation.CLUSTER_ACTION, ResourceType.CLUSTER, "kafka-cluster"
    )
