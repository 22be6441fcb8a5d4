"""Transactions on three brokers that compact for themselves, come and go, and lead in turn.

Everything that is written is copied by whoever is there; so nothing may be lost, whoever leads.
Compaction runs on any broker at any time, records are deleted at the log's start, a broker is away
for as long as it likes, processes end. Beside them a list of what was written. At the end all brokers are there, each has
led, and each must say what the list says: which transactions are open, where readers of committed
records stop, and what they find under each key.
"""

from __future__ import annotations

from random import Random
from typing import NamedTuple

import pytest
from tests.core.api.in_memory_node import START_MS
from tests.core.log.compacting import committed_values
from tests.core.log.support import marker
from tests.core.replication.peers import PLACE, Peers
from tests.core.replication.test_compacted_logs import COMPACTED, compacted

from anabranch.core.wire.records import Record, build_batch

SEEDS = 30
STEPS = 45
BROKERS = (1, 2, 3)
PRODUCERS = (7, 8)
KEYS = [b"k%d" % index for index in range(5)]
PASS_MS = 2_000
SETTINGS = {"cleanup.policy": "compact,delete", "segment.bytes": "700"}


class Written(NamedTuple):
    """A record."""

    offset: int
    value: bytes


class World:
    """Three brokers, and what was written."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.peers = Peers(3, topic_config=COMPACTED | SETTINGS)
        self.peers.settle()
        self.away: set[int] = set()
        self.now_ms, self.count = START_MS, 0
        self.epochs = dict.fromkeys(PRODUCERS, 0)
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.opened: dict[int, dict[bytes, Written]] = {}
        self.spans: dict[int, tuple[int, int]] = {}
        """The first and the last offset of each open transaction."""
        self.start = 0
        self.committed: dict[bytes, Written] = {}

    @property
    def leader_id(self) -> int:
        return self.peers.state.leader

    # What happens.

    def write(self) -> None:
        producer = self.random.choice((-1, *PRODUCERS))
        key, value = self.random.choice(KEYS), b"%d" % self.count + bytes(30)
        self.count += 1
        fields: dict[str, int] = {}
        if producer >= 0:
            fields = {
                "producer_id": producer,
                "producer_epoch": self.epochs[producer],
                "base_sequence": self.sequences[producer],
                "transactional": True,
            }
            self.sequences[producer] += 1
        records = build_batch([Record(0, self.now_ms, key, value)], **fields)
        written = Written(self.give(records, client=True), value)
        if producer < 0:
            self.count_as_committed({key: written})
        else:
            self.opened.setdefault(producer, {})[key] = written
            first, _ = self.spans.get(producer, (written.offset, 0))
            self.spans[producer] = first, written.offset

    def end(self) -> None:
        if not self.opened:
            return
        producer, is_committed = self.random.choice([*self.opened]), self.random.random() < 0.5
        self.epochs[producer] += 1
        self.sequences[producer] = 0
        ends = marker(producer, committed=is_committed, producer_epoch=self.epochs[producer])
        self.give(ends, client=False)
        written = self.opened.pop(producer)
        del self.spans[producer]
        if is_committed:
            self.count_as_committed(written)

    def give(self, records: bytearray, *, client: bool) -> int:
        """Append, and have it copied by all who are there."""
        leader = self.peers[self.leader_id]
        leader.clock()
        found = leader.replica.append(records, required_acks=1, now_ms=self.now_ms, client=client)
        leader.broker.changed[PLACE] = None
        leader.finish()
        self.copy()
        return found.first_offset

    def copy(self) -> None:
        for _ in range(4):
            mail, self.peers.mail = self.peers.mail, []
            self.peers.mail = [each for each in mail if each[0].broker_id not in self.away]
            for _ in range(len(self.peers.mail)):
                self.peers.deliver()

    def count_as_committed(self, written: dict[bytes, Written]) -> None:
        for key, each in written.items():
            self.committed[key] = max(each, self.committed.get(key, each))

    def compact(self) -> None:
        if not self.count:
            return
        broker_id = self.random.choice([each for each in BROKERS if each not in self.away])
        for _ in range(self.random.randint(1, 4)):
            self.now_ms += self.random.choice([1, PASS_MS])
            compacted(self.peers, broker_id, now_ms=self.now_ms)

    def delete(self) -> None:
        """Records at the start, also of open transactions; segments go with them."""
        leader = self.peers[self.leader_id]
        self.start = self.random.randint(self.start, leader.high_watermark)
        leader.replica.log.delete_records_before(self.start)
        leader.replica.log.apply_retention(self.now_ms, leader.high_watermark)
        leader.broker.changed[PLACE] = None
        leader.finish()
        self.copy()

    def leave(self) -> None:
        others = [each for each in BROKERS if each != self.leader_id]
        self.stop(self.random.choice(others))

    def stop(self, broker_id: int) -> None:
        self.away.add(broker_id)
        isr = tuple(each for each in self.peers.state.isr if each not in self.away)
        self.peers.change(isr=isr)
        self.publish()

    def publish(self) -> None:
        self.peers.publish(*(each for each in BROKERS if each not in self.away))
        self.copy()

    def come_back(self) -> None:
        for broker_id in sorted(self.away):
            self.peers.restart(broker_id)
        self.away.clear()
        self.peers.publish()
        self.peers.settle()
        assert sorted(self.peers.state.isr) == list(BROKERS)

    def restart(self) -> None:
        """A process ends, and the next one begins at once; a leader's gives way."""
        broker_id = self.random.choice([each for each in BROKERS if each not in self.away])
        if broker_id == self.leader_id:
            self.elect()
        if broker_id != self.leader_id:
            self.stop(broker_id)
            self.come_back()

    def elect(self) -> None:
        self.peers.elect(self.random.choice(self.peers.state.isr))
        self.copy()

    def step(self) -> None:
        moves = (self.write,) * 6 + (self.end,) * 4 + (self.compact,) * 3 + (self.leave,) * 2
        moves += (self.come_back, self.restart, self.elect)
        self.random.choice(moves)()
        if self.random.random() < 0.02:
            self.delete()

    # What is so.

    def check(self) -> None:
        there = {each: span for each, span in self.spans.items() if span[1] >= self.start}
        values = {
            key: each.value for key, each in self.committed.items() if each.offset >= self.start
        }
        for leader in BROKERS:
            self.peers.elect(leader)
            self.peers.settle()
            replica = self.peers[leader].replica
            stable, end = replica.last_stable_offset, replica.log.end_offset
            known = replica.log.producers.open_transactions.keys()
            assert there.keys() <= known <= self.spans.keys(), leader
            assert replica.log.start_offset == self.start
            if known:
                assert stable <= min(max(self.spans[each][0], self.start) for each in known), leader
            else:
                assert stable == end, leader
                assert committed_values(replica.log, stable) == values, leader


@pytest.mark.parametrize("seed", range(SEEDS))
def test_all_who_come_and_go_agree_on_transactions(seed: int) -> None:
    world = World(seed)
    for _ in range(STEPS):
        world.step()
    world.come_back()
    world.check()
    while world.opened:
        world.end()
    world.check()
