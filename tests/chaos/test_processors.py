"""R17: a processor goes on where its group has committed, and does not start over when not told."""

from __future__ import annotations

import asyncio

import pytest
from aiokafka.admin import AIOKafkaAdminClient
from aiokafka.protocol.commit import OffsetFetchResponse_v3
from aiokafka.structs import TopicPartition
from chaos.clients_processors import NotToldError, starts_of

from anabranch.core.errors import ErrorCode

PLACES = [TopicPartition("orders", each) for each in range(3)]


def told(partitions, code=ErrorCode.NONE):
    """An answer of a broker in the library's own form, with (partition, offset) of the topic."""
    found = [(each, offset, "", 0) for each, offset in partitions]
    return OffsetFetchResponse_v3(0, [("orders", found)] if found else [], int(code))


@pytest.fixture
def asked(monkeypatch):
    """What asks for the starts of a group, and is given an answer."""

    async def nothing(_admin):
        return None

    async def coordinator(_admin, _group):
        return 1

    monkeypatch.setattr(AIOKafkaAdminClient, "start", nothing)
    monkeypatch.setattr(AIOKafkaAdminClient, "find_coordinator", coordinator)

    def ask(answer):
        async def send(_admin, _request, _node):
            return answer

        monkeypatch.setattr(AIOKafkaAdminClient, "_send_request", send)
        return asyncio.run(starts_of("127.0.0.1:1", "y", PLACES))

    return ask


def test_it_goes_on_where_the_group_has_committed(asked):
    assert list(asked(told([(0, -1), (1, 7), (2, 13)])).values()) == [0, 7, 13]


@pytest.mark.parametrize(
    "code",
    [
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ],
)
def test_the_error_of_a_whole_answer_is_no_start(asked, code):
    """Version 2 and later of OffsetFetch: one error, and no partition is named."""
    with pytest.raises(NotToldError):
        asked(told([], code))


def test_a_partition_that_is_not_named_is_no_start(asked):
    with pytest.raises(NotToldError):
        asked(told([(0, -1), (1, 7)]))
