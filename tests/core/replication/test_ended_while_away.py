"""A replica that was away for long knows how each transaction ended, though the markers are gone.

All short histories of a compacted partition on two brokers. A producer begins a transaction, and
both have its first record. Then the follower is away: the transaction goes on and ends, others
supersede its records or not, its producer begins the next one; the leader compacts once or until
also markers go; more may follow. The follower returns and is elected. It must then say what the old
leader said: which transactions are open, where readers of committed records stop, and what they
find under each key.
"""

from __future__ import annotations

from itertools import product

import pytest
from tests.core.api.in_memory_node import START_MS
from tests.core.log.compacting import committed_values
from tests.core.log.support import marker
from tests.core.replication.peers import PLACE, Peers
from tests.core.replication.test_compacted_logs import COMPACTED, compacted

from anabranch.core.errors import ApiError
from anabranch.core.wire.records import Record, build_batch

PRODUCER = 7
AWAY = ["".join(each) for count in (1, 2) for each in product("wcasn", repeat=count)]
AFTERWARDS = ["", "n"]
WAYS = [(1, True), (4, True), (4, False)]
"""How many passes, and whether the marker raises the epoch (KIP-890)."""
PASS_MS = 2_000
MARKERS_STAY_MS = 1_000
TRANSACTIONS = 6
SMALL_ANSWERS = {"replica.fetch.max.bytes": "100"}
"""A batch in each, so that a transaction is open where an answer ends."""


class History:
    """Two brokers; broker 1 leads, and what it wrote is told by `committed`."""

    def __init__(self, *, raises_epoch: bool, markers_stay_ms: int = MARKERS_STAY_MS) -> None:
        settings = COMPACTED | {"delete.retention.ms": str(markers_stay_ms)}
        self.peers = Peers(2, topic_config=settings, config=SMALL_ANSWERS)
        self.raises_epoch = raises_epoch
        self.now_ms, self.count = START_MS, 0
        self.epoch = self.sequence = 0
        self.is_open = False
        self.undecided: dict[bytes, bytes] = {}
        """What counts once the transaction is committed."""
        self.committed: dict[bytes, bytes] = {}

    def step(self, letter: str) -> None:
        match letter:
            case "w":
                self.write(b"more")
            case "c" | "a":
                self.end(is_committed=letter == "c")
            case "s":  # all of it is superseded
                for key in (b"first", b"more", b"next"):
                    self.committed[key] = self.append(key)
                    self.undecided.pop(key, None)
            case "n":  # the next transaction of the same producer
                self.end(is_committed=True)
                self.write(b"next")
                self.end(is_committed=True)

    def write(self, key: bytes) -> None:
        self.is_open = True
        self.undecided[key] = self.append(
            key, producer_id=PRODUCER, producer_epoch=self.epoch, base_sequence=self.sequence
        )
        self.sequence += 1

    def append(self, key: bytes, **producer: int) -> bytes:
        self.count += 1
        value = b"%d" % self.count
        record = Record(0, self.now_ms, key, value)
        self.give(build_batch([record], transactional=bool(producer), **producer), client=True)
        return value

    def end(self, *, is_committed: bool) -> None:
        if not self.is_open:
            return
        self.is_open = False
        if self.raises_epoch:
            self.epoch, self.sequence = self.epoch + 1, 0
        ends = marker(PRODUCER, committed=is_committed, producer_epoch=self.epoch)
        self.give(ends, client=False)
        if is_committed:
            self.committed.update(self.undecided)
        self.undecided.clear()

    def give(self, records: bytearray, *, client: bool) -> None:
        leader = self.peers[1]
        leader.clock()
        leader.replica.append(records, required_acks=1, now_ms=self.now_ms, client=client)
        leader.broker.changed[PLACE] = None
        leader.finish()

    def leave(self) -> None:
        """The follower's process ends."""
        self.peers.lose_all()
        self.older = self.peers.image
        self.peers.change(isr=(1,))
        self.peers.publish(1)
        self.peers.mail.clear()

    def compact(self) -> None:
        self.now_ms += PASS_MS
        compacted(self.peers, 1, now_ms=self.now_ms)

    def come_back(self, how: str) -> None:
        """A new process copies once the metadata tells it that it is not in sync, or before; or
        the same one goes on copying after a pause, in which markers may go."""
        if how == "paused":
            self.peers.publish(2)
            self.peers.wait(MARKERS_STAY_MS)
        else:
            self.peers.restart(2)
            self.peers.publish(1)
        if how == "not told":
            self.peers[2].publish(self.older)
            self.peers.run(8)
        self.peers.publish()
        self.peers.settle()

    def told(self, broker_id: int) -> tuple[int, dict[int, int], dict[bytes, bytes]]:
        """Where readers stop, what is open, and what they find."""
        replica = self.peers[broker_id].replica
        stable = replica.last_stable_offset
        return (
            stable,
            dict(replica.log.producers.open_transactions),
            committed_values(replica.log, stable),
        )


@pytest.mark.parametrize(("passes", "raises_epoch"), WAYS)
def test_who_returns_knows_how_transactions_ended(passes: int, raises_epoch: bool) -> None:
    for away, afterwards in product(AWAY, AFTERWARDS):
        try:
            run(away, passes, afterwards, raises_epoch=raises_epoch)
        except (AssertionError, ApiError) as fault:
            raise AssertionError(f"{away} {passes} {afterwards}: {fault}") from fault


@pytest.mark.parametrize("how", ["not told", "paused"])
@pytest.mark.parametrize("away", ["a", "an", "cs"])
def test_also_one_that_takes_itself_for_in_sync_or_pauses(away: str, how: str) -> None:
    run(away, max(WAYS)[0], "", raises_epoch=True, how=how)


def assert_it_gets_on(history: History) -> None:
    """The leader compacts; the follower returns, copies all of it, and goes back to the beginning
    of each transaction once at most."""
    history.compact()
    history.come_back("paused")
    for _ in range(TRANSACTIONS):
        history.peers.settle()
    assert sorted(history.peers.state.isr) == [1, 2]
    assert history.told(2) == history.told(1)
    assert len(history.peers[2].broker.replication.cuts) <= TRANSACTIONS + 1


def test_a_copy_gets_on_also_where_markers_go_at_once() -> None:
    """Each transaction is open where the leader's log has a gap, and its marker is still there: the
    copy goes back to it once at most."""
    history = History(raises_epoch=True, markers_stay_ms=0)
    history.write(b"first")
    history.peers.settle()
    history.leave()
    for number in range(TRANSACTIONS):
        history.write(b"stays-%d" % number)
        history.step("s")
        history.end(is_committed=True)
    assert_it_gets_on(history)


def test_a_copy_gets_on_also_where_each_transaction_overlaps_the_next() -> None:
    """It goes back to the last one, and from there to the one before: to none of them twice."""
    history = History(raises_epoch=True, markers_stay_ms=0)
    history.write(b"first")
    history.peers.settle()
    history.leave()
    history.end(is_committed=True)
    for number in range(TRANSACTIONS):
        producer, before = (PRODUCER + 1 + (number + each) % 2 for each in (0, 1))
        history.append(
            b"stays-%d" % number,
            producer_id=producer, producer_epoch=0, base_sequence=number // 2,
        )  # fmt: skip
        history.step("s")
        history.give(marker(before, committed=True), client=False)
        history.step("s")
    history.give(marker(producer, committed=True), client=False)
    assert_it_gets_on(history)


def run(away: str, passes: int, afterwards: str, *, raises_epoch: bool, how: str = "told") -> None:
    history = History(raises_epoch=raises_epoch)
    history.write(b"first")
    history.peers.settle()
    history.leave()
    for letter in away:
        history.step(letter)
    for _ in range(passes):
        history.compact()
    for letter in afterwards:
        history.step(letter)
    expected = history.told(1)
    history.come_back(how)
    assert sorted(history.peers.state.isr) == [1, 2]
    assert history.told(1) == expected
    assert history.told(2) == expected
    if not expected[1]:
        assert expected[2] == history.committed
    history.peers.elect(2)
    history.peers.settle()
    assert history.told(2) == expected
