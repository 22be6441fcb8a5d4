"""Envelope: what may be inside, in whose name it is decided, what comes back."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.controller.world import World

from anabranch.core.access.principal import ANONYMOUS, Principal
from anabranch.core.access.principal_bytes import write_principal
from anabranch.core.errors import ErrorCode
from anabranch.core.wire.frame import frame_request, read_response
from anabranch.core.wire.messages.allocate_producer_ids import AllocateProducerIdsRequest
from anabranch.core.wire.messages.create_topics import (
    CreatableTopic,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from anabranch.core.wire.messages.envelope import EnvelopeRequest, EnvelopeResponse
from anabranch.core.wire.messages.metadata import MetadataRequest

LOOPBACK = bytes([127, 0, 0, 1])
CORRELATION_ID = 4711
TOPICS = CreateTopicsRequest(topics=[CreatableTopic(name="t", num_partitions=1)])


def frame(body: Any, version: int) -> bytes:
    """A request's header and body, as it came to a broker."""
    framed = b"".join(map(bytes, frame_request(CORRELATION_ID, "client", body, version)))
    return framed[4:]


def envelope(data: bytes, **changes: Any) -> EnvelopeRequest:
    made = EnvelopeRequest(
        request_data=data,
        request_principal=write_principal(ANONYMOUS),
        client_host_address=LOOPBACK,
    )
    for name, value in changes.items():
        setattr(made, name, value)
    return made


@pytest.fixture
def world() -> World:
    made = World()
    made.start(1)
    return made


def test_the_answer_inside_is_the_client_s_own(world: World) -> None:
    TOPICS.topics[0].replication_factor = 1
    answer: EnvelopeResponse = world.ask(envelope(frame(TOPICS, 7)))
    assert answer.error_code == 0
    assert answer.response_data is not None
    correlation_id, inner = read_response(bytes(answer.response_data), CreateTopicsResponse, 7)
    assert correlation_id == CORRELATION_ID
    assert (inner.topics[0].name, inner.topics[0].error_code) == ("t", 0)
    assert world.image.topic("t") is not None


def test_it_is_decided_in_the_name_of_the_principal_inside(world: World) -> None:
    seen = []

    class Noting:
        allows_all = False

        def authorize(self, request: Any, operation: Any, _resource: Any, _name: str) -> bool:
            seen.append((str(request.principal), request.client_host, operation.name))
            return True

    world.controller.authorizer = Noting()  # type: ignore[assignment]
    alice = write_principal(Principal("User", "alice"))
    host = bytes([10, 1, 2, 3])
    data = frame(TOPICS, 7)
    world.ask(envelope(data, request_principal=alice, client_host_address=host))
    assert seen[0] == ("User:ANONYMOUS", "127.0.0.1", "CLUSTER_ACTION")
    assert ("User:alice", "10.1.2.3", "CREATE") in seen


def test_who_may_not_act_for_the_cluster_is_refused(world: World) -> None:
    class Nothing:
        allows_all = False

        def authorize(self, *_asked: Any) -> bool:
            return False

    world.controller.authorizer = Nothing()  # type: ignore[assignment]
    answer = world.ask(envelope(frame(TOPICS, 7)))
    assert answer.error_code == ErrorCode.CLUSTER_AUTHORIZATION_FAILED


@pytest.mark.parametrize(
    ("data", "changes", "code"),
    [
        (frame(MetadataRequest(topics=None), 12), {}, ErrorCode.INVALID_REQUEST),
        (frame(AllocateProducerIdsRequest(), 0), {}, ErrorCode.INVALID_REQUEST),
        (frame(envelope(frame(TOPICS, 7)), 0), {}, ErrorCode.INVALID_REQUEST),
        (b"\x7f\xff" + frame(TOPICS, 7)[2:], {}, ErrorCode.UNSUPPORTED_VERSION),
        (frame(TOPICS, 7)[:2] + b"\x00\x63" + frame(TOPICS, 7)[4:], {}, ErrorCode.UNSUPPORTED_VERSION),
        (frame(TOPICS, 7)[:-1], {}, ErrorCode.UNSUPPORTED_VERSION),
        (b"", {}, ErrorCode.UNSUPPORTED_VERSION),
        (frame(TOPICS, 7), {"client_host_address": b"\1\2\3"}, ErrorCode.INVALID_REQUEST),
        (frame(TOPICS, 7), {"request_principal": None}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (frame(TOPICS, 7), {"request_principal": b"\0\1\5User"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
        (frame(TOPICS, 7), {"request_principal": b"\0\0\5Us"}, ErrorCode.PRINCIPAL_DESERIALIZATION_FAILURE),
    ],
    ids=["not forwarded", "between nodes", "an envelope", "an unknown key", "an unknown version",
         "cut", "empty", "no address", "nobody", "a later principal", "a cut principal"],
)  # fmt: skip
def test_what_is_refused(
    world: World, data: bytes, changes: dict[str, Any], code: ErrorCode
) -> None:
    before = world.image
    answer = world.ask(envelope(data, **changes))
    assert (answer.error_code, answer.response_data) == (code, None)
    assert world.image is before


@settings(max_examples=150, deadline=None)
@given(st.binary(max_size=60), st.booleans())
def test_no_bytes_inside_raise(data: bytes, behind_a_header: bool) -> None:
    world = World()
    inner = frame(TOPICS, 7)[:20] + data if behind_a_header else data
    assert world.ask(envelope(inner)).error_code in (
        ErrorCode.NONE,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.UNSUPPORTED_VERSION,
    )


def test_a_controller_in_waiting_says_so_on_the_envelope(world: World) -> None:
    world.controller.resign()
    answer = world.ask(envelope(frame(TOPICS, 7)))
    assert (answer.error_code, answer.response_data) == (ErrorCode.NOT_CONTROLLER, None)
