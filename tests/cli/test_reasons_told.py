"""R20: why replicas are not in sync, said by the controller, and by the next one after it."""

from __future__ import annotations

import json
import signal

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.clients.members import until
from tests.server.three_kit import running, three_processes

from anabranch.cli.main import main

SETTINGS = {
    "replica_lag_time_max_ms": "1500",
    "broker_session_timeout_ms": "60000",
    "auto_leader_rebalance_enable": "false",
}
"""A follower that stands still falls behind long before its session ends."""


@pytest.fixture
def nodes(tmp_path):
    with running(three_processes(tmp_path, **SETTINGS)) as started:
        yield started


def verb(nodes, *words):
    bootstrap = ",".join(node.bootstrap for node in nodes)
    return CliRunner().invoke(main, words, env={"ANABRANCH_BOOTSTRAP_SERVER": bootstrap})


def told(nodes, *words):
    result = verb(nodes, *words, "--json")
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


def ill(nodes):
    found = told(nodes, "topics", "describe", "--under-replicated-partitions")
    return {each["topic"]: each["partitions"][0]["reasons"] for each in found}


def write(nodes):
    producer = Producer({"bootstrap.servers": nodes[0].bootstrap, "acks": "1"})
    producer.produce("flights", b"x")
    assert producer.flush(20) == 0


def test_r20_a_lagging_follower_and_a_dead_one_have_their_reasons_after_a_failover(nodes):
    every = list(nodes.values())
    active = told(every, "cluster", "status")["controller_id"]
    paused, leader = (each for each in nodes if each != active)
    places = f"{leader}:{paused}:{active}"
    made = verb(every, "topics", "create", "--topic", "flights", "--replica-assignment", places)
    assert made.exit_code == 0, made.output
    until(lambda: not ill(every))

    nodes[paused].process.send_signal(signal.SIGSTOP)
    others = [nodes[leader], nodes[active]]
    write(others)
    until(lambda: ill(others).get("flights"))
    [sentence] = ill(others)["flights"]
    assert sentence.startswith(f"broker {paused} left the ISR of flights-0: no fetch for ")
    assert 1.5 <= float(sentence.split()[-2]) < 10
    assert sentence in [each["reason"] for each in told(others, "cluster", "status")["reasons"]]
    assert sentence in verb(others, "topics", "describe", "--under-replicated-partitions").stdout
    assert sentence in verb(others, "cluster", "status").stdout

    nodes[active].kill()
    rest = [nodes[leader]]
    until(lambda: told(rest, "cluster", "status")["controller_id"] == leader)
    until(lambda: len(ill(rest)["flights"]) == 2)
    assert sentence in ill(rest)["flights"], "the next controller read it in the log"
    assert f"broker {active} left the ISR of flights-0: its process is gone" in ill(rest)["flights"]
    assert "is fenced" in verb(rest, "cluster", "brokers").stdout
    words = ("partitions", "elect-leaders", "--topic", "flights")
    assert "not needed" in verb(rest, *words).stdout

    nodes[paused].process.send_signal(signal.SIGCONT)
    until(lambda: len(ill(rest)["flights"]) == 1)
