"""Each client of a secure run comes in with what is shared, and a node answers no others."""

from __future__ import annotations

import asyncio
import stat

import pytest
from aiokafka import AIOKafkaProducer
from confluent_kafka import Producer
from kafka import KafkaProducer

from anabranch.client.cluster import Cluster
from anabranch.testing import LocalCluster
from chaos import secure

SECONDS = 30


@pytest.fixture(scope="module")
def cluster():
    with LocalCluster(brokers=1, security=secure.PROTOCOL) as running:
        running.create_topic("t")
        yield running


@pytest.fixture
def shared(cluster, tmp_path, monkeypatch):
    monkeypatch.setenv(secure.PLACE, "")
    secure.share(cluster.security, tmp_path)
    yield cluster
    monkeypatch.delenv(secure.PLACE)


def test_without_it_a_run_is_in_plain_text(monkeypatch):
    monkeypatch.delenv(secure.PLACE, raising=False)
    assert secure.librdkafka() == secure.kafka_python() == secure.aiokafka() == {}
    assert secure.java() == []
    assert not secure.own().uses_tls and secure.own().login is None


def test_only_its_owner_reads_what_is_shared(shared, tmp_path):
    (file,) = tmp_path.iterdir()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    assert f"security.protocol={secure.PROTOCOL}" in secure.java()


def test_librdkafka_and_kafka_python_come_in(shared):
    producer = Producer({**secure.librdkafka(), "bootstrap.servers": shared.bootstrap_servers})
    producer.produce("t", b"1")
    assert producer.flush(SECONDS) == 0
    other = KafkaProducer(bootstrap_servers=shared.bootstrap_servers, **secure.kafka_python())
    assert other.send("t", b"2").get(SECONDS).offset == 1
    other.close()


def test_aiokafka_and_our_own_client_come_in(shared):
    async def work():
        producer = AIOKafkaProducer(bootstrap_servers=shared.bootstrap_servers, **secure.aiokafka())
        await producer.start()
        await producer.send_and_wait("t", b"3")
        await producer.stop()
        async with Cluster(shared.bootstrap_servers, security=secure.own()) as cluster:
            return await cluster.leaders("t")

    assert asyncio.run(work())


def test_a_node_answers_those_alone_who_log_in(shared, monkeypatch):
    host, _, port = shared.bootstrap_servers.partition(":")
    assert secure.answers(host, int(port))
    monkeypatch.setenv(secure.PLACE, "")
    assert not secure.answers(host, int(port))
