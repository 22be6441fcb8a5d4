"""Kafka's requests that no node answers have their names, as kio has them."""

from __future__ import annotations

from kio.index import api_key_map

from anabranch.core.api.registry import handlers
from anabranch.core.api.unserved import UNSERVED, named


def test_each_request_of_kafka_is_answered_or_named_as_missing():
    kafka = {key: name for key, name in api_key_map.items() if key not in handlers()}
    assert set(UNSERVED) == set(kafka)
    spelled = {key: name.replace("_", "").lower() for key, name in kafka.items()}
    assert {key: name.lower() for key, name in UNSERVED.items()} == spelled


def test_a_key_is_named_where_it_has_a_name():
    assert named(52) == "API key 52 (Vote)"
    assert named(62, "BrokerRegistration") == "API key 62 (BrokerRegistration)"
    assert named(999) == "API key 999"
