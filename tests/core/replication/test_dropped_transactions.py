"""What a follower drops leaves nothing behind: no transaction, no producer, no obstacle to the ISR.

All short histories of two brokers: a leader writes in a transaction and outside of one, and ends
it; it deletes records; the other one is elected, and the first has a tail that nobody else has;
followers restart and forget where their logs began, or delete records by themselves. Then faults
end. Beside the brokers a list of what the leader's log says. Asked of every history: the follower
is in sync after a few fetches; each broker stops readers of committed records where the list says,
shows them what the list says, and recognises the batches that it has, and none that were dropped;
also after a restart, as the next leader, and once markers have ended what is open.
"""

from __future__ import annotations

from itertools import product
from typing import NamedTuple

import pytest
from tests.core.log.support import batch, marker
from tests.core.replication.peers import PLACE, Peers

from anabranch.core.errors import ApiError
from anabranch.core.log.producers import BATCHES_KEPT
from anabranch.core.wire.batch import walk

TRANSACTIONAL, IDEMPOTENT = 1, 2
"""Producer ids."""
ROUNDS = 6
"""Each broker fetches at most once in a round."""
BEGINNINGS = ("", "wcw", "wca", "wcD", "wcDo")
STEPS = "wiacdDosr"
"""Two of them follow a beginning: see `History.step`."""


class Entry(NamedTuple):
    """A batch of the leader's log; `sequence` -1: a marker, which aborts."""

    first: int
    last: int
    producer: int
    epoch: int
    sequence: int


class History:
    """Two brokers, and what the log of their leader says from its very begin."""

    def __init__(self) -> None:
        self.peers = Peers(2)
        self.peers.run(2)
        self.entries: list[Entry] = []
        self.dropped: list[Entry] = []

    @property
    def leader(self):
        return self.peers[self.peers.state.leader]

    @property
    def follower(self):
        return self.peers[3 - self.peers.state.leader]

    # What happens.

    def append(self, producer: int, *, ends: bool = False) -> None:
        """A batch of two records; or a marker, which raises the epoch (KIP-890)."""
        epoch = sum(each.sequence < 0 for each in self.entries if each.producer == producer)
        written = [each for each in self.of(producer) if each.epoch == epoch]
        sequence = -1 if ends else 2 * len(written)
        leader = self.leader
        leader.clock()
        found = leader.replica.append(
            records_of(producer, epoch, sequence),
            required_acks=1,
            now_ms=leader.broker.wall_ms,
            client=not ends,
        )
        leader.broker.changed[PLACE] = None
        leader.finish()
        self.entries.append(Entry(found.first_offset, found.last_offset, producer, epoch, sequence))

    def of(self, producer: int) -> list[Entry]:
        """What a producer wrote."""
        return [each for each in self.entries if each.producer == producer and each.sequence >= 0]

    def step(self, letter: str) -> None:
        match letter:
            case "w":  # in a transaction
                self.append(TRANSACTIONAL)
            case "i":  # outside
                self.append(IDEMPOTENT)
            case "a":  # the transaction is aborted
                self.append(TRANSACTIONAL, ends=True)
            case "c":  # the follower copies
                self.heal()
            case "d":  # records are deleted, the last one within a batch
                self.delete(self.leader, 1)
            case "D":  # all that is committed, and the files
                self.delete(self.leader, 0)
            case "s":  # a follower deletes by itself
                self.delete(self.follower, 0)
            case "o":
                self.elect()
            case "r":
                self.restart(self.follower)

    def delete(self, peer, kept: int) -> None:
        log, high_watermark = peer.replica.log, peer.high_watermark
        if not kept and log.active is not None and log.active.size:
            log.roll(peer.broker.wall_ms)
        log.delete_records_before(max(log.start_offset, high_watermark - kept))
        log.apply_retention(peer.broker.wall_ms, high_watermark)
        peer.broker.changed[PLACE] = None
        peer.finish()

    def elect(self) -> None:
        """The follower leads, if it may; the old leader does not hear of it yet."""
        state = self.peers.state
        if len(state.isr) < 2:
            return
        self.peers.lose_all()
        new = 3 - state.leader
        self.peers.change(leader=new, isr=(new,))
        self.peers.publish(new)
        end = self.leader.end
        self.dropped += [each for each in self.entries if each.last >= end]
        self.entries = [each for each in self.entries if each.last < end]

    def restart(self, peer) -> None:
        """A process ends; the next one has forgotten where the log began."""
        self.peers.lose_all()
        self.peers.crash(peer.broker_id)
        leader = self.peers.state.leader
        self.peers.change(isr=(leader,))
        self.peers.publish()

    def heal(self) -> int:
        """No more faults: how many rounds it takes until both are in sync and have everything."""
        self.peers.publish()
        for done in range(ROUNDS):
            if self.is_whole():
                return done
            for _ in range(len(self.peers.mail)):
                self.peers.deliver()
            self.peers.publish()
            self.peers.wait(1_000)
        return ROUNDS

    def is_whole(self) -> bool:
        leader, follower = self.leader, self.follower
        ends = {leader.end, leader.high_watermark, follower.end, follower.high_watermark}
        has_dropped = follower.replica.start_offset >= leader.replica.start_offset
        return len(self.peers.state.isr) == 2 and len(ends) == 1 and has_dropped

    # What must hold.

    def opened(self) -> Entry | None:
        """The first batch of the transaction that is open."""
        found = None
        for each in self.entries:
            if each.producer == TRANSACTIONAL:
                found = None if each.sequence < 0 else found or each
        return found

    def check(self, peer) -> None:
        log = peer.replica.log
        start, end = log.start_offset, log.end_offset
        assert peer.high_watermark == end
        stable, opened = peer.replica.last_stable_offset, self.opened()
        if opened is None:
            assert stable == end, "a reader waits for a transaction that is not there"
            assert not log.producers.open_transactions
        else:
            firsts = [
                max(each.first, start)
                for each in self.entries
                if each.producer == TRANSACTIONAL
                and each.first >= opened.first
                and each.last >= start
            ]
            assert max(opened.first, start) <= stable <= min(firsts, default=end)
        assert seen(log, start, stable) == self.shown(start, stable)

    def shown(self, start: int, stable: int) -> list[int]:
        """The batches of producers that are not of an aborted transaction."""
        ends = [each.first for each in self.entries if each.sequence < 0]
        return [
            each.first
            for each in self.entries
            if start <= each.last < stable
            and each.sequence >= 0
            and not (each.producer == TRANSACTIONAL and any(end > each.first for end in ends))
        ]

    def check_producers(self, peer) -> None:
        """What the log has is recognised; what was dropped is not."""
        log = peer.replica.log
        for each in {*self.entries, *self.dropped}:
            if each.sequence < 0:
                continue
            written = {one[2:]: one.first for one in self.of(each.producer)}
            records = records_of(*each[2:])
            found = log.producers.duplicate_of(next(walk(records))[1])
            place = None if found is None else found.first_offset
            assert place in (None, written.get(each[2:])), f"{each} passes for a duplicate"
            assert place is not None or not self.must_know(each, log.start_offset)

    def must_know(self, entry: Entry, start: int) -> bool:
        """Whether a batch is one of the last of its producer's epoch, and there."""
        after = self.entries[self.entries.index(entry) :] if entry in self.entries else []
        later = [each for each in after if each.producer == entry.producer]
        is_ended = any(each.sequence < 0 for each in later)
        return bool(later) and len(later) <= BATCHES_KEPT and not is_ended and entry.last >= start


def records_of(producer: int, epoch: int, sequence: int) -> bytearray:
    """A batch of a producer; the marker that aborts its transaction for sequence -1."""
    if sequence < 0:
        return marker(producer, committed=False, producer_epoch=epoch + 1)
    return batch(
        2,
        producer_id=producer,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=producer == TRANSACTIONAL,
    )


def seen(log, start: int, stable: int) -> list[int]:
    """What a client shows that reads up to the last stable offset, dropping what is aborted."""
    shown, offset = [], start
    while offset < stable:
        read = log.read(offset, max_bytes=1 << 20, upto=stable, at_least_one=True)
        headers = [header for _, header in walk(read)]
        told = log.aborted_transactions(offset, headers[-1].next_offset)
        firsts = sorted(each.first_offset for each in told)
        is_aborted = False
        for header in headers:
            while firsts and firsts[0] <= header.last_offset:
                is_aborted = True
                firsts.pop(0)
            if header.is_control:
                is_aborted = False
            elif not (is_aborted and header.is_transactional):
                shown.append(header.base_offset)
        offset = headers[-1].next_offset
    return shown


@pytest.mark.parametrize("beginning", BEGINNINGS)
def test_what_is_dropped_leaves_nothing_behind(beginning):
    for steps in product(STEPS, repeat=2):
        run(beginning + "".join(steps))


def run(steps: str) -> None:
    try:
        history = History()
        for letter in steps:
            history.step(letter)
        prove(history)
    except (AssertionError, ApiError) as fault:
        raise AssertionError(f"{steps}: {fault}") from fault


def prove(history: History) -> None:
    assert history.heal() < ROUNDS, "a follower stays out of the ISR"
    history.check(history.leader)
    history.check(history.follower)
    history.check_producers(history.follower)
    history.restart(history.follower)
    assert history.heal() < ROUNDS, "a follower that restarted stays out of the ISR"
    history.check(history.follower)
    history.elect()
    assert history.heal() < ROUNDS
    history.check(history.leader)
    history.check_producers(history.leader)
    if history.opened():
        history.step("a")
        history.heal()
    history.check(history.leader)
    history.check(history.follower)
