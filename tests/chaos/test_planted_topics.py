"""Faults of compaction, deletion and expiry, planted in the files of a real broker, are found."""

from __future__ import annotations

import argparse
import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest
from chaos.clients_offsets import Keeper
from chaos.clients_ports import Read
from chaos.clients_readers import Reading, read_on
from chaos.history import Place, Writer, read_lines
from chaos.operator_log import OperatorLog
from tests.chaos.test_planted import audited, batches, is_commit, one_broker, produce

from anabranch.client.cluster import Cluster
from anabranch.core.wire.batch import read_header
from anabranch.core.wire.records import Record, build_batch, decode_records
from chaos import check, check_commits, clients_readers

COMPACTED, REBORN = "compacted", "reborn"


def records(found: list[bytearray]) -> list[Record]:
    return [record for batch in found for record in decode_records(batch)]


def without(found: list[bytearray], offset: int) -> list[bytearray]:
    """The same batches without one record, as a cleaner would leave them."""
    kept = []
    for batch in found:
        header = read_header(batch)
        left = [record for record in decode_records(batch) if record.offset != offset]
        if left and len(left) < header.last_offset_delta + 1:
            base, epoch = header.base_offset, header.leader_epoch
            batch = build_batch(left, base_offset=base, leader_epoch=epoch)
        if left:
            kept.append(batch)
    return kept


def latest(found: list[bytearray]) -> dict[bytes, list[Record]]:
    """Key -> its records, the last one last; without the end of the log, which stays."""
    by_key: dict[bytes, list[Record]] = {}
    for record in records(found):
        by_key.setdefault(record.key or b"", []).append(record)
    end = records(found)[-1].offset
    return {key: each for key, each in by_key.items() if each[-1].offset != end}


def lose_a_tombstone(found: list[bytearray]) -> list[bytearray]:
    """What it deleted is the last record of its key again."""
    gone = next(
        each[-1]
        for each in latest(found).values()
        if len(each) > 1 and each[-1].value is None and each[-2].value is not None
    )
    return without(found, gone.offset)


def lose_the_latest(found: list[bytearray]) -> list[bytearray]:
    """A cleaner kept an older record of a key and took the last one."""
    gone = next(each[-1] for each in latest(found).values() if each[-1].value is not None)
    return without(found, gone.offset)


def keep_the_latest_alone(found: list[bytearray]) -> list[bytearray]:
    """What a cleaner may leave at most: no tombstones, and one record a key."""
    for each in latest(found).values():
        for record in each[:-1] if each[-1].value is not None else each:
            found = without(found, record.offset)
    return found


PLANTS: dict[Callable[[list[bytearray]], list[bytearray]], set[str]] = {
    lose_a_tombstone: {"risen"},
    lose_the_latest: {"lost"},
    keep_the_latest_alone: set(),
}


@pytest.mark.slow
def test_what_is_done_to_a_compacted_log_is_found(tmp_path):
    config = {"cleanup.policy": "compact"}
    with one_broker(tmp_path, COMPACTED, config) as (cluster, histories):
        produce(cluster, histories, "confluent", COMPACTED)
        verdict = audited(cluster, histories, COMPACTED)
        assert verdict.is_clean, verdict.lines()
        (broker,) = cluster.brokers
        (log,) = Path(broker.folder).glob(f"{COMPACTED}-0/*.log")
        sound = log.read_bytes()
        for plant, heading in PLANTS.items():
            cluster.kill(broker.broker_id)
            log.write_bytes(sound)
            log.write_bytes(b"".join(plant(batches(log))))
            cluster.start_broker(broker.broker_id)
            found = set(audited(cluster, histories, COMPACTED).counts)
            assert found == heading, (plant.__name__, found)


@pytest.mark.slow
def test_the_records_of_a_deleted_topic_in_the_next_one_are_found(tmp_path):
    with one_broker(tmp_path, REBORN) as (cluster, histories):
        ids = iter(("one", "two"))
        operator = OperatorLog(histories, lambda _topic: next(ids))
        operator.settled([REBORN])
        produce(cluster, histories, "confluent", REBORN)
        (broker,) = cluster.brokers
        (log,) = Path(broker.folder).glob(f"{REBORN}-0/*.log")
        former = log.read_bytes()
        operator.answered(REBORN, operator.deletion(REBORN))
        cluster.delete_topic(REBORN)
        operator.creation(REBORN)
        cluster.create_topic(REBORN, partitions=1)
        operator.settled([REBORN])
        operator.close()
        produce(cluster, histories, "kafka-python", REBORN)
        verdict = audited(cluster, histories, REBORN)
        assert verdict.is_clean, verdict.lines()
        cluster.kill(broker.broker_id)
        log.write_bytes(former)
        cluster.start_broker(broker.broker_id)
        assert audited(cluster, histories, REBORN).counts.keys() == {"risen", "lost"}


@pytest.mark.slow
def test_an_offset_that_is_gone_before_its_time_is_found(tmp_path):
    told = argparse.Namespace(bootstrap="", topics="", group="", name="k", seed=1)
    with one_broker(tmp_path) as (cluster, histories):
        writer = Writer(histories / "k.jsonl", "k")
        writer.line("hello", kind="anabranch", role="keeper", group="", topics="")
        keeper, place = Keeper(told, writer, lambda: False), Place("planted", 0)

        async def keep(*, commits: bool) -> None:
            async with Cluster(cluster.bootstrap_servers) as asking:
                if commits:
                    for _ in range(2):  # the log keeps a batch behind which nothing is
                        await asking.retrying(lambda: keeper._commit(asking, "g", place, 300_000))
                await keeper._recall(asking, "g", place)

        asyncio.run(keep(commits=True))
        writer.flush()
        assert not check.judge([histories / "k.jsonl"]).counts
        (broker,) = cluster.brokers
        cluster.kill(broker.broker_id)
        pattern = f"{check_commits.OFFSETS_TOPIC}-*/*.log"
        (log,) = (path for path in Path(broker.folder).glob(pattern) if path.stat().st_size)
        log.write_bytes(b"".join(each for each in batches(log) if not is_commit(each)))
        cluster.start_broker(broker.broker_id)
        asyncio.run(keep(commits=False))
        writer.close()
        assert check.judge([histories / "k.jsonl"]).counts == {"expired": 1}


class Short:
    """A client whose fetches never bring the last record that its log is said to have."""

    def __init__(self, *, comes_to_the_end: bool) -> None:
        self.comes_to_the_end = comes_to_the_end
        self.records = [(Place("t", 0), 0, b"p.1:0:")]

    def partitions(self, _topics):
        return [Place("t", 0)]

    def assign(self, _positions):
        pass

    def bounds(self, _place):
        return 0, 2

    def poll(self, _seconds):
        shown, self.records = self.records, []
        return Read(shown, ends=[(Place("t", 0), 2)] if self.comes_to_the_end else [])


@pytest.mark.parametrize("comes_to_the_end", [True, False])
def test_a_reader_that_does_not_come_to_the_end_says_so(tmp_path, monkeypatch, comes_to_the_end):
    monkeypatch.setattr(clients_readers, "STUCK_SECONDS", 0.1)
    told = argparse.Namespace(topics="t", seed=1, name="r", kind="confluent")
    stops = iter([False, True])
    writer = Writer(tmp_path / "r.jsonl", "r")
    reading = Reading(told, writer, lambda: next(stops))
    monkeypatch.setattr(reading, "open", lambda: Short(comes_to_the_end=comes_to_the_end))
    monkeypatch.setattr(reading, "ask", lambda question, *_: question())
    assert read_on(reading) == 0
    writer.close()
    stood = [line for line in read_lines(tmp_path / "r.jsonl") if line["op"] == "stood"]
    expected = [] if comes_to_the_end else [(1, 2)]
    assert [(line["position"], line["end"]) for line in stood] == expected
