"""A controller that reaches its store and no other node gives way to those who hear each other."""

from __future__ import annotations

import time

import pytest
from tests.clients.members import until
from tests.server.three_kit import IDS, Acks, count_of

from anabranch.testing import LocalCluster

CONFIG = {
    "broker.session.timeout.ms": 2000,
    "broker.heartbeat.interval.ms": 300,
    "min.insync.replicas": 2,
}


@pytest.fixture
def cluster(postgres):
    store = postgres.new_database()
    with LocalCluster(
        brokers=3, processes=True, metadata_store=store, controller=1, config=CONFIG
    ) as started:
        yield started


def led_by_another(cluster, broker_id):
    """Topic `t` of one partition, led by another broker."""
    while True:
        cluster.create_topic("t")
        cluster.wait_in_sync("t")
        if cluster.leader("t") != broker_id:
            return
        cluster.delete_topic("t")


def addresses(cluster, broker_ids):
    return ",".join(f"{each.host}:{each.port}" for each in cluster.brokers if each[0] in broker_ids)


@pytest.fixture
def acks(cluster):
    """Records to `t` by a client that was told of the two brokers that are not cut off."""
    controller = cluster.controller()
    led_by_another(cluster, controller)
    writes = Acks(addresses(cluster, [each for each in IDS if each != controller]))
    try:
        yield writes
    finally:
        cluster.heal()
        writes.stop()


@pytest.mark.slow
def test_a_controller_that_hears_nobody_lets_the_others_elect_while_the_cut_lasts(cluster, acks):
    old = cluster.controller()
    until(lambda: len(acks.times) > 100)
    cluster.cut(old)
    begun_s = time.monotonic()
    until(lambda: acks.times[-1] > begun_s + 1, "the next acks")
    print(f"acks went on {time.monotonic() - begun_s:.1f} s after the cut")
    before = len(acks.times)
    until(lambda: len(acks.times) > before + 100)
    cluster.heal()
    cluster.wait_in_sync()
    acks.stop()
    assert not acks.failures
    assert cluster.controller() != old
    assert count_of(cluster.bootstrap_servers) == len(acks.times) == acks.sent
