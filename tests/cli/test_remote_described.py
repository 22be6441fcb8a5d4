"""`anabranch topics describe` tells what of a partition is remote, and what is local."""

from __future__ import annotations

import json

import pytest
from click.testing import CliRunner
from confluent_kafka import Producer
from tests.clients.members import until

from anabranch.cli.main import main
from anabranch.testing import LocalCluster

RECORDS = 200


@pytest.fixture
def cluster():
    config = {
        "remote.log.storage.system.enable": "true",
        "remote.log.manager.task.interval.ms": "200",
    }
    with LocalCluster(config=config) as started:
        yield started


def described(cluster, *words):
    words = ("topics", "describe", "--bootstrap-server", cluster.bootstrap_servers, *words)
    done = CliRunner().invoke(main, words)
    assert done.exit_code == 0, done.output
    return done.stdout


def test_remote_and_local_offsets(cluster):
    remote = {"remote.storage.enable": "true", "internal.segment.bytes": "16384"}
    cluster.create_topic("remote", partitions=1, config=remote)
    cluster.create_topic("classic", partitions=1)
    [told] = json.loads(described(cluster, "--topic", "remote", "--json"))
    assert told["has_remote_log"] is True
    assert told["partitions"][0]["remote_log"] == {
        "log_start_offset": 0, "local_start_offset": 0, "last_remote_offset": -1,
        "high_watermark": 0,
    }  # fmt: skip
    assert "none" in described(cluster, "--topic", "remote")
    [classic] = json.loads(described(cluster, "--topic", "classic", "--json"))
    assert classic["has_remote_log"] is False and "remote_log" not in classic["partitions"][0]
    assert "remote offsets" not in described(cluster, "--topic", "classic")

    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    for number in range(RECORDS):
        producer.produce("remote", b"x" * 1000)
        if number % 10 == 9:
            assert producer.flush(30) == 0
    words = ("configs", "alter", "--bootstrap-server", cluster.bootstrap_servers)
    words += ("--entity-type", "topics", "--entity-name", "remote")
    done = CliRunner().invoke(main, (*words, "--add-config", "local.retention.bytes=1"))
    assert done.exit_code == 0, done.output

    def offsets():
        [found] = json.loads(described(cluster, "--topic", "remote", "--json"))
        return found["partitions"][0]["remote_log"]

    until(lambda: offsets()["local_start_offset"] > 100)
    found = offsets()
    assert found["log_start_offset"] == 0 and found["high_watermark"] == RECORDS
    assert found["last_remote_offset"] == found["local_start_offset"] - 1
    text = described(cluster, "--topic", "remote")
    assert f"0 to {found['last_remote_offset']}" in text
    assert f"{found['local_start_offset']} to {RECORDS - 1}" in text
