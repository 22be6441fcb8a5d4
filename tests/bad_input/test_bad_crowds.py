"""Clients that do not read, do not write, come in crowds, or wait for too much (R15)."""

from __future__ import annotations

import contextlib
import socket
import struct
import time

import pytest
from bad_kit import HELLO, SECONDS, Raw, batch, code_of, eventually, framed
from node_kit import ThreadNode

from anabranch.core.settings.validation import Operation, Resource
from anabranch.core.wire.messages.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResource,
)
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.core.wire.messages.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from anabranch.core.wire.messages.metadata import MetadataRequest

MANY = 1000
"""Connections that are open at once; the ends of both sides count against the test's limits."""

BACKLOG = 25
"""Connections after which one waits for an answer: all before it were accepted then, and the queue
of the listening socket (`socket.listen.backlog.size`, 50) never runs over."""


@pytest.fixture
def crowd(node):
    """Opens so many connections, and closes them."""
    with contextlib.ExitStack() as stack:

        def come(count):
            clients = []
            for number in range(1, count + 1):
                clients.append(stack.enter_context(Raw(node)))
                if not number % BACKLOG:
                    clients[-1].ask(HELLO, 3)
            return clients

        yield come


def test_a_thousand_connections_that_send_nothing(node, crowd):
    before = node.resident_bytes
    crowd(MANY)
    eventually(lambda: node.connections >= MANY, "a thousand connections")
    assert node.resident_bytes - before < 32 << 20
    with Raw(node) as client:
        assert client.ask(HELLO, 3).error_code == 0


@pytest.mark.parametrize("size", [100 << 20, 3 << 20, 70_000])
def test_a_thousand_frames_that_are_only_announced(node, crowd, size):
    """Memory comes with the bytes, not with the promise of them."""
    before = node.resident_bytes
    for client in crowd(MANY):
        client.send(struct.pack(">i", size) + b"\0\0\0\x09")
    eventually(lambda: node.connections >= MANY, "a thousand connections")
    with Raw(node) as client:
        assert client.ask(HELLO, 3).error_code == 0
    assert node.resident_bytes - before < 64 << 20


def test_ten_thousand_connections_that_come_and_go(node):
    files = node.open_files
    for number in range(10_000):
        with Raw(node) as client:
            if not number % BACKLOG:
                client.ask(HELLO, 3)
    eventually(lambda: node.connections <= 1, "their end")
    eventually(lambda: node.open_files <= files + 2, "as many open files as before")


def test_a_client_that_never_reads(node, client):
    """Its requests are run until four megabytes of answers lie there; then it is not read."""
    request = framed(MetadataRequest(topics=None), 12)
    client.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
    before = node.resident_bytes
    client.socket.settimeout(0.5)
    taken = 0
    with contextlib.suppress(TimeoutError):
        while taken < 64 << 20:
            taken += client.socket.send(request * 100)
    assert taken < 64 << 20
    assert node.resident_bytes - before < 64 << 20


def waiting_fetch(topic):
    part = FetchPartition(
        partition=0, current_leader_epoch=-1, fetch_offset=0, partition_max_bytes=1 << 30
    )
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=60_000,
        min_bytes=1 << 30,
        max_bytes=1 << 30,
        topics=[FetchTopic(topic=topic, partitions=[part])],
    )


def test_two_thousand_fetches_that_wait_for_much(node, client):
    """They could all be answered at once: only some of one connection are looked at."""
    with Raw(node) as other:
        for _ in range(8):
            assert code_of(other, "plain", batch(value=bytes(1_000_000))) == 0
    before = node.resident_bytes
    client.send(framed(waiting_fetch("plain"), 11) * 2000)
    with Raw(node) as other:
        assert code_of(other, "plain", batch()) == 0
        assert other.ask(HELLO, 3).error_code == 0
    assert node.resident_bytes - before < 64 << 20


@pytest.fixture
def small_node(tmp_path):
    nodes = []

    def start(**settings):
        nodes.append(ThreadNode(tmp_path / "data", **settings).start())
        nodes[-1].port = int(nodes[-1].bootstrap.rpartition(":")[2])
        return nodes[-1]

    yield start
    for each in nodes:
        each.stop()


def test_silent_and_slow_connections_are_let_go(small_node):
    """One byte now and then keeps nobody; a whole request does."""
    node = small_node(connections_max_idle_ms="3000")  # `busy` is one on a busy machine too
    with Raw(node) as silent, Raw(node) as begun, Raw(node) as busy:
        begun.send(struct.pack(">i", 100 << 20) + b"abc")
        ended = set()
        until = time.monotonic() + SECONDS
        while len(ended) < 2:
            assert time.monotonic() < until
            assert busy.ask(HELLO, 3).error_code == 0
            ended |= {each for each in (silent, begun) if is_closed(each.socket)}


def is_closed(connection):
    connection.settimeout(0.05)
    try:
        return connection.recv(1) == b""
    except TimeoutError:
        return False
    except ConnectionResetError:
        return True


def test_more_connections_than_may_be(small_node):
    node = small_node(max_connections="5")
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(Raw(node)) for _ in range(5)]
        for each in clients:
            assert each.ask(HELLO, 3).error_code == 0
        for _ in range(20):
            with Raw(node) as refused:
                assert refused.ended()
        assert clients[0].ask(HELLO, 3).error_code == 0


def test_more_connections_of_an_address_than_may_be(small_node):
    node = small_node(max_connections_per_ip="2")
    with Raw(node) as first, Raw(node) as second, Raw(node) as third:
        assert first.ask(HELLO, 3).error_code == 0
        assert second.ask(HELLO, 3).error_code == 0
        assert third.ended()


def test_limits_of_connections_change_while_a_node_runs(small_node):
    """Those who are connected stay; the limit counts for whoever comes next, also a lifted one."""
    node = small_node()
    with Raw(node) as first, Raw(node) as second:
        assert second.ask(HELLO, 3).error_code == 0
        for limit in ("max.connections", "max.connections.per.ip"):
            set_for_all_brokers(first, limit, "2")
            with Raw(node) as third:
                assert third.ended(), limit
            set_for_all_brokers(first, limit, "3")
            with Raw(node) as third:
                assert third.ask(HELLO, 3).error_code == 0, limit


def set_for_all_brokers(client, name, value):
    alter = AlterableConfig(name=name, config_operation=Operation.SET, value=value)
    resource = AlterConfigsResource(
        resource_type=Resource.BROKER, resource_name="", configs=[alter]
    )
    answer = client.ask(IncrementalAlterConfigsRequest(resources=[resource]), 1)
    assert [each.error_code for each in answer.responses] == [0]
    described = DescribeConfigsResource(resource_type=Resource.BROKER, resource_name="1")
    described.configuration_keys = [name]
    asked = DescribeConfigsRequest(resources=[described])
    eventually(lambda: client.ask(asked, 4).results[0].configs[0].value == value, f"{name}={value}")
