"""Other protocols on the ports of a node (R15)."""

from __future__ import annotations

import socket
import ssl
import urllib.request

import pytest
from bad_kit import SECONDS, Raw, framed

from anabranch.core.wire.messages.metadata import MetadataRequest
from anabranch.server.listener import BAD_LINES_A_SECOND


@pytest.mark.parametrize(
    "first",
    [
        b"GET / HTTP/1.1\r\nHost: node\r\n\r\n",
        b"POST /topics HTTP/1.1\r\n\r\n",
        b"PRI * HTTP/2.0\r\n\r\n",
    ],
)
def test_http_on_the_kafka_port(node, client, first):
    assert client.send(first).ended()
    node.says("HTTP", "for the Kafka protocol", "http.listener")


def test_tls_on_the_kafka_port(node, client):
    context = ssl.create_default_context()
    with pytest.raises((ssl.SSLError, ConnectionResetError)):
        context.wrap_socket(client.socket, server_hostname="localhost")
    node.says("TLS handshake", "security.protocol=PLAINTEXT")


def test_sslv2_on_the_kafka_port(node, client):
    assert client.send(b"\x80\x2e\x01\x03\x01" + bytes(43)).ended()
    node.says("TLS handshake")


def test_ssh_on_the_kafka_port(node, client):
    assert client.send(b"SSH-2.0-client\r\n").ended()
    node.says("SSH")


@pytest.mark.parametrize(
    "first",
    [b"PROXY TCP4 10.0.0.1 10.0.0.2 1 2\r\n", b"\r\n\r\n\0\r\nQUIT\n\x21\x11\0\x0c" + bytes(12)],
)
def test_a_proxy_header_on_the_kafka_port(node, client, first):
    assert client.send(first).ended()
    node.says("PROXY")


def http_port(node):
    return socket.create_connection(("127.0.0.1", node.http_port), SECONDS)


def closed(connection):
    try:
        while connection.recv(1000):
            pass
    except ConnectionResetError:
        pass
    return True


def test_kafka_on_the_http_port(node):
    with http_port(node) as connection:
        connection.sendall(framed(MetadataRequest(topics=None), 12))
        assert closed(connection)
    node.says("a Kafka client connected to http.listener")


def test_tls_on_the_http_port(node):
    with http_port(node) as connection, pytest.raises((ssl.SSLError, ConnectionResetError)):
        ssl.create_default_context().wrap_socket(connection, server_hostname="localhost")
    node.says("TLS handshake arrived on http.listener")


def test_rubbish_on_the_http_port(node):
    with http_port(node) as connection:
        connection.sendall(b"\xfe" * 100 + b"\r\n\r\n")
        assert connection.recv(12) == b"HTTP/1.1 400"
        assert closed(connection)
    node.says("an invalid HTTP request was refused")
    with urllib.request.urlopen(f"http://127.0.0.1:{node.http_port}/readyz") as answer:
        assert answer.status == 200


def test_rubbish_in_a_loop_does_not_fill_the_log(node):
    count = 20 * BAD_LINES_A_SECOND
    for _ in range(count):
        with Raw(node) as client:
            assert client.send(b"GET / HTTP/1.1\r\n").ended()
    node.speaks_again()
    assert len(node.lines) < count
