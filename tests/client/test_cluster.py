"""Addresses are read or refused by name; what may help is tried again, nothing else is."""

from __future__ import annotations

import socket

import pytest

from anabranch.client.cluster import Cluster, check, may_help, parse_addresses
from anabranch.client.connection import ConnectionLost
from anabranch.core.errors import ApiError, ClientFault, ErrorCode

RETRIABLE = ApiError(ErrorCode.NOT_LEADER_OR_FOLLOWER, "Ask the other one.")
FINAL = ApiError(ErrorCode.TOPIC_ALREADY_EXISTS, "Topic 't' already exists.")


@pytest.fixture
def fast_cluster(monkeypatch):
    monkeypatch.setattr("anabranch.client.cluster.FIRST_PAUSE_SECONDS", 0.001)
    monkeypatch.setattr("anabranch.client.cluster.LONGEST_PAUSE_SECONDS", 0.002)
    return Cluster("127.0.0.1:1", deadline_seconds=5.0)


class Attempts:
    """Fails with each fault in turn, then succeeds; the last fault may repeat for ever."""

    def __init__(self, *faults, forever=False):
        self.faults = list(faults)
        self.forever = forever
        self.count = 0

    async def __call__(self):
        self.count += 1
        if self.faults:
            raise self.faults[0] if self.forever else self.faults.pop(0)
        return "done"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("127.0.0.1:9092", [("127.0.0.1", 9092)]),
        ("a:1, b:2 ,", [("a", 1), ("b", 2)]),
        ("[::1]:65535", [("::1", 65535)]),
    ],
)
def test_addresses_are_read(text, expected):
    assert parse_addresses(text) == expected


@pytest.mark.parametrize(
    "text", ["localhost", "a:b", "a:0", "a:65536", "a:-1", "a:²", ":9092", "good:1,bad"]
)
def test_an_address_that_cannot_be_read_is_named(text):
    with pytest.raises(ClientFault) as caught:
        parse_addresses(text)
    assert repr(text.split(",")[-1]) in str(caught.value)


@pytest.mark.parametrize("text", ["", " , "])
def test_no_address_is_refused(text):
    with pytest.raises(ClientFault, match="No bootstrap server"):
        parse_addresses(text)


def test_code_zero_is_silence_and_others_carry_the_nodes_sentence():
    check(0)
    with pytest.raises(ApiError, match="already exists") as caught:
        check(int(ErrorCode.TOPIC_ALREADY_EXISTS), "Topic 't' already exists.")
    assert caught.value.code is ErrorCode.TOPIC_ALREADY_EXISTS


def test_a_code_of_a_later_kafka_is_an_unknown_server_error():
    assert ErrorCode(30_000) is ErrorCode.UNKNOWN_SERVER_ERROR


def test_lost_connections_and_retriable_codes_may_help_and_nothing_else():
    assert may_help(ConnectionLost("gone"))
    assert may_help(RETRIABLE)
    assert not may_help(FINAL)
    assert not may_help(ValueError("a bug"))


async def test_retrying_goes_on_until_it_succeeds(fast_cluster):
    attempt = Attempts(RETRIABLE, ConnectionLost("gone"), RETRIABLE)
    assert await fast_cluster.retrying(attempt) == "done"
    assert attempt.count == 4


@pytest.mark.parametrize("fault", [FINAL, ValueError("a bug")])
async def test_a_fault_that_stays_is_raised_at_once(fast_cluster, fault):
    attempt = Attempts(fault)
    with pytest.raises(type(fault)) as caught:
        await fast_cluster.retrying(attempt)
    assert caught.value is fault
    assert attempt.count == 1


async def test_retrying_ends_with_the_last_fault_at_the_deadline(fast_cluster):
    fast_cluster.deadline_seconds = 0.03
    attempt = Attempts(RETRIABLE, forever=True)
    with pytest.raises(ApiError, match="Ask the other one"):
        await fast_cluster.retrying(attempt)
    assert attempt.count > 1


async def test_an_unknown_broker_is_refused_with_those_that_are_known(fast_cluster):
    with pytest.raises(ApiError, match=r"Broker 7 does not exist; known: none\."):
        await fast_cluster.connection_to(7)


async def test_a_cluster_that_is_not_there_is_named_by_its_first_address():
    with socket.socket() as first, socket.socket() as second:
        first.bind(("127.0.0.1", 0))
        second.bind(("127.0.0.1", 0))
        ports = [each.getsockname()[1] for each in (first, second)]
        servers = ",".join(f"127.0.0.1:{port}" for port in ports)
        with pytest.raises(ConnectionLost, match=str(ports[0])):
            async with Cluster(servers, deadline_seconds=1.0):
                pass
