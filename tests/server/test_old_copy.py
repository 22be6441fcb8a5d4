"""A node does nothing by a copy of the metadata that is older than itself (R4).

A power cut may take the end of a copy and leave the logs: the copy then takes a topic's folder for
one of the topic of that name before it.
"""

from __future__ import annotations

import shutil

from anabranch.testing import LocalCluster

RECORDS = 50
COPY = "__cluster_metadata-0"
LOG = "00000000000000000000.log"


def write(cluster):
    import confluent_kafka

    producer = confluent_kafka.Producer(
        {"bootstrap.servers": cluster.bootstrap_servers, "acks": "all"}
    )
    for each in range(RECORDS):
        producer.produce("t", b"%d" % each)
    assert producer.flush(30) == 0


def test_an_old_copy_lays_no_hand_on_newer_logs(tmp_path):
    with LocalCluster(brokers=3, controller=1, folder=tmp_path) as cluster:
        cluster.create_topic("t")
        cluster.wait_in_sync("t")
        cluster.stop_broker(3)
        folder = tmp_path / "broker-3"
        shutil.copytree(folder / COPY, tmp_path / "old")
        cluster.start_broker(3)
        cluster.wait_in_sync("t")
        cluster.delete_topic("t")
        cluster.create_topic("t")
        cluster.wait_in_sync("t")
        write(cluster)
        cluster.stop_broker(3)
        kept = (folder / "t-0" / LOG).stat().st_ino
        shutil.rmtree(folder / COPY)
        shutil.copytree(tmp_path / "old", folder / COPY)
        cluster.start_broker(3)
        cluster.wait_in_sync("t")
        assert list(folder.glob("*-stray")) == []
        assert (folder / "t-0" / LOG).stat().st_ino == kept
        logs = {(tmp_path / f"broker-{each}" / "t-0" / LOG).read_bytes() for each in (1, 2, 3)}
        assert len(logs) == 1
