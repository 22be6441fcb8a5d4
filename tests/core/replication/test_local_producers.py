"""Producers of a log that begins in the middle: what a copy knows of them, and of leader epochs.

The older part is in another store; a replica that copies only the later part learns from its leader
which batches were written before, so that it can lead without taking one of them twice.
"""

from __future__ import annotations

from contextlib import suppress
from random import Random

import pytest
from tests.core.replication.peers import FOLDER, PLACE, START_MS, TOPIC_ID, Peers
from tests.core.replication.test_local_start import copied

from anabranch.core.api import fetch_pass
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.log.future_log import FutureLog
from anabranch.core.log.log import Log
from anabranch.core.log.logs import LogFolder
from anabranch.core.log.memory_files import MemoryFiles

IN_FLIGHT = 5
CONFIG = {"remote.log.storage.system.enable": "true"}
TOPIC = {"remote.storage.enable": "true"}


class Writer:
    """An idempotent producer: it sends its batches in order, and some of the last five again."""

    def __init__(self, peers: Peers, producer_id: int, random: Random) -> None:
        self.peers, self.producer_id, self.random = peers, producer_id, random
        self.sent: list[tuple[int, int, int]] = []
        """(first sequence, count, offset) of each batch that is committed."""

    def write(self) -> None:
        first = sum(count for _, count, _ in self.sent)
        count = self.random.randint(1, 4)
        self.sent.append((first, count, self.send(first, count)))

    def send(self, first: int, count: int) -> int:
        leader = self.peers[self.peers.state.leader]
        answer = leader.produce(
            count, acks=1, producer_id=self.producer_id, producer_epoch=0, base_sequence=first
        )
        assert ErrorCode(answer.error_code) == ErrorCode.NONE, (self.producer_id, first)
        return answer.base_offset

    def retry(self) -> None:
        for first, count, offset in self.sent[-IN_FLIGHT:]:
            if self.random.random() < 0.5:
                assert self.send(first, count) in (offset, -1), (self.producer_id, first)


def wiped(peers: Peers, broker_id: int) -> None:
    """A follower loses its disk and begins again; it is in no set of those who may lead."""
    isr = tuple(each for each in peers.state.isr if each != broker_id)
    peers.change(isr=isr)
    peers.restart(broker_id)
    peers[broker_id].files = MemoryFiles()
    peers[broker_id].begin()
    peers.publish()


def settle(peers: Peers) -> None:
    peers.settle()
    assert set(peers.state.isr) == set(peers.brokers)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_is_written_twice_or_refused_after_any_election(seed: int) -> None:
    random, peers = Random(seed), Peers(3, config=CONFIG, topic_config=TOPIC)
    writers = [Writer(peers, each, random) for each in range(3)]
    for _ in range(25):
        leader = peers.state.leader
        act = random.choice(["write", "write", "retry", "copy", "wipe", "elect", "restart"])
        if act == "write":
            random.choice(writers).write()
            peers.run(random.randint(0, 2))
            continue
        settle(peers)
        end = peers[leader].end
        follower = random.choice([each for each in (1, 2, 3) if each != leader])
        if act == "retry":
            random.choice(writers).retry()
            assert peers[leader].end == end
        elif act == "copy":
            for each in random.sample((1, 2, 3), random.randint(1, 3)):
                copied(peers, each)
        elif act == "wipe":
            wiped(peers, follower)
        elif act == "restart":
            peers.restart(follower)
            peers.publish()
        elif act == "elect":
            peers.elect(follower)
    settle(peers)
    for each in (1, 2, 3):
        peers.elect(each)
        settle(peers)
        end = peers[each].end
        for writer in writers:
            writer.retry()
        assert peers[each].end == end == sum(one[1] for writer in writers for one in writer.sent)
    epochs = {
        each: peers[each].replica.log.epochs.begun_before(peers[each].end) for each in (1, 2, 3)
    }
    assert epochs[1] == epochs[2] == epochs[3]


def with_a_remote_part() -> tuple[Peers, Writer]:
    """Records of one producer are in another store, and none is on the leader's disk."""
    peers = Peers(2, config=CONFIG, topic_config=TOPIC)
    writer = Writer(peers, 7, Random(1))
    for _ in range(3):
        writer.write()
    settle(peers)
    copied(peers, 1)
    assert peers[1].replica.log.local_start_offset == peers[1].end
    return peers, writer


def known(log: Log) -> list[tuple[int, int]]:
    producer = log.producers.producers.get(7)
    batches = () if producer is None else producer.batches
    return [(each.first_sequence, each.last_offset) for each in batches]


def test_a_copy_knows_what_its_leader_knew() -> None:
    peers, writer = with_a_remote_part()
    wiped(peers, 2)
    settle(peers)
    log, leader = peers[2].replica.log, peers[1].replica.log
    assert (log.start_offset, log.local_start_offset) == (0, leader.end_offset)
    assert known(log) == known(leader)
    assert log.epochs.begun_before(log.end_offset) == leader.epochs.begun_before(log.end_offset)
    peers.elect(2)
    for first, count, _ in writer.sent:
        writer.send(first, count)
    assert peers[2].end == leader.end_offset
    writer.write()
    assert peers[2].end > leader.end_offset


class PowerCut(Exception):
    """The process ends here."""


WRITES = ("write_atomic", "remove", "rename", "sync_dir", "open")


@pytest.mark.parametrize("at", range(40))
def test_a_crash_leaves_no_log_that_goes_on_without_its_producers(
    at: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    peers, _ = with_a_remote_part()
    leader = peers[1].replica.log
    files = MemoryFiles()
    log = LogFolder(files, FOLDER).create_log(PLACE, TOPIC_ID, leader.config, now_ms=0)
    log.truncate_fully(2, 0)  # an older beginning, which goes
    left = at

    def counted(kind: str) -> None:
        call = getattr(MemoryFiles, kind)

        def checked(self: MemoryFiles, *args: object, **how: object) -> object:
            nonlocal left
            if self is files and left == 0:
                raise PowerCut
            left -= self is files
            return call(self, *args, **how)

        monkeypatch.setattr(MemoryFiles, kind, checked)

    for kind in WRITES:
        counted(kind)
    end = leader.local_start_offset
    with suppress(PowerCut):
        log.truncate_fully(end, 0, leader.local_beginning())
    monkeypatch.undo()
    again = LogFolder(files, FOLDER).open_log(PLACE, TOPIC_ID, leader.config, now_ms=1)
    if again.local_start_offset == end:
        assert known(again) == known(leader)
        assert again.epochs.entries
    else:
        assert not again.epochs.begun_before(again.end_offset)
        assert not [name for name in files.list(f"{FOLDER}/{PLACE}") if "snapshot" in name]


def test_a_follower_waits_while_its_leader_cannot_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no room in the answer: it asks again, and its log does not begin meanwhile."""
    peers, _ = with_a_remote_part()
    monkeypatch.setattr(fetch_pass, "MOST_TOLD_BYTES", 0)
    wiped(peers, 2)
    peers.settle()
    assert (peers[2].end, peers.state.isr) == (0, (1,))
    monkeypatch.undo()
    settle(peers)
    assert known(peers[2].replica.log) == known(peers[1].replica.log)


def test_a_leader_whose_disk_fails_meanwhile_goes_offline(monkeypatch: pytest.MonkeyPatch) -> None:
    peers, _ = with_a_remote_part()

    def fails(self: Log) -> None:
        raise StorageFault("it is broken")

    monkeypatch.setattr(Log, "local_beginning", fails)
    wiped(peers, 2)
    peers.run(3)
    assert peers[1].faults
    assert peers[2].end == 0


def test_a_moved_log_still_knows_them_after_a_restart() -> None:
    peers, _ = with_a_remote_part()
    log = peers[1].replica.log
    other = LogFolder(peers[1].files, "/other")
    future = FutureLog(log, peers[1].folder, other, unique="u", now_ms=START_MS)
    while not future.has_all:
        future.copy(1 << 20, START_MS)
    future.take_place(unique="u", now_ms=START_MS)
    again = LogFolder(peers[1].files, "/other").open_log(
        PLACE, TOPIC_ID, log.config, now_ms=START_MS
    )
    assert known(again) == known(log)
