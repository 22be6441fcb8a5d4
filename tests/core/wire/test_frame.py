"""Headers of requests and responses, and the laziness of what stands behind them."""

from __future__ import annotations

import ast
import inspect

import pytest

from anabranch.core.errors import ProtocolError
from anabranch.core.wire import messages
from anabranch.core.wire.frame import (
    RequestHeader,
    frame_request,
    frame_response,
    read_request_header,
    read_response,
)
from anabranch.core.wire.generated_source import main
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.api_versions import ApiVersionsResponse
from anabranch.core.wire.messages.fetch import (
    FetchableTopicResponse,
    FetchResponse,
    PartitionData,
)
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataResponse


@pytest.mark.parametrize("version", [1, 12])
@pytest.mark.parametrize("client_id", [None, "", "client"])
def test_a_request_says_who_asks_for_what(version, client_id):
    frame = b"".join(frame_request(7, client_id, MetadataRequest(), version))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    header = read_request_header(memoryview(frame)[4:])
    assert header[:4] == (3, version, 7, client_id)
    assert header.body_offset == 10 + len(client_id or "") + (version >= 9)


def test_the_header_of_an_unknown_api_is_read_as_far_as_it_goes():
    frame = memoryview(b"\x7f\x00\x00\x05\x00\x00\x00\x09\xff\xff")
    assert read_request_header(frame) == RequestHeader(0x7F00, 5, 9, None, 10)


def test_a_header_that_ends_early_is_refused():
    for size in range(10):
        with pytest.raises(ProtocolError):
            read_request_header(memoryview(b"\x00\x03\x00\x01\x00\x00\x00\x09\x00\x00"[:size]))


@pytest.mark.parametrize("version", [1, 12])
def test_a_response_comes_back(version):
    frame = b"".join(frame_response(9, MetadataResponse(controller_id=4), version))
    assert int.from_bytes(frame[:4], "big") == len(frame) - 4
    correlation_id, message = read_response(frame[4:], MetadataResponse, version)
    assert (correlation_id, message.controller_id) == (9, 4)


def test_api_versions_answers_with_the_oldest_header():
    frame = b"".join(frame_response(9, ApiVersionsResponse(error_code=35), 4))
    assert frame[4:10] == b"\0\0\0\x09\0\x23"


@pytest.mark.parametrize("version", [4, 12])
def test_records_are_passed_on_without_a_copy(version):
    pieces = [bytearray(b"abc"), memoryview(b"defg")]
    partition = PartitionData(records=pieces)
    message = FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])])
    buffers = frame_response(1, message, version)
    assert all(any(piece is buffer for buffer in buffers) for piece in pieces)
    _, again = read_response(b"".join(buffers)[4:], FetchResponse, version)
    assert again.responses[0].partitions[0].records == b"abcdefg"


def test_the_table_and_the_classes_say_the_same():
    for spec in API_KEYS.values():
        for cls in (spec.request, spec.response):
            assert (cls.api_key, cls.versions) == (spec.api_key, spec.versions)
            flexible = [version for version in spec.versions if version in cls.flexible_versions]
            assert flexible == [v for v in spec.versions if v >= spec.flexible_from]


def test_importing_the_table_imports_no_family():
    tree = ast.parse(inspect.getsource(messages))
    modules = {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom)}
    ours = {name for name in modules if name and name.startswith("anabranch")}
    assert ours == {"anabranch.core.wire.schema"}


def test_the_generated_source_can_be_read(capsys):
    assert main(["ProduceRequest", "9"]) == 0
    shown = capsys.readouterr().out
    assert "def decode(b, p):" in shown
    assert "def encode(m, out):" in shown


def test_the_source_of_an_unknown_message_is_refused(capsys):
    assert main(["NoRequest", "9"]) == 1
    assert "no message is called NoRequest" in capsys.readouterr().err
