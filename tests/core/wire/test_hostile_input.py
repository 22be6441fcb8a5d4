"""No bytes make decode raise anything but ProtocolError, loop, or allocate more than
ALLOCATED_BYTES_PER_INPUT_BYTE times the input plus a constant."""

from __future__ import annotations

import tracemalloc

import pytest
from generated import EVERY_VERSION, structures, version_id
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from anabranch.core.errors import ProtocolError
from anabranch.core.wire.codec import decode, decode_exact, encode_bytes
from anabranch.core.wire.frame import read_request_header, read_response
from anabranch.core.wire.messages.api_versions import ApiVersionsResponse
from anabranch.core.wire.messages.describe_groups import (
    DescribedGroup,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from anabranch.core.wire.messages.fetch import (
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
)
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.messages.produce import ProduceRequest
from anabranch.core.wire.metadata_records import decode_record
from anabranch.core.wire.offsets_records import OffsetCommitValue, decode_key, decode_value
from anabranch.core.wire.primitives import MOST_REQUEST_ELEMENTS, MOST_TAGS, uvarint_bytes

ALLOCATED_BYTES_PER_INPUT_BYTE = 128
ALLOCATED_BYTES_AT_LEAST = 16_384
"""Small inputs: the exception, its text, empty lists."""


def mutated(valid: bytes, position: int, piece: bytes, cut: int) -> bytes:
    position %= len(valid) + 1
    out = valid[:position] + piece + valid[position + len(piece) :]
    return out[: len(out) - cut % (len(out) + 1)] if cut else out


def refusal(cls, data, version):
    try:
        decode_exact(cls, data, version)
    except ProtocolError as problem:
        return problem
    return None


LENGTHS = st.sampled_from(
    [b"\xff\xff\xff\xff\x0f", b"\xff" * 8, b"\x7f\xff\xff\xff", b"\x80\0\0\0", b"\x00", b"\xff\xfe"]
)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION, ids=version_id)
def test_decode_raises_only_protocol_error(cls, version):
    @settings(max_examples=12, deadline=None, suppress_health_check=list(HealthCheck))
    @given(
        structures(cls, version),
        st.integers(0, 500),
        LENGTHS | st.binary(max_size=6),
        st.integers(0, 3),
    )
    def never(message, position, piece, cut):
        problem = refusal(
            cls, mutated(encode_bytes(message, version), position, piece, cut), version
        )
        if problem is not None:
            assert (problem.message_name, problem.version) == (cls.__name__, version)

    never()


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION, ids=version_id)
def test_every_prefix_is_refused_with_its_place(cls, version):
    data = encode_bytes(cls(), version)
    for size in range(len(data)):
        with pytest.raises(ProtocolError) as caught:
            decode_exact(cls, data[:size], version)
        assert caught.value.field
        assert 0 <= caught.value.offset <= size


@settings(max_examples=100, deadline=None)
@given(st.binary(max_size=64))
def test_headers_and_records_raise_only_protocol_error(data):
    for read in (
        lambda: read_request_header(memoryview(data)),
        lambda: read_response(data, ApiVersionsResponse, 4),
        lambda: read_response(data, FetchResponse, 16),
        lambda: decode_record(data),
        lambda: decode_key(data),
        lambda: decode_value(OffsetCommitValue, data),
    ):
        try:
            read()
        except ProtocolError:
            continue


def allocated(cls, data, version):
    """The most bytes that decoding held at once."""
    decode_quietly(cls, data, version)
    tracemalloc.start()
    decode_quietly(cls, data, version)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    return peak


def decode_quietly(cls, data, version):
    try:
        return decode(cls, data, version)
    except ProtocolError:
        return None


def smallest_elements(cls, version, count):
    """`count` in place of every possible array length, then zeros and ones as far as they go."""
    head = uvarint_bytes(count + 1)
    for before in (b"", b"\0", b"\0" * 4, b"\0" * 7, b"\0" * 11, b"\0" * 29):
        yield before + head + b"\1\1\0" * count
        yield before + head + b"\1" * (3 * count)
        yield before + head + b"\0" * (17 * count)


@pytest.mark.parametrize(("cls", "version"), EVERY_VERSION, ids=version_id)
def test_allocation_is_bounded_by_the_input(cls, version):
    for data in smallest_elements(cls, version, 300):
        limit = ALLOCATED_BYTES_AT_LEAST + ALLOCATED_BYTES_PER_INPUT_BYTE * len(data)
        assert allocated(cls, data, version) <= limit


@pytest.mark.parametrize(
    ("cls", "version", "data"),
    [
        (ProduceRequest, 9, b"\x00\xff\xff\x00\x00\x75\x30\xff\xff\xff\xff\x0f\x00\x00\x00"),
        (FetchRequest, 4, b"\xff\xff\xff\xff" + b"\0" * 13 + b"\x7f\xff\xff\xff"),
        (MetadataRequest, 9, b"\xff\xff\xff\xff\x0f"),
        (MetadataRequest, 12, b"\x80\x80\x80\x80\x80\x80\x01"),
    ],
)
def test_a_huge_length_costs_nothing(cls, version, data):
    assert allocated(cls, data, version) < ALLOCATED_BYTES_AT_LEAST
    with pytest.raises(ProtocolError):
        decode(cls, data, version)


def test_a_refusal_names_message_version_field_and_offset():
    with pytest.raises(ProtocolError) as caught:
        decode(ProduceRequest, b"\x00\xff\xff\x00\x00\x75\x30\x02\x05ab", 9)
    problem = caught.value
    assert (problem.message_name, problem.version) == ("ProduceRequest", 9)
    assert (problem.field, problem.offset) == ("topic_data.name", 9)
    assert problem.detail == "length 4 but 2 bytes remain"


def test_unknown_tagged_fields_are_kept_and_written_back():
    data = encode_bytes(MetadataRequest(topics=None), 12)[:-1] + b"\x02\x05\x01x\x63\x03abc"
    message = decode_exact(MetadataRequest, data, 12)
    assert message.unknown_tagged_fields == {5: b"x", 99: b"abc"}
    assert encode_bytes(message, 12) == data


def test_tagged_fields_have_a_named_limit():
    count = MOST_TAGS + 1
    tags = b"".join(uvarint_bytes(tag) + b"\0" for tag in range(count))
    data = encode_bytes(MetadataRequest(topics=None), 12)[:-1] + uvarint_bytes(count) + tags
    with pytest.raises(ProtocolError, match="over the limit"):
        decode_exact(MetadataRequest, data, 12)


def described_groups(count):
    """A request of `count` elements of one byte each."""
    return DescribeGroupsRequest(groups=[""] * count)


def test_a_request_has_a_bounded_number_of_elements():
    """R15: what a frame of 100 MB could ask for must not keep the event loop for seconds."""
    most = encode_bytes(described_groups(MOST_REQUEST_ELEMENTS), 5)
    assert len(decode_exact(DescribeGroupsRequest, most, 5).groups) == MOST_REQUEST_ELEMENTS
    problem = refusal(
        DescribeGroupsRequest, encode_bytes(described_groups(MOST_REQUEST_ELEMENTS + 1), 5), 5
    )
    assert problem.field == "groups"
    assert f"the limit of {MOST_REQUEST_ELEMENTS} in one request" in str(problem)


def test_the_elements_of_all_arrays_of_a_request_are_counted():
    partitions = [FetchPartition(partition=number) for number in range(1000)]
    topics = [FetchTopic(topic="t", partitions=partitions)] * (MOST_REQUEST_ELEMENTS // 1000)
    problem = refusal(FetchRequest, encode_bytes(FetchRequest(topics=topics), 12), 12)
    assert problem.field == "topics.partitions"
    assert "in one request" in str(problem)


def test_unknown_tagged_fields_count_as_elements():
    tags = {1000 + number: b"" for number in range(MOST_TAGS)}
    topic = FetchTopic(topic="t", unknown_tagged_fields=tags)
    many = FetchRequest(topics=[topic] * (MOST_REQUEST_ELEMENTS // MOST_TAGS + 1))
    assert "in one request" in str(refusal(FetchRequest, encode_bytes(many, 12), 12))
    few = FetchRequest(topics=[topic])
    twice = encode_bytes(few, 12).replace(b"\xea\x07\x00", b"\xe9\x07\x00")
    assert "twice" in str(refusal(FetchRequest, twice, 12))


def test_a_hundred_thousand_topics_in_one_request_are_read():
    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(100_000)]
    request = encode_bytes(MetadataRequest(topics=names), 12)
    assert len(decode_exact(MetadataRequest, request, 12).topics) == 100_000


def test_responses_are_not_bounded_as_requests_are():
    """A client of a big cluster reads its metadata; it asked for it."""
    answer = DescribeGroupsResponse(groups=[DescribedGroup()] * (MOST_REQUEST_ELEMENTS + 1))
    data = encode_bytes(answer, 5)
    assert len(decode_exact(DescribeGroupsResponse, data, 5).groups) == MOST_REQUEST_ELEMENTS + 1
