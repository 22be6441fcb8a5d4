"""A disk of objects without room: on a real file system, and a broker that is a process."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 90
needs_root = pytest.mark.skipif(
    os.geteuid() != 0 or shutil.which("unshare") is None, reason="mounts need root"
)

SCRIPT = """
import sys
from pathlib import Path
from confluent_kafka import OFFSET_BEGINNING, Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from anabranch.testing import LocalCluster
from chaos.disks import SmallDisks

folder = Path(sys.argv[1])
small = folder / "small"
disks = SmallDisks({1: str(small)})
(small / "objects").mkdir()
config = {
    "diskless.storage.url": f"file://{small}/objects",
    "diskless.coordinator.url": f"sqlite://{small}/diskless.db",
}
told = []

def produce(writes, topic, value):
    told.clear()
    writes.produce(topic, value, partition=0, on_delivery=lambda error, _: told.append(error))

with LocalCluster(processes=True, folder=folder / "node", config=config) as cluster:
    servers = {"bootstrap.servers": cluster.bootstrap_servers, "log_level": 0}
    topics = [NewTopic("less", 1, config={"diskless.enable": "true"}), NewTopic("classic", 1)]
    admin = AdminClient(servers)
    for future in admin.create_topics(topics).values():
        future.result(30)
    once = Producer({**servers, "retries": 0, "enable.idempotence": False, "linger.ms": 0})
    waits = Producer({**servers, "enable.idempotence": True, "linger.ms": 0})
    produce(waits, "less", b"before")
    assert waits.flush(30) == 0
    with disks.full(1, 0):
        produce(once, "less", bytes(100_000))
        assert once.flush(30) == 0
        print(told[0].name())
        produce(once, "classic", b"classic")
        assert once.flush(30) == 0
        print(told[0])
        produce(waits, "less", b"meanwhile" * 10_000)
        print(waits.flush(1.0))
    assert waits.flush(30) == 0
    produce(waits, "less", b"after")
    assert waits.flush(30) == 0
    consumer = Consumer({**servers, "group.id": "none"})
    consumer.assign([TopicPartition("less", 0, OFFSET_BEGINNING)])
    print(*(message.value()[:9].decode() for message in consumer.consume(3, 30)))
    consumer.close()
    said = [line for line in cluster.log.splitlines() if "diskless records wait" in line]
    print(any("No space left" in line and "free space" in line for line in said))
disks.close()
"""


@needs_root
@pytest.mark.timeout(SECONDS + 10)
def test_a_full_disk_refuses_what_may_be_tried_again_and_goes_on_with_room(tmp_path):
    done = subprocess.run(
        ["unshare", "--mount", "--", sys.executable, "-c", SCRIPT, str(tmp_path)],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    refused, classic, waiting, read, said = done.stdout.splitlines()
    assert refused == "KAFKA_STORAGE_ERROR"
    assert classic == "None", "classic topics on other disks go on"
    assert waiting == "1", "it is tried again, and not acknowledged"
    assert read == "before meanwhile after", "nothing acknowledged is lost or doubled"
    assert said == "True", "the log has the reason and the remedy"
