"""What shows that nodes run: addresses, names of writers, and the sentence."""

from __future__ import annotations

import pytest
from immutables import Map

from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.last_commits import note_key
from anabranch.core.diskless.manifests import INTERVAL_MS, RESTORED, manifest_key
from anabranch.core.errors import StorageFault
from anabranch.core.metadata.image import BrokerImage, ControllerImage, Endpoint, MetadataImage
from anabranch.core.running_nodes import (
    TWO_COORDINATORS,
    WATCH_MS,
    Changed,
    NodeAddress,
    addresses_of,
    changed,
    refuse,
    writer_of,
)

CLUSTER = "c"


def test_every_listener_of_brokers_and_controllers_is_an_address():
    broker = BrokerImage(
        3, 5, b"i", Map({"A": Endpoint("one", 1), "B": Endpoint("::1", 2)}), fenced=True
    )
    controller = ControllerImage(4, b"i", Map({"C": Endpoint("two", 3)}))
    found = addresses_of(MetadataImage(brokers=Map({3: broker}), controllers=Map({4: controller})))
    assert found == [NodeAddress(3, "one", 1), NodeAddress(3, "::1", 2), NodeAddress(4, "two", 3)]
    assert [each.text for each in found] == ["one:1", "[::1]:2", "two:3"]


@pytest.mark.parametrize(
    ("key", "writer"),
    [
        (manifest_key(CLUSTER, 7, 3, 0), 7),
        (note_key(CLUSTER, 8, object_key(CLUSTER, "m", 1)), 8),
        (manifest_key(CLUSTER, RESTORED, 3, 0), None),
        (object_key(CLUSTER, "m", 1), None),
        (f"{CLUSTER}/last-commits/x/1", None),
    ],
)
def test_the_names_of_manifests_and_notes_tell_their_writer(key, writer):
    assert writer_of(key, CLUSTER) == writer


def test_what_came_and_what_went_is_a_change_and_nothing_else():
    assert changed({"a": 1, "b": 2}, {"a": 1, "b": 2}) == []
    assert changed({"a": 1, "b": 2}, {"b": 2, "d": 3, "c": 4}) == [
        Changed("d", 3), Changed("c", 4), Changed("a", None),
    ]  # fmt: skip


def test_a_broker_that_has_committed_stores_a_manifest_while_it_is_watched_for():
    assert WATCH_MS > INTERVAL_MS


def test_a_refusal_names_what_was_seen_why_and_the_remedy_and_is_bounded():
    refuse([], TWO_COORDINATORS)
    with pytest.raises(StorageFault) as raised:
        refuse([f"sign {each}" for each in range(5)], TWO_COORDINATORS)
    said = str(raised.value)
    assert said.startswith("sign 0; sign 1; sign 2 (and 2 more signs): ")
    assert TWO_COORDINATORS in said and "stop all nodes" in said and "--force" in said
