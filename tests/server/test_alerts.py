"""R19: what the document lists is exported, and the shipped rules say what is wrong, and only that."""

from __future__ import annotations

import re
import shutil
import subprocess
import urllib.request
from pathlib import Path

import confluent_kafka
import pytest
import yaml
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import given
from hypothesis import strategies as st
from tests.clients.members import until
from tests.server.node_kit import ThreadNode
from tests.server.promql import fires, metrics_of, parsed
from tests.server.three_kit import bootstrap_of, running, three_threads

from anabranch.core.metric import SUMMARY
from anabranch.core.mirror.exported import METRICS as OF_A_MIRROR
from anabranch.server.exported import METRICS

FILE = Path(__file__).resolve().parents[2] / "docs" / "operate" / "alert-rules.yml"
GROUPS = yaml.safe_load(FILE.read_text())["groups"]
RULES = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}

OF_THE_DOCUMENT = {
    "kafka_server_replicamanager_underreplicatedpartitions",
    "kafka_server_replicamanager_underminisrpartitioncount",
    "kafka_server_replicamanager_isrshrinks_total",
    "kafka_server_replicamanager_isrexpands_total",
    "kafka_server_replicamanager_failedisrupdates_total",
    "kafka_server_brokertopicmetrics_failedproducerequests_total",
    "kafka_cluster_partition_underreplicated",
    "kafka_log_log_logendoffset",
    "kafka_log_log_size",
    "kafka_controller_kafkacontroller_offlinepartitionscount",
    "kafka_controller_kafkacontroller_activecontrollercount",
    "kafka_controller_controllerstats_leaderelectionrateandtimems",
}
NOW = 1_800_000_000
REPLICAS = {"whole": [1, 2, 3], "strict": [3, 1, 2], "alone": [3]}


def test_r19_every_metric_of_the_document_is_exported():
    assert {metric.name for metric in METRICS} >= OF_THE_DOCUMENT


def test_every_rule_uses_metrics_that_there_are_and_says_what_to_do():
    every = (*METRICS, *OF_A_MIRROR)
    names = {f"{each.name}_count" if each.kind == SUMMARY else each.name for each in every}
    for alert, rule in RULES.items():
        assert set(metrics_of(rule["expr"])) <= names, alert
        assert rule["labels"]["severity"] in ("critical", "warning")
        assert re.fullmatch(r"\d+[smh]", rule.get("for", "0m"))
        assert set(rule["annotations"]) == {"summary", "action"}


@pytest.mark.parametrize("alert", RULES)
def test_every_rule_uses_labels_that_its_metrics_have(alert):
    every = {each.name: {*each.labels, "instance"} for each in (*METRICS, *OF_A_MIRROR)}
    rule, results = RULES[alert], []
    for each in parsed(rule["expr"]):
        results.append({*(each["by"] or "").split(", ")} - {""})
        wanted = results[-1] | {each["label"] or "instance"}
        assert wanted <= every[each["metric"].removesuffix("_count")]
    assert all(each == results[0] for each in results), "series of both sides must match"
    told = " ".join(rule["annotations"].values())
    assert set(re.findall(r"\$labels\.(\w+)", told)) <= results[0]


@pytest.mark.parametrize("alert", RULES)
def test_each_rule_fires_on_what_it_is_for_and_not_without(alert):
    expression = RULES[alert]["expr"]
    rule, *unless = parsed(expression)
    limit = int(rule["limit"])
    well, ill = (limit, limit - 1) if re.search("!=|<", expression) else (0, limit + 1)
    if rule["since"]:
        well, ill = NOW, NOW - ill
    others = "".join(f'{each["metric"]}{{topic="t"}} 7\n' for each in unless)
    label = f'{rule["label"]}="{rule["wanted"]}"' if rule["label"] else 'topic="t"'
    pages = [{"a": f"{rule['metric']}{{{label}}} {value}\n{others}"} for value in (well, ill)]
    assert fires(expression, pages[1], before=pages[0], now=NOW)
    assert not fires(expression, pages[0], before=pages[0], now=NOW)
    for each in unless:
        grown = {"a": pages[1]["a"].replace(" 7\n", " 9\n")}
        assert each["function"] and not fires(expression, grown, before=pages[0], now=NOW)


@pytest.mark.skipif(shutil.which("promtool") is None, reason="needs Prometheus's promtool")
@pytest.mark.parametrize(
    ("words", "file", "told"),
    [
        (("check", "rules"), FILE, f"SUCCESS: {len(RULES)} rules found"),
        (("test", "rules"), Path(__file__).with_name("alert_histories.yml"), "SUCCESS"),
    ],
)
def test_prometheus_takes_the_rules(words, file, told):
    """Debian has it in the package `prometheus`."""
    done = subprocess.run(
        ["promtool", *words, str(file)], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert told in done.stdout


PLACES = st.tuples(st.sampled_from("gh"), st.sampled_from("tu"), st.integers(0, 1))
SCRAPES = st.dictionaries(PLACES, st.tuples(st.integers(0, 2), st.integers(0, 3)), max_size=8)
"""(group, topic, partition) -> lag and committed offset."""


@given(SCRAPES, SCRAPES, st.booleans())
def test_groups_are_stopped_that_have_records_and_commit_nothing(before, now, moved):
    """Any groups, also such that came meanwhile, or whose coordinator moved to another node."""
    pages = [
        {node: "".join(
            f'kafka_consumergroup_{what}{{consumergroup="{group}",topic="{topic}",'
            f'partition="{partition}"}} {values[what != "lag"]}\n'
            for (group, topic, partition), values in scrape.items()
            for what in ("lag", "current_offset")
        )}
        for node, scrape in (("a", before), ("b" if moved else "a", now))
    ]  # fmt: skip
    behind, moves = set(), set()
    for (group, topic, partition), (lag, offset) in now.items():
        then = None if moved else before.get((group, topic, partition))
        if lag:
            behind.add((group, topic))
        if then is not None and offset != then[1] and (offset > then[1] or offset):
            moves.add((group, topic))
    expression = RULES["ConsumerGroupStopped"]["expr"]
    assert fires(expression, pages[1], before=pages[0], now=NOW) == bool(behind - moves)


@pytest.fixture
def nodes(tmp_path):
    """Three nodes with a page each."""
    with running(three_threads(tmp_path, pages=True)) as started:
        yield started


def scrape(nodes):
    pages = {}
    for node in nodes.values():
        if node.node is not None and node.node.is_ready:
            page = node.node.http_address
            pages[page] = urllib.request.urlopen(f"http://{page}/metrics").read().decode()
    return pages


def alerts(pages, before):
    return {alert for alert, rule in RULES.items() if fires(rule["expr"], pages, before)}


def value(pages, name):
    """The sum over all nodes of a metric without labels."""
    found = re.findall(rf"^{name} (\S+)$", "\n".join(pages.values()), re.MULTILINE)
    return sum(map(float, found))


def make_topics(admin):
    topics = [
        NewTopic(
            name,
            num_partitions=1,
            replica_assignment=[replicas],
            config={"min.insync.replicas": minimum},
        )
        for name, replicas, minimum in (
            ("whole", REPLICAS["whole"], "2"),
            ("strict", REPLICAS["strict"], "3"),
            ("alone", REPLICAS["alone"], "1"),
        )
    ]
    for made in admin.create_topics(topics).values():
        made.result(20)


def write(bootstrap, topic):
    """The error of one write with acks=all, None when it was acknowledged."""
    outcomes = []
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "acks": "all", "message.send.max.retries": 0}
    )
    producer.produce(topic, b"x", on_delivery=lambda error, _: outcomes.append(error))
    producer.flush(20)
    return outcomes[0]


def test_r19_the_rules_say_what_is_wrong_with_a_cluster_and_nothing_of_a_healthy_one(nodes):
    bootstrap = bootstrap_of(nodes)
    make_topics(AdminClient({"bootstrap.servers": bootstrap, "log_level": 0}))
    assert write(bootstrap, "strict") is None
    healthy = scrape(nodes)
    assert len(healthy) == len(nodes)
    assert alerts(healthy, healthy) == set()

    nodes[3].stop()
    until(lambda: value(scrape(nodes), "kafka_server_replicamanager_underreplicatedpartitions") > 1)
    assert write(bootstrap, "strict") is not None, "fewer in sync than the minimum"
    first = scrape(nodes)
    assert write(bootstrap, "strict") is not None
    broken = scrape(nodes)
    assert alerts(broken, first) == {
        "OfflinePartitions",
        "UnderMinIsrPartitions",
        "UnderReplicatedPartitions",
        "FencedBrokers",
        "FailedProduceRequests",
    }
    elections = "kafka_controller_controllerstats_leaderelectionrateandtimems_count"
    assert value(broken, elections) >= 1

    nodes[3] = ThreadNode.again(nodes[3]).start()
    until(lambda: alerts(pages := scrape(nodes), pages) == set())
    assert value(scrape(nodes), "kafka_server_replicamanager_isrexpands_total") >= 2
