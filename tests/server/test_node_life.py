"""A node keeps what it acknowledged, starts where it stopped, and says why it does not start."""

from __future__ import annotations

import asyncio
import itertools
import json
import signal
import time
import urllib.error
import urllib.request

import pytest
from confluent_kafka import Consumer, Producer, TopicPartition
from node_kit import ProcessNode, ThreadNode, free_port, settings_of
from server_kit import Client, eventually

from anabranch.core.wire.messages.create_topics import CreatableTopic, CreateTopicsRequest
from anabranch.core.wire.messages.fetch import FetchPartition, FetchRequest, FetchTopic
from anabranch.server import partitions
from anabranch.server.config import load_config
from anabranch.server.flush import Flusher
from anabranch.server.listener import Acceptor
from anabranch.server.node import DRAIN_SECONDS, Node
from anabranch.server.partitions import PartitionShell
from anabranch.server.registration import Registration

SECONDS = 20


def acknowledged(bootstrap, count, first=0, **settings):
    """Values that the node acknowledged, as numbers."""
    got = []

    def note(fault, message):
        if fault is None:
            got.append(int(message.value()))

    producer = Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 1, "log_level": 0, **settings}
    )
    for number in range(first, first + count):
        producer.produce("t", b"%d" % number, partition=0, on_delivery=note)
        producer.poll(0)
    producer.flush(SECONDS)
    return got


def values(bootstrap):
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "g",
            "enable.partition.eof": True,
            "enable.auto.commit": False,
        }
    )
    consumer.assign([TopicPartition("t", 0, 0)])
    found = []
    while True:
        message = consumer.poll(SECONDS)
        assert message is not None
        if message.error():
            break
        found.append(int(message.value()))
    consumer.close()
    return found


@pytest.fixture
def process(tmp_path):
    started = []

    def start(folder=None, **settings):
        node = ProcessNode(folder or tmp_path / "node", **settings).start()
        started.append(node)
        return node

    yield start
    for node in started:
        node.close()


@pytest.mark.slow
@pytest.mark.parametrize("flush", ["9223372036854775807", "1"])
def test_a_killed_node_has_every_acknowledged_record(process, tmp_path, flush):
    settings = {"log.flush.interval.messages": flush}
    expected = []
    for turn in range(3):
        node = process(**settings).ready()
        expected += acknowledged(node.bootstrap, 2000, first=turn * 2000)
        node.kill()
    node = process(**settings).ready()
    assert expected == list(range(6000))
    assert values(node.bootstrap) == expected


def test_sigterm_is_an_orderly_end(process, tmp_path):
    node = process().ready()
    sent = acknowledged(node.bootstrap, 500)
    node.process.send_signal(signal.SIGTERM)
    code, errors = node.ended()
    assert code == 0, errors
    assert "stopped" in errors.splitlines()[-1]
    assert (tmp_path / "node" / ".kafka_cleanshutdown").exists()
    again = process().ready()
    assert values(again.bootstrap) == sent


def test_a_node_in_a_thread_starts_where_it_stopped(tmp_path):
    first = ThreadNode(tmp_path).start()
    sent = acknowledged(first.bootstrap, 300)
    first.stop()
    second = ThreadNode(tmp_path).start()
    assert values(second.bootstrap) == sent
    assert second.node.cluster_id == first.node.cluster_id
    second.stop()


def test_nodes_in_one_process_are_clusters_of_their_own(tmp_path):
    nodes = [ThreadNode(tmp_path / name).start() for name in ("a", "b")]
    for number, node in enumerate(nodes):
        acknowledged(node.bootstrap, 10 + number)
    assert [len(values(node.bootstrap)) for node in nodes] == [10, 11]
    assert nodes[0].node.cluster_id != nodes[1].node.cluster_id
    for node in nodes:
        node.stop()


async def test_polls_on_a_second_listener_do_not_hold_up_the_end(tmp_path, monkeypatch):
    """A listener that reads on while another one is drained would take the next poll."""
    drain = Acceptor.drain

    async def drain_slowly(acceptor, seconds):
        if acceptor.name == "INT":  # a client there takes its answers late
            await asyncio.sleep(0.2)
        await drain(acceptor, seconds)

    async def leave_unheard(registration):  # the broker keeps what it leads
        registration._timed.stop()

    monkeypatch.setattr(Acceptor, "drain", drain_slowly)
    monkeypatch.setattr(Registration, "shutdown", leave_unheard)
    settings = {
        "listeners": "INT://127.0.0.1:0,EXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0",
        "listener.security.protocol.map": "INT:PLAINTEXT,EXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
        "inter.broker.listener.name": "INT",
    }
    node = Node(load_config(None, settings_of(tmp_path, **settings)))
    await node.start()
    ports = {name: port for name, _, port in node.advertised()}
    await asyncio.to_thread(acknowledged, f"127.0.0.1:{ports['INT']}", 1)
    client = Client(*await asyncio.open_connection("127.0.0.1", ports["EXT"]))
    partition = FetchPartition(fetch_offset=1, partition_max_bytes=1 << 20)
    topics = [FetchTopic(topic="t", partitions=[partition])]

    async def poll():
        for number in itertools.count():
            client.send(number, FetchRequest(max_wait_ms=500, min_bytes=1, topics=topics), 12)
            await client.answer(1, 12)

    polling = asyncio.create_task(poll())
    requests = node.broker.serving.requests
    await eventually(lambda: len(requests.purgatory))
    (fetches,) = (route for route in requests.routes if route.name == "Fetch")
    asked = fetches.requests
    began = time.monotonic()
    await node.stop()
    assert time.monotonic() - began < DRAIN_SECONDS
    assert fetches.requests <= asked + 1  # its time may have been over by then
    with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
        await polling
    client.writer.close()


def one_line(node):
    code, errors = node.ended()
    lines = [line for line in errors.splitlines() if line.startswith("Error: ")]
    assert code == 1, errors
    assert len(lines) == 1, errors
    assert "Traceback" not in errors
    return lines[0]


def test_a_used_port_is_said(process, tmp_path):
    node = process().ready()
    line = one_line(process(tmp_path / "other", port=node.port))
    assert f"127.0.0.1:{node.port}: the port is in use" in line
    assert acknowledged(node.bootstrap, 10) == list(range(10))


def test_a_folder_in_use_is_said(process, tmp_path):
    node = process().ready()
    second = process(port=free_port())
    line = one_line(second)
    assert f"is in use by another node, process {node.process.pid} (" in line
    _, said = second.ended()
    assert "the start was given up node=1" in said
    assert "stopped" not in said  # it would be read as if the running one had
    assert acknowledged(node.bootstrap, 10) == list(range(10))


def test_a_folder_of_another_node_is_said(process, tmp_path):
    ThreadNode(tmp_path / "node").start().stop()
    line = one_line(process(**{"node.id": "7"}))
    assert "belongs to node 1, and this is node 7" in line


def test_a_bad_setting_is_said(process):
    assert "num.partitions" in one_line(process(**{"num.partitions": "many"}))


def test_metrics_and_health(tmp_path):
    node = ThreadNode(tmp_path, **{"http.listener": "127.0.0.1:0"}).start()
    acknowledged(node.bootstrap, 25)
    base = f"http://{node.node.http_address}"

    def get(path):
        with urllib.request.urlopen(base + path, timeout=SECONDS) as answer:
            return answer.status, answer.read().decode()

    assert get("/healthz")[0] == 200
    assert json.loads(get("/readyz")[1]) == {"ok": True}
    text = get("/metrics")[1]
    assert 'kafka_server_brokertopicmetrics_messagesin_total{topic="t"} 25.0' in text
    assert "kafka_server_replicamanager_leadercount 1.0" in text
    node.stop()
    with pytest.raises(urllib.error.URLError):
        get("/healthz")


async def test_logs_are_synced_and_closed_when_no_metadata_is_followed_any_more(
    tmp_path, monkeypatch
):
    """A round of syncs that following begins must find the threads, and be waited for."""
    left, stop = [], Flusher.stop

    async def watched(flusher):
        await stop(flusher)
        left.append(flusher._shell.hosting.work_left)

    monkeypatch.setattr(Flusher, "stop", watched)
    monkeypatch.setattr(partitions, "FIRST_SLICE_S", 0)
    monkeypatch.setattr(partitions, "SLICE_S", 0)  # a step for each turn of the loop
    node = Node(load_config(None, settings_of(tmp_path)))
    await node.start()
    host, port = node.bootstrap_servers.rsplit(":", 1)
    client = Client(*await asyncio.open_connection(host, int(port)))
    names = [CreatableTopic(f"t{each}", 50, 1) for each in range(20)]
    client.send(1, CreateTopicsRequest(topics=names, timeout_ms=0), 7)
    following = asyncio.Event()
    publish = PartitionShell.publish
    monkeypatch.setattr(
        PartitionShell, "publish", lambda shell, moved: (publish(shell, moved), following.set())
    )
    await asyncio.wait_for(following.wait(), SECONDS)
    await node.stop()
    assert left == [0]
