"""Faults that are planted in the log of a real broker, found from what unmodified clients saw."""

from __future__ import annotations

import contextlib
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from anabranch.core.wire.batch import patch, read_header, walk
from anabranch.core.wire.offsets_records import OffsetCommitKey, decode_key
from anabranch.core.wire.records import decode_records
from anabranch.testing import LocalCluster
from chaos import check, check_commits, replicas

ROOT = Path(__file__).resolve().parents[2]
TOPIC = "planted"
ENOUGH = 300
"""Acknowledged records before the producer is ended."""
LONGEST_SECONDS = 60


def client(
    cluster: LocalCluster, out: Path, role: str, kind: str, *more: str, topic: str = TOPIC
) -> subprocess.Popen:
    name = out.stem
    command = [
        sys.executable, "-m", "chaos.clients", "--kind", kind, "--role", role, "--name", name,
        "--bootstrap", cluster.bootstrap_servers, "--topics", topic, "--out", str(out), *more,
    ]  # fmt: skip
    return subprocess.Popen(command, cwd=ROOT)


def produce(cluster: LocalCluster, folder: Path, kind: str, topic: str = TOPIC) -> None:
    """Until there are enough acknowledged records."""
    out = folder / f"{kind}.jsonl"
    process = client(cluster, out, "producer", kind, "--rate", "400", "--seed", "3", topic=topic)
    end = time.monotonic() + LONGEST_SECONDS
    while not out.exists() or out.read_bytes().count(b'"op":"ok"') < ENOUGH // 20:
        assert process.poll() is None and time.monotonic() < end
        time.sleep(0.05)
    process.terminate()
    assert process.wait(LONGEST_SECONDS) == 0


def audited(cluster: LocalCluster, folder: Path, topic: str = TOPIC) -> check.Verdict:
    out = folder / "auditor.jsonl"
    out.unlink(missing_ok=True)
    assert client(cluster, out, "audit", "confluent", topic=topic).wait(LONGEST_SECONDS) == 0
    return check.judge(folder.glob("*.jsonl"))


def batches(path: Path) -> list[bytearray]:
    whole = path.read_bytes()
    return [bytearray(whole[at : at + header.size_bytes]) for at, header in walk(whole)]


def is_commit(batch: bytearray) -> bool:
    """Whether it is an offset's, not a group's own record."""
    (record, *_) = decode_records(batch)
    return isinstance(decode_key(record.key or b""), OffsetCommitKey)


def lose(found: list[bytearray]) -> list[bytearray]:
    """The last batch is gone."""
    return found[:-1]


def repeat(found: list[bytearray]) -> list[bytearray]:
    """The first batch stands at the end once more."""
    again = bytearray(found[0])
    last = read_header(found[-1])
    patch(again, 0, last.next_offset, last.leader_epoch)
    return [*found, again]


def swap(found: list[bytearray]) -> list[bytearray]:
    """Two batches of one producer stand in the other order."""
    at = next(
        index
        for index in range(1, len(found))
        if read_header(found[index]).producer_id == read_header(found[index - 1]).producer_id
    )
    one, two = read_header(found[at - 1]), read_header(found[at])
    patch(found[at], 0, one.base_offset, one.leader_epoch)
    patch(found[at - 1], 0, one.base_offset + two.last_offset_delta + 1, two.leader_epoch)
    return [*found[: at - 1], found[at], found[at - 1], *found[at + 1 :]]


PLANTS: dict[Callable[[list[bytearray]], list[bytearray]], set[str]] = {
    lose: {"lost"},
    repeat: {"duplicated"},
    swap: {"reordered"},
}


@contextlib.contextmanager
def one_broker(folder, topic=TOPIC, config=None):
    """A broker with the topic, and a folder for histories."""
    histories = folder / "histories"
    histories.mkdir()
    with LocalCluster(folder=folder / "nodes") as cluster:
        cluster.create_topic(topic, partitions=1, config=config)
        yield cluster, histories


@pytest.mark.slow
def test_a_commit_that_is_taken_out_of_a_real_log_is_found(tmp_path):
    with one_broker(tmp_path) as (cluster, histories):
        produce(cluster, histories, "confluent")
        drain = client(cluster, histories / "drain.jsonl", "drain", "confluent", "--group", "g")
        assert drain.wait(LONGEST_SECONDS) == 0
        (broker,) = cluster.brokers
    logs = [Path(broker.folder)]
    found = check.judge(histories.glob("*.jsonl"), logs).counts
    assert "forgotten" not in found
    pattern = f"{check_commits.OFFSETS_TOPIC}-*/*.log"
    (log,) = (path for path in logs[0].glob(pattern) if path.stat().st_size)
    kept = batches(log)
    while not is_commit(kept.pop()):
        pass
    log.write_bytes(b"".join(kept))
    found = check.judge(histories.glob("*.jsonl"), logs).counts
    assert found["forgotten"] == 1


@pytest.mark.slow
def test_what_is_done_to_a_real_log_is_found(tmp_path):
    with one_broker(tmp_path) as (cluster, histories):
        for kind in ("confluent", "kafka-python"):
            produce(cluster, histories, kind)
        verdict = audited(cluster, histories)
        assert verdict.is_clean, verdict.lines()
        (broker,) = cluster.brokers
        (log,) = Path(broker.folder).glob(f"{TOPIC}-0/*.log")
        sound = log.read_bytes()
        for plant, heading in PLANTS.items():
            cluster.kill(broker.broker_id)
            log.write_bytes(sound)
            log.write_bytes(b"".join(plant(batches(log))))
            cluster.start_broker(broker.broker_id)
            found = set(audited(cluster, histories).counts)
            assert heading <= found, (plant.__name__, found)
            assert "unread" not in found


def test_what_is_done_to_a_real_replica_is_found(tmp_path):
    with LocalCluster(brokers=3, folder=tmp_path / "nodes") as cluster:
        cluster.create_topic(TOPIC, partitions=1, replication_factor=3)
        produce(cluster, tmp_path, "confluent")
        cluster.wait_in_sync(TOPIC)
        folders = [Path(broker.folder) for broker in cluster.brokers]
    assert replicas.compare(folders).differences == []
    (log,) = folders[1].glob(f"{TOPIC}-0/*.log")
    found = batches(log)
    log.write_bytes(b"".join(swap(found)))
    (told,) = replicas.compare(folders).differences
    assert f"{TOPIC}-0: {folders[0].name} and {folders[1].name} differ first at offset" in told
