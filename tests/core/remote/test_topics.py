"""Which topics a node without a remote store must not serve, and how a remote log is given up."""

from __future__ import annotations

import msgspec
import pytest
from immutables import Map

from anabranch.core.errors import ApiError, ErrorCode
from anabranch.core.metadata.image import RESOURCE_TOPIC, MetadataImage
from anabranch.core.remote.topics import refuse_disabling, why_not_controlled, why_not_served
from anabranch.core.settings.broker import BrokerConfig

ON, OFF = {"remote.storage.enable": "true"}, {"remote.storage.enable": "false"}
DELETED = {"remote.log.delete.on.disable": "TRUE"}


def image(**topics):
    own = {(RESOURCE_TOPIC, name): Map(values) for name, values in topics.items()}
    return msgspec.structs.replace(MetadataImage.empty(), configs=Map(own))


def test_a_node_without_a_remote_store_names_the_topics_that_need_one():
    without, having = (
        BrokerConfig.of({"remote.log.storage.system.enable": each}) for each in ("false", "true")
    )
    topics = image(a={"retention.ms": "5"}, b=OFF, c=ON, d=ON, e=ON, f=ON)
    assert why_not_served(topics, having) == ""
    assert why_not_served(image(a={}, b=OFF), without) == ""
    why = why_not_served(topics, without)
    assert why.startswith("remote.storage.enable is true for topic c, d, e and 1 more, and remote")
    assert "set remote.log.storage.system.enable=true" in why
    told = why_not_controlled(topics, without)
    assert told.startswith("remote.storage.enable is true for topic c, d, e and 1 more, and remote")
    assert "on this controller" in told and "restart it" in told
    assert why_not_controlled(topics, having) == why_not_controlled(image(b=OFF), without) == ""


@pytest.mark.parametrize("before", [{}, ON, OFF])
@pytest.mark.parametrize("own", [{}, ON, OFF])
@pytest.mark.parametrize("deletes", [{}, DELETED, {"remote.log.delete.on.disable": "false"}])
def test_a_remote_log_is_given_up_only_with_leave_to_delete_it(before, own, deletes):
    if before == ON and own != ON and deletes != DELETED:
        with pytest.raises(ApiError, match="It is invalid to disable remote storage") as caught:
            refuse_disabling(before, {**own, **deletes})
        assert caught.value.code is ErrorCode.INVALID_CONFIG
    else:
        refuse_disabling(before, {**own, **deletes})
