"""Who speaks another protocol is told by what it sends first."""

from __future__ import annotations

import ssl

import pytest

from anabranch.server.other_protocols import (
    GREETINGS,
    SMALLEST_GREETING,
    kafka_on_http,
    other_protocol,
)


def client_hello():
    """What the TLS of the standard library says first."""
    received, sent = ssl.MemoryBIO(), ssl.MemoryBIO()
    context = ssl.create_default_context()
    with pytest.raises(ssl.SSLWantReadError):
        context.wrap_bio(received, sent, server_hostname="node").do_handshake()
    return sent.read()


@pytest.mark.parametrize(
    ("first", "word"),
    [
        (b"GET / HTTP/1.1\r\n", "HTTP"),
        (b"POST /topics HTTP/1.1\r\n", "HTTP"),
        (b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n", "HTTP/2"),
        (b"\x80\x2e\x01\x03\x01", "TLS"),
        (b"SSH-2.0-OpenSSH_9.6\r\n", "SSH"),
        (b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", "PROXY"),
        (b"\r\n\r\n\0\r\nQUIT\n\x21", "PROXY"),
    ],
)
def test_other_protocols_are_named(first, word):
    assert word in other_protocol(first[:8])
    assert word in other_protocol(first[:4])


def test_a_tls_client_is_told_what_to_set():
    assert "security.protocol=PLAINTEXT" in other_protocol(client_hello()[:8])
    assert "http://" in kafka_on_http(client_hello())


@pytest.mark.parametrize("size", [-1, 0, 100, 1 << 20, 100 << 20, (1 << 31) - 1])
def test_a_size_is_no_greeting(size):
    assert other_protocol((size & 0xFFFFFFFF).to_bytes(4, "big") + b"\0\x12\0\x03") == ""


def test_greetings_are_over_the_size_of_any_usual_request():
    assert min(int.from_bytes(each, "big") for each in GREETINGS) == SMALLEST_GREETING
    assert SMALLEST_GREETING > 104_857_600


def test_a_kafka_client_is_told_from_http():
    assert "Kafka" in kafka_on_http(b"\0\0\0\x14\0\x12\0\x03")
    assert kafka_on_http(b"GET /metrics HTTP/1.1\r\n") == ""
