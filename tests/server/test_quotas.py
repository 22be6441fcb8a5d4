"""Quotas on a running node: set with the command line, and they hold at once."""

from __future__ import annotations

import json
import os
import re
import select
import socket
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from urllib.request import urlopen

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from tests.server.node_kit import ThreadNode
from tests.server.three_kit import followed

from anabranch.cli.main import main


@pytest.fixture
def node(tmp_path):
    running = ThreadNode(tmp_path).start()
    yield running
    running.stop()


def quotas(node, words, code=0):
    """`anabranch quotas WORDS`: its JSON, once the broker knows what was decided."""
    done = CliRunner().invoke(
        main, ["quotas", *words.split(), "--bootstrap-server", node.bootstrap, "--json"]
    )
    assert done.exit_code == code, done.output
    followed([node.node])
    return json.loads(done.stdout) if code == 0 else done.output


def test_quotas_are_set_listed_and_removed(node):
    assert quotas(node, "list") == []
    quotas(node, "set --user alice --client-id c producer_byte_rate=1024 request_percentage=0.5")
    quotas(node, "set --user-default consumer_byte_rate=9")
    quotas(node, "set --ip 127.0.0.9 connection_creation_rate=3")
    values = {"producer_byte_rate": 1024.0, "request_percentage": 0.5}
    both = {"entity": {"client-id": "c", "user": "alice"}, "values": values}
    assert quotas(node, "list --user alice") == [both]
    assert len(quotas(node, "list")) == 3
    (default,) = quotas(node, "list --user-default")
    assert default == {"entity": {"user": None}, "values": {"consumer_byte_rate": 9.0}}
    removed = quotas(
        node, "remove --user alice --client-id c request_percentage consumer_byte_rate"
    )
    assert removed["removed"] == ["request_percentage", "consumer_byte_rate"]
    del values["request_percentage"]
    assert quotas(node, "list --user alice") == [both]


def test_what_cannot_be_set_is_said(node):
    assert "Name whom" in quotas(node, "set producer_byte_rate=5", code=2)
    assert "is no number" in quotas(node, "set --user a producer_byte_rate=fast", code=2)
    assert "not both" in quotas(node, "list --user a --user-default", code=2)
    refused = quotas(node, "set --user a producer_byte_rate=0", code=1)
    assert "Quota producer_byte_rate must be greater than 0" in refused


# Throttled clients.


def produce(node, client_id, sizes, acks="all", kept=None):
    """Send records of these sizes, a request each; how many seconds they took. The client lives as
    long as `kept`."""
    producer = Producer({
        "bootstrap.servers": node.bootstrap, "client.id": client_id, "acks": acks,
        "linger.ms": 0, "batch.num.messages": 1, "max.in.flight": 1, "compression.type": "none",
    })  # fmt: skip
    if kept is not None:
        kept.append(producer)
    said = []
    begun = time.monotonic()
    for size in sizes:
        producer.produce("t", os.urandom(size), on_delivery=lambda error, _: said.append(error))
    assert producer.flush(60) == 0
    assert said == [None] * len(sizes)
    return time.monotonic() - begun


def consume(node, client_id, count, **settings):
    """Read that many records from the start; how many seconds they took."""
    consumer = Consumer({
        "bootstrap.servers": node.bootstrap, "client.id": client_id, "group.id": client_id,
        "auto.offset.reset": "earliest", "fetch.wait.max.ms": 100, **settings,
    })  # fmt: skip
    begun = time.monotonic()
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while len(found) < count and time.monotonic() < begun + 60:
        found += [each for each in consumer.consume(100, 0.1) if not each.error()]
    consumer.close()
    assert len(found) == count
    return time.monotonic() - begun


def make_topic(node):
    admin = AdminClient({"bootstrap.servers": node.bootstrap})
    (made,) = admin.create_topics([NewTopic("t", 1, 1)]).values()
    made.result(20)


WINDOW = {
    "quota_window_num": "3", "controller_quota_window_num": "3", "http_listener": "127.0.0.1:0",
}  # fmt: skip


@pytest.fixture
def quick(tmp_path):
    """A node whose quotas look back at two seconds."""
    running = ThreadNode(tmp_path, **WINDOW).start()
    yield running
    running.stop()


def throttle_of(node, name):
    """The series of a metric, by client id."""
    text = urlopen(f"http://{node.node.http_address}/metrics").read().decode()  # noqa: S310
    found = re.findall(rf'^{name}{{client_id="([^"]*)",user="([^"]*)"}} (\S+)', text, re.M)
    return {client_id or user: float(value) for client_id, user, value in found}


@pytest.mark.parametrize("acks", ["all", "1"])
def test_a_producer_gets_its_rate_and_others_all_of_theirs(quick, acks):
    make_topic(quick)
    quotas(quick, "set --client-id greedy producer_byte_rate=100000")
    sizes = [20_000] * 30  # 600 KB: two seconds' worth at once, and four seconds for the rest
    fast = []
    with ThreadPoolExecutor(1) as pool:
        throttled = pool.submit(produce, quick, "greedy", sizes, acks)
        while not throttled.done():
            fast.append(produce(quick, "modest", [20_000] * 5, acks))
    assert 3.2 <= throttled.result() <= 7
    assert min(fast) < 1 and len(fast) > 2
    assert set(throttle_of(quick, "kafka_server_produce_throttle_time")) == {"greedy"}
    assert throttle_of(quick, "kafka_server_produce_throttle_time")["greedy"] > 0


def test_what_wants_no_answer_is_slowed_down_too(quick):
    make_topic(quick)
    quotas(quick, "set --client-id greedy producer_byte_rate=100000")
    begun = time.monotonic()
    kept = []
    produce(quick, "greedy", [20_000] * 30, acks="0", kept=kept)
    consume(quick, "reader", 30)
    assert 3.2 <= time.monotonic() - begun <= 9


@pytest.mark.parametrize("session", ["whole", "split"])
def test_a_consumer_gets_its_rate_and_every_record(quick, session):
    make_topic(quick)
    produce(quick, "p", [20_000] * 30)
    quotas(quick, "set --user ANONYMOUS --client-id slow consumer_byte_rate=100000")
    most = 10_000_000 if session == "whole" else 30_000
    took = consume(quick, "slow", 30, **{"fetch.message.max.bytes": most})
    assert 3 <= took <= 9
    assert consume(quick, "quick", 30) < 3
    quotas(quick, "remove --user ANONYMOUS --client-id slow consumer_byte_rate")
    assert consume(quick, "slow", 30) < 3


def test_a_batch_larger_than_the_window_is_brought_once(quick):
    """Kafka would never send it."""
    make_topic(quick)
    produce(quick, "p", [500_000, 10])
    quotas(quick, "set --client-id slow consumer_byte_rate=100000")
    assert consume(quick, "slow", 2) < 20


def test_topics_are_created_at_the_rate_of_the_user(quick):
    quotas(quick, "set --user ANONYMOUS controller_mutation_rate=1")
    admin = AdminClient({"bootstrap.servers": quick.bootstrap})
    codes = []
    for index in range(3):
        (made,) = admin.create_topics([NewTopic(f"many{index}", 8, 1)], request_timeout=1).values()
        try:
            made.result(20)
            codes.append("")
        except KafkaException as fault:
            codes.append(fault.args[0].name())
    assert codes[0] == "" and set(codes[1:]) <= {"_TIMED_OUT", "THROTTLING_QUOTA_EXCEEDED"}
    assert throttle_of(quick, "kafka_server_controllermutation_tokens")["ANONYMOUS"] < 3


def test_an_address_that_connects_too_often_is_held_and_others_are_not(quick):
    """Four at once are two a second over the window."""
    quotas(quick, "set --ip 127.0.0.2 connection_creation_rate=2")
    host, _, port = quick.bootstrap.rpartition(":")

    def connect(source):
        return socket.create_connection((host, int(port)), 20, source_address=(source, 0))

    with ExitStack() as opened:
        limited = [opened.enter_context(connect("127.0.0.2")) for _ in range(12)]
        free = [opened.enter_context(connect("127.0.0.3")) for _ in range(12)]
        closed, begun = set(), time.monotonic()
        while len(closed) < 8 and time.monotonic() < begun + 20:
            ready, _, _ = select.select([each for each in limited if each not in closed], [], [], 1)
            closed |= {each for each in ready if each.recv(1) == b""}
        assert len(closed) == 8 and not closed & set(limited[:4])
        assert select.select([*limited[:4], *free], [], [], 0)[0] == []
        assert sum(len(each.connections) for each in quick.node.acceptors) >= 16
