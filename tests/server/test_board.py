"""The Grafana board: every metric that it queries is on the page of a real node, or is a mirror's."""

from __future__ import annotations

import json
import re
import runpy
import urllib.request
from pathlib import Path

import confluent_kafka
import pytest
from tests.clients.members import until
from tests.server.node_kit import free_port

from anabranch.core.metric import SUMMARY, Exported
from anabranch.core.mirror.exported import METRICS as OF_A_MIRROR
from anabranch.server.exported import METRICS
from anabranch.testing import LocalCluster

ROOT = Path(__file__).resolve().parents[2]
FILE = ROOT / "docs" / "operate" / "grafana-board.json"
BOARD = json.loads(FILE.read_text())
PANELS = [each for each in BOARD["panels"] if each["type"] != "row"]
LABELS = {
    "topic", "instance", "request", "state", "consumergroup", "source", "target", "duty",
}  # fmt: skip
WORDS = {"sum", "max", "min", "avg", "by", "rate", "topk", "time", "__rate_interval", *LABELS}
"""Of the queries, beside metrics."""
SECONDS = 60


def names_of(expression):
    """The metrics of a query."""
    return set(re.findall(r"[a-z_]{2,}", expression)) - WORDS


QUERIED = {
    name for panel in PANELS for target in panel["targets"] for name in names_of(target["expr"])
}
MIRRORED = {each for each in QUERIED if "mirror" in each}


def samples(metrics):
    """The names of a list's samples, and the labels of each."""
    found = {}
    for each in metrics:
        ends = ("_count", "_sum") if each.kind == SUMMARY else ("",)
        found |= {f"{each.name}{end}": each.labels for end in ends}
    return found


def test_the_board_queries_what_is_exported_by_labels_that_it_has():
    known = {**samples(METRICS), **samples(OF_A_MIRROR)}
    assert known.keys() >= QUERIED
    for panel in PANELS:
        for target in panel["targets"]:
            labels = set.intersection(
                *({*known[name], "instance"} for name in names_of(target["expr"]))
            )
            by = re.findall(r"by \(([^)]+)\)", target["expr"])
            assert {each for one in by for each in one.split(", ")} <= labels, target
            assert set(re.findall(r"{{(\w+)}}", target["legendFormat"])) <= labels, target


def test_panels_have_places_of_their_own_and_a_title():
    cells = [
        (x, y)
        for panel in BOARD["panels"]
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert len({panel["id"] for panel in BOARD["panels"]}) == len(BOARD["panels"])
    assert len({panel["title"] for panel in PANELS}) == len(PANELS)
    assert [each["title"] for each in BOARD["panels"] if each["type"] == "row"] == [
        "Cluster", "Consumer groups", "Diskless topics", "Remote logs", "Mirror",
    ]  # fmt: skip


@pytest.fixture
def page(tmp_path):
    """The page of a node with a classic, a diskless and a remote topic and a group of two."""
    (tmp_path / "store").mkdir()
    port = free_port()
    config = {
        "diskless.storage.url": f"file://{tmp_path}/store",
        "diskless.coordinator.url": f"sqlite:///{tmp_path}/coordinator.db",
        "http.listener": f"127.0.0.1:{port}",
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "200",
    }
    remote = {"remote.storage.enable": "true"}
    with LocalCluster(config=config) as cluster:
        cluster.create_topic("classic", partitions=1)
        cluster.create_topic("diskless", partitions=1, config={"diskless.enable": "true"})
        cluster.create_topic("remote", partitions=1, config=remote)
        client = {"bootstrap.servers": cluster.bootstrap_servers}
        producer = confluent_kafka.Producer(client)
        for topic in ("classic", "diskless"):
            producer.produce(topic, b"x")
        assert producer.flush(SECONDS) == 0
        consumer = confluent_kafka.Consumer(
            {**client, "group.id": "readers", "auto.offset.reset": "earliest"}
        )
        consumer.subscribe(["classic", "diskless"])
        read = set()

        def both():
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                read.add(message.topic())
                consumer.commit(message, asynchronous=False)
            return len(read) == 2

        until(both, "both topics read", SECONDS)
        consumer.close()

        def whole():
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=20) as answer:
                text = answer.read().decode()
            missing = {each for each in QUERIED - MIRRORED if f"\n{each}" not in text}
            return text if not missing else None

        yield until(whole, f"a page with all of {sorted(QUERIED - MIRRORED)}", SECONDS)


def test_a_real_node_exports_all_that_the_board_queries_of_nodes(page):
    assert len(QUERIED - MIRRORED) > 20
    for name in QUERIED - MIRRORED:
        assert re.search(rf"^{name}(\{{[^}}]*\}})? [-+.\dNe]", page, re.MULTILINE), name


def test_the_picture_is_drawn_of_every_panel():
    """From any answers: with series, without, and with more than names are shown of."""
    drawing = runpy.run_path(str(ROOT / "scripts" / "board_picture.py"))
    answers = {0: 0}

    def asked(server, expression, begin, end, step):
        assert "$" not in expression
        answers[0] += 1
        series = range(0 if "checkpoint" in expression else 7)
        labels = [dict.fromkeys(LABELS, f"<{each}>") for each in series]
        values = [[begin + each * step, str(7 * each)] for each in range(3)]
        return [{"metric": each, "values": [*values, [end, "NaN"]]} for each in labels]

    drawing["drawn"].__globals__["asked"] = asked
    text = drawing["drawn"]("http://127.0.0.1:1", 5)
    assert text.count('class="panel"') == len(PANELS)
    assert all(panel["title"] in text for panel in PANELS)
    assert "No data" in text and "more</text>" in text and "&lt;0&gt;" in text
    assert "NaN" not in text and "nan" not in text
    assert answers[0] == sum(len(panel["targets"]) for panel in PANELS)


def test_metrics_are_listed_once():
    assert isinstance(METRICS[0], Exported)
    assert not samples(METRICS).keys() & samples(OF_A_MIRROR).keys()
