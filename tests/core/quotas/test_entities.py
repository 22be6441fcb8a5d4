"""What can have a quota, and which values, in Kafka's words."""

from __future__ import annotations

import pytest

from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.quotas.entities import CLIENT_KEYS, IP_KEYS, check_value, keys_of, text, written


@pytest.mark.parametrize(
    ("entity", "sentence"),
    [
        ({}, "Invalid empty client quota entity"),
        ({"group": "g"}, "Unhandled client quota entity type: group"),
        ({"user": ""}, "Empty user not supported"),
        (
            {"ip": "10.0.0.1", "user": "a"},
            "Invalid quota entity combination, IP entity shouldnot be combined with User or "
            "ClientId",
        ),
        ({"ip": "10.0.0.256"}, "10.0.0.256 is not a valid IP or resolvable host."),
    ],
)
def test_an_entity_that_cannot_be_limited_is_refused(entity, sentence):
    with pytest.raises(ClientFault) as refused:
        keys_of(entity)
    assert refused.value.code is ErrorCode.INVALID_REQUEST
    assert refused.value.message == sentence


@pytest.mark.parametrize(
    ("entity", "keys"),
    [
        ({"user": "a"}, CLIENT_KEYS),
        ({"user": None, "client-id": "<c>"}, CLIENT_KEYS),
        ({"ip": None}, IP_KEYS),
        ({"ip": "::1"}, IP_KEYS),
    ],
)
def test_an_entity_has_the_keys_of_its_type(entity, keys):
    assert keys_of(entity) is keys


@pytest.mark.parametrize(
    ("keys", "key", "value", "sentence"),
    [
        (CLIENT_KEYS, "connection_creation_rate", 1, "Invalid configuration key {key}"),
        (IP_KEYS, "producer_byte_rate", 1, "Invalid configuration key {key}"),
        (CLIENT_KEYS, "producer_byte_rate", 0, "Quota {key} must be greater than 0"),
        (CLIENT_KEYS, "request_percentage", -1, "Quota {key} must be greater than 0"),
        (CLIENT_KEYS, "request_percentage", float("nan"), "Quota {key} must be greater than 0"),
        (CLIENT_KEYS, "consumer_byte_rate", 1.5, "{key} cannot be a fractional value."),
        (
            CLIENT_KEYS, "consumer_byte_rate", 1e19,
            "Proposed value for {key} is too large for a LONG.",
        ),
        (
            IP_KEYS, "connection_creation_rate", 2.0**31,
            "Proposed value for {key} is too large for an INT.",
        ),
        (CLIENT_KEYS, "consumer_byte_rate", 2.0**63, ""),
        (CLIENT_KEYS, "consumer_byte_rate", 1 + 1e-7, ""),
        (CLIENT_KEYS, "request_percentage", 0.001, ""),
        (CLIENT_KEYS, "controller_mutation_rate", float("inf"), ""),
        (IP_KEYS, "connection_creation_rate", 2.0**31 - 1, ""),
    ],
)  # fmt: skip
def test_a_value_is_taken_or_refused(keys, key, value, sentence):
    if not sentence:
        check_value(keys, key, value)
        return
    with pytest.raises(ClientFault) as refused:
        check_value(keys, key, value)
    assert refused.value.message == sentence.format(key=key)


def test_an_entity_is_printed_as_by_kafka():
    assert text({"user": None, "client-id": "c"}) == (
        "ClientQuotaEntity(entries={client-id=c, user=null})"
    )


def test_addresses_have_one_notation():
    assert written("0:0:0:0:0:0:0:1") == "::1"
    assert written("localhost") == ""
