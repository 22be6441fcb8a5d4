"""Limits of connections count all listeners of a broker, and never shut out other brokers."""

from __future__ import annotations

import contextlib
import socket
import struct

import pytest
from tests.server.node_kit import ThreadNode

HELLO = struct.pack(">ihhih", 10, 18, 0, 1, -1)
"""ApiVersions in version 0."""


@pytest.fixture
def node_of(tmp_path):
    with contextlib.ExitStack() as ending:

        def start(**limits):
            node = ThreadNode(
                tmp_path,
                listeners="CLIENTS://127.0.0.1:0,BROKERS://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
                listener_security_protocol_map=(
                    "CLIENTS:PLAINTEXT,BROKERS:PLAINTEXT,CONTROLLER:PLAINTEXT"
                ),
                inter_broker_listener_name="BROKERS",
                **limits,
            )
            ending.callback(node.close)
            node.start()
            return lambda listener: ending.enter_context(
                socket.create_connection(("127.0.0.1", node.node._ports[listener]), timeout=10)
            )

        yield start


def is_let_in(connection):
    """Whether it is answered."""
    with contextlib.suppress(ConnectionError):
        connection.sendall(HELLO)
        size = connection.recv(4, socket.MSG_WAITALL)
        return len(size) == 4 and bool(
            connection.recv(*struct.unpack(">i", size), socket.MSG_WAITALL)
        )
    return False


def test_the_limit_of_an_address_counts_all_listeners(node_of):
    connect = node_of(max_connections_per_ip="4")
    assert [is_let_in(connect("BROKERS")) for _ in range(2)] == [True] * 2
    assert [is_let_in(connect("CLIENTS")) for _ in range(3)] == [True, True, False]
    assert not is_let_in(connect("BROKERS"))


def test_a_full_broker_lets_in_other_brokers_in_place_of_clients(node_of):
    """As Kafka's does: the client that was silent longest goes."""
    connect = node_of(max_connections="4")
    clients = [connect("CLIENTS") for _ in range(4)]
    assert [is_let_in(each) for each in clients] == [True] * 4
    assert not is_let_in(connect("CLIENTS"))
    assert [is_let_in(connect("BROKERS")) for _ in range(3)] == [True] * 3
    assert not is_let_in(connect("CLIENTS"))
    assert sum(map(is_let_in, clients)) == 1
    assert [is_let_in(connect("BROKERS")) for _ in range(2)] == [True] * 2
