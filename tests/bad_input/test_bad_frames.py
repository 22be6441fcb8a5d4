"""Frames that are none (R15)."""

from __future__ import annotations

import random
import socket
import struct

import pytest
from bad_kit import HELLO, Raw, framed

from anabranch.core.wire.frame import read_response
from anabranch.core.wire.messages import API_KEYS
from anabranch.core.wire.messages.api_versions import ApiVersionsResponse
from anabranch.core.wire.messages.describe_groups import DescribeGroupsRequest
from anabranch.core.wire.messages.metadata import MetadataRequest, MetadataRequestTopic
from anabranch.core.wire.primitives import MOST_REQUEST_ELEMENTS

UNSUPPORTED_VERSION = 35
HEAD = struct.Struct(">ihhih")


def head(api_key, version, client_id_bytes=-1, size=10):
    return HEAD.pack(size, api_key, version, 1, client_id_bytes)


def test_a_frame_that_ends_early(node):
    whole = framed(MetadataRequest(topics=None), 12)
    for cut in range(len(whole)):
        with Raw(node) as client:
            client.send(whole[:cut])
    assert node.lines == []


def test_a_request_cut_short_inside_its_frame(node, client):
    for each in client.ask(HELLO, 3).api_keys:
        if each.api_key == HELLO.api_key:
            continue  # is answered with an error of its own
        body = framed(API_KEYS[each.api_key].request(), each.max_version)[4:-1]
        with Raw(node) as other:
            assert other.send(struct.pack(">i", len(body)) + body).ended()
    node.says("bad Produce request: ProduceRequest v13", "the input ends after")
    node.speaks_again()


def test_a_frame_over_the_limit(node, client):
    assert client.send(struct.pack(">i", 104_857_601)).ended()
    node.says("104857601 bytes is above socket.request.max.bytes=104857600")


@pytest.mark.parametrize("size", [(1 << 31) - 1, 0, -1, -(1 << 31)])
def test_sizes_that_cannot_be(node, client, size):
    assert client.send(struct.pack(">i", size) + bytes(100)).ended()
    assert str(size) in node.says("closing a connection")


def test_random_frames(node):
    chance = random.Random(15)
    for _ in range(300):
        with Raw(node) as client:
            size = chance.choice((1, 8, 10, 30, 200, 2000))
            junk = chance.randbytes(size)
            if chance.random() < 0.7:  # a header that is right, so that the body is read
                key = chance.choice(sorted(API_KEYS))
                version = chance.choice(API_KEYS[key].request.versions)
                junk = head(key, version)[4:] + junk
            client.send(struct.pack(">i", len(junk)) + junk)
            client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
    node.speaks_again()


def test_random_bytes(node):
    chance = random.Random(16)
    for _ in range(100):
        with Raw(node) as client:
            client.send(chance.randbytes(500))
            client.socket.shutdown(socket.SHUT_WR)
            assert client.ended()
    node.speaks_again()


def test_a_frame_one_byte_at_a_time(node, client):
    for byte in framed(MetadataRequest(topics=None), 12, 7):
        client.send(bytes([byte]))
    assert struct.unpack_from(">i", client.frame())[0] == 7


@pytest.mark.parametrize(
    ("api_key", "name"),
    [(-1, ""), (999, ""), (32_767, ""), (62, " (BrokerRegistration)"), (58, " (Envelope)")],
)
def test_an_api_key_that_is_not_served(node, client, api_key, name):
    assert client.send(head(api_key, 0)).ended()
    node.says(f"API key {api_key}{name} is not served on listener PLAINTEXT")


def test_a_version_that_is_not_served(node, client):
    assert client.send(head(3, 99)).ended()
    node.says("Metadata version 99 is not served")


def test_an_unknown_version_of_api_versions_is_answered(node, client):
    client.send(head(18, 99))
    answer = read_response(client.frame(), ApiVersionsResponse, 0)[1]
    assert answer.error_code == UNSUPPORTED_VERSION
    assert client.ask(HELLO, 3).error_code == 0


@pytest.mark.parametrize("frame", [struct.pack(">i", 3) + b"abc", head(3, 1, 500), head(3, 1, -2)])
def test_a_header_that_is_none(node, client, frame):
    assert client.send(frame).ended()
    node.says("closing a connection")


def test_a_client_id_that_is_no_text(node, client):
    assert client.send(head(3, 1, 2, size=12) + b"\xff\xfe").ended()
    node.says("client_id", "utf-8")


def test_millions_of_tiny_elements(node, client):
    """A hundred megabytes of groups with empty names."""
    count = 100_000_000
    body = head(15, 5, size=0)[4:] + b"\0" + b"\xff\xc1\xd7\x2f" + b"\1" * count
    client.send(struct.pack(">i", len(body)))
    client.send(body)
    assert client.ended()
    node.says("bad DescribeGroups request", "groups", "over the limit")


def test_as_many_elements_as_are_read(node, client):
    request = DescribeGroupsRequest(groups=[str(each) for each in range(MOST_REQUEST_ELEMENTS)])
    client.socket.settimeout(60)
    assert len(client.ask(request, 5).groups) == MOST_REQUEST_ELEMENTS


def test_a_hundred_thousand_topics_are_asked_for(node, client):
    names = [MetadataRequestTopic(name=f"no-{each}") for each in range(100_000)]
    request = MetadataRequest(topics=names, allow_auto_topic_creation=False)
    client.socket.settimeout(60)
    assert {each.error_code for each in client.ask(request, 12).topics} == {3}
