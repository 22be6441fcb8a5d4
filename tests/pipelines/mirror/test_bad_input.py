"""Files and clusters that are not what a mirror takes them for."""

from __future__ import annotations

import asyncio
import socket
import threading
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
from tests.pipelines.mirror.test_command import file as file  # noqa: PLC0414 - a fixture
from tests.pipelines.mirror.test_command import verb
from tests.pipelines.mirror.test_slot import MODES, batch, mirror, seen

from anabranch.pipelines.mirror.driver_flow import FlowState
from anabranch.pipelines.mirror.task import run_slots

CONNECTOR = """
name = east-to-west
connector.class = org.apache.kafka.connect.mirror.MirrorSourceConnector
source.cluster.alias = east
target.cluster.alias = west
source.cluster.bootstrap.servers = 127.0.0.1:9092
topics = .*
"""
WORKER = """
bootstrap.servers = 127.0.0.1:9092
group.id = connect-cluster
key.converter = org.apache.kafka.connect.json.JsonConverter
value.converter = org.apache.kafka.connect.json.JsonConverter
offset.storage.topic = connect-offsets
"""


class Quiet(BaseHTTPRequestHandler):
    def log_message(self, *_words):
        """Requests are of no interest here."""


@contextmanager
def web_server():
    """The address of a server that speaks HTTP."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Quiet)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()
        thread.join()


@contextmanager
def hangs_up():
    """The address of a server that closes each connection, as one with TLS does with plain text."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        is_over = threading.Event()

        def serve():
            listening.settimeout(0.1)
            while not is_over.is_set():
                try:
                    connection, _ = listening.accept()
                except TimeoutError:
                    continue
                connection.recv(1_000)
                connection.close()

        thread = threading.Thread(target=serve)
        thread.start()
        try:
            yield f"127.0.0.1:{listening.getsockname()[1]}"
        finally:
            is_over.set()
            thread.join()


@pytest.mark.parametrize("server", [web_server, hangs_up])
def test_a_server_that_is_no_cluster_is_named_with_its_key(file, server):
    with server() as address:
        for alias in ("east", "west"):
            path = file(**{f"{alias}.bootstrap.servers": address})
            said = verb("run", path, "--validate-only", code=1)
            assert f"Cluster {alias} ({alias}.bootstrap.servers) cannot be used" in said
            assert address in said and "Traceback" not in said
            assert f"has the {alias}.security.protocol of their listener" in said


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (CONNECTOR, "source.cluster.bootstrap.servers becomes A.bootstrap.servers"),
        (WORKER, "this looks like the file of a Connect worker or a client"),
        ("", "clusters is missing: name the clusters"),
    ],
)
def test_files_of_connect_are_told_what_to_become(tmp_path, text, told):
    path = tmp_path / "connect.properties"
    path.write_text(text)
    for words in (["run", str(path)], ["run", str(path), "--validate-only"], ["status", str(path)]):
        said = verb(*words, code=1)
        assert told in said and str(path) in said and "Traceback" not in said


@MODES
def test_a_target_with_more_partitions_is_told_and_mirrored(clusters, more, capsys):
    topic, other = clusters.topic(partitions=2), clusters.topic()
    clusters.west.create_topic(f"east.{topic}", partitions=5, config={"retention.ms": -1})
    for partition in range(2):
        clusters.produce(topic, partition, batch(0, 30))
    clusters.produce(other, 0, batch(0, 30))
    (answer,) = mirror(clusters, f"{topic}, {other}", more)
    assert answer.faults == {}
    told = f"east.{topic} has 5 partitions on the target and {topic} has 2 at the source"
    assert told in capsys.readouterr().out
    for partition in range(2):
        copied = clusters.read(clusters.west, f"east.{topic}", partition)
        assert seen(copied) == seen(clusters.read(clusters.east, topic, partition))
    for partition in range(2, 5):
        assert clusters.read(clusters.west, f"east.{topic}", partition) == []
    assert len(clusters.read(clusters.west, f"east.{other}")) == 30


@MODES
def test_of_two_mirrors_with_one_name_the_first_ends_at_its_next_wave(clusters, more):
    topic = clusters.topic()
    clusters.produce(topic, 0, batch(0, 50))
    config = clusters.config(topics=topic, **more)

    async def opened():
        state = FlowState(config.flows[0], print)
        await state.open()
        await state.topics.refresh(state.source, state.target)
        return state

    async def work():
        first, second = await opened(), await opened()
        try:
            answers = [await run_slots(await each.plan(1), 2.0) for each in (first, second, first)]
        finally:
            for each in (first, second):
                await each.close()
        return [answer for (answer,) in answers]

    one, two, three = asyncio.run(work())
    assert (one.records, one.notes, two.notes) == (50, [], [])
    assert two.records == three.records == 0
    (note,) = three.notes
    assert "Slot 0 of east->west ended: another driver of this mirror" in note
    values = [each.value for each in clusters.read(clusters.west, f"east.{topic}")]
    assert values == [b"v%d" % each for each in range(50)]
