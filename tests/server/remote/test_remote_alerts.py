"""The rules of remote logs fire on real nodes, from the cause that each is for, and end with it."""

from __future__ import annotations

import shutil

import pytest
from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tests.clients.members import until
from tests.server.remote.test_remote_cluster import TOPIC, alter, copied, replica_of
from tests.server.test_alerts import alerts, scrape
from tests.server.three_kit import bootstrap_of, partitions_of, produce, running, three_threads

OURS = {"RemoteCopyErrors", "RemoteCopyStopped", "RemoteDeleteErrors", "RemoteFetchErrors"}
VALUES = [b"%d-" % each * 60 for each in range(400)]


@pytest.fixture
def nodes(tmp_path, monkeypatch):
    monkeypatch.setattr("anabranch.core.remote.unfinished.PUTS_END_MS", 0)
    (tmp_path / "objects").mkdir()
    cluster = three_threads(
        tmp_path,
        pages=True,
        remote_log_storage_system_enable="true",
        remote_storage_url=f"file://{tmp_path}/objects",
        diskless_coordinator_url=f"sqlite://{tmp_path}/coordinator.db",
        remote_log_manager_task_interval_ms="200",
    )
    with running(cluster) as started:
        yield started


def read_some(bootstrap, offset):
    """Whether a consumer gets a record from an offset within some seconds."""
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "reader"})
    consumer.assign([TopicPartition("t", 0, offset)])
    found = consumer.consume(1, 5)
    consumer.close()
    return any(each.error() is None for each in found)


def fired(nodes, before, *names):
    until(lambda: set(names) <= alerts(scrape(nodes), before), str(names))


@pytest.mark.slow
def test_a_store_that_fails_and_comes_back(nodes, tmp_path):
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    for at in range(0, len(VALUES), 20):
        produce(bootstrap, VALUES[at : at + 20])
    leader = nodes[partitions_of(admin)[0].leader]
    alter(admin, local_retention_bytes="1")
    until(lambda: replica_of(leader).log.local_start_offset > 200)
    until(lambda: not alerts(pages := scrape(nodes), pages) & OURS)
    healthy = scrape(nodes)
    assert 'remotecopylagsegments{topic="t"} 0.0' in "".join(healthy.values())

    objects, aside = tmp_path / "objects", tmp_path / "aside"
    objects.rename(aside)
    objects.write_bytes(b"")  # a folder is not made again there
    for at in range(0, len(VALUES), 20):
        produce(bootstrap, VALUES[at : at + 20])
    assert not read_some(bootstrap, 0)
    fired(nodes, healthy, "RemoteCopyErrors", "RemoteCopyStopped", "RemoteFetchErrors")
    alter(admin, retention_bytes=str(len(b"".join(VALUES))))
    fired(nodes, healthy, "RemoteDeleteErrors")

    objects.unlink()
    aside.rename(objects)
    until(lambda: not alerts(pages := scrape(nodes), pages) & OURS)
    begin = replica_of(leader).log.start_offset
    assert begin > 0
    until(lambda: read_some(bootstrap, begin))


def test_a_segment_that_is_gone(nodes, tmp_path):
    """It is named, the rest of the log is read, and nothing goes offline."""
    bootstrap = bootstrap_of(nodes)
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    admin.create_topics([NewTopic("t", 1, 3, config=TOPIC)])["t"].result(20)
    for at in range(0, len(VALUES), 20):
        produce(bootstrap, VALUES[at : at + 20])
    leader = nodes[partitions_of(admin)[0].leader]
    alter(admin, local_retention_bytes="1")
    until(lambda: replica_of(leader).log.local_start_offset > 200)
    first, second, *_ = sorted(copied(leader).items())
    [folder] = (tmp_path / "objects").rglob(first[1].segment_id.hex())
    shutil.rmtree(folder)
    before = scrape(nodes)
    assert not read_some(bootstrap, first[0])
    fired(nodes, before, "RemoteFetchErrors")
    assert read_some(bootstrap, second[0])
    assert not replica_of(leader).log.fault
