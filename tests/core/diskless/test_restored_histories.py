"""A lost coordinator, whatever happened before: what a restore with all objects promises.

Random histories: brokers commit batches of plain producers and of idempotent ones, which change
brokers; records and topics are deleted; garbage goes. One broker dies again and again with what it
has not stored, and its manifests get lost; objects get lost, too. Then the coordinator is lost.
"""

from __future__ import annotations

import random
from typing import NamedTuple

from hypothesis import given, settings
from hypothesis import strategies as st
from tests.core.diskless.test_restoration import BROKERS, KEYS, NAMES, TOPICS, Cluster, loaded

from anabranch.core.diskless.findings import Kind
from anabranch.core.diskless.guessed_offsets import append_unknown
from anabranch.core.diskless.manifests import RESTORED, Manifest, ManifestLog, NotedObject, Offsets
from anabranch.core.diskless.restoration import rebuild
from anabranch.core.diskless.rows import NO_PRODUCER, Batch, LogKey

UNLUCKY = BROKERS - 1
"""The broker that dies, and whose manifests get lost."""


class History(Cluster):
    """What may happen to a cluster."""

    def __init__(self, chance: random.Random) -> None:
        super().__init__()
        self.chance, self.lives = chance, 0

    def step(self) -> None:
        acts = [self.write] * 6 + [self.cut, self.tidy, self.store, self.die]
        rare = [self.lose_manifest, self.lose_object, self.delete_topic]
        self.chance.choice(rare if self.chance.random() < 0.1 else acts)()

    def batch(self, chance: random.Random, position: int) -> Batch:
        """Of a plain producer, or of one that sends its batches again, and too early."""
        key, producer = chance.choice(KEYS), chance.choice([-1, 50, 51])
        if producer < 0:
            return Batch(key, position, 100, chance.randint(1, 4), chance.randint(0, 99))
        sent = self.sequences.get((key, producer), 0)
        number = max(0, sent + chance.choice([0, 0, 0, 0, 1, -1, -2]))
        self.sequences[key, producer] = sent + (number == sent)
        counts = [1 + each % 3 for each in range(number + 1)]
        sequence = sum(counts[:-1])
        return Batch(key, position, 100, counts[-1], number, 0, producer, 4, sequence)

    def write(self) -> None:
        self.commit(self.chance)

    def cut(self) -> None:
        self.shorten(self.chance)

    def tidy(self) -> None:
        self.collect(self.chance)

    def store(self) -> None:
        number = self.chance.randrange(BROKERS)
        self.store_those_of(self.notes[number])

    def die(self) -> None:
        """What it has not stored is gone."""
        self.lives += 1
        self.notes[UNLUCKY] = ManifestLog("cluster", UNLUCKY, 9 + self.lives, NAMES.get)

    def lose_manifest(self) -> None:
        its = [key for key in self.stored if f"/manifests/{UNLUCKY}/" in key]
        if its:
            del self.stored[self.chance.choice(its)]

    def lose_object(self) -> None:
        if self.present:
            del self.present[self.chance.choice(sorted(self.present))]

    def delete_topic(self) -> None:
        self.tables.delete_topics(1, [self.chance.choice(TOPICS)])


class Placed(NamedTuple):
    """A batch that a row has, and where."""

    base_offset: int
    batch: Batch
    object_key: str


def placed(history: History, contents) -> dict[LogKey, list[Placed]]:
    """All batches of the rows, in order."""
    found: dict[LogKey, list[Placed]] = {}
    for run in contents.runs:
        batches = {
            (each.key, each.byte_offset): each for each in history.contents[run.object_key].batches
        }
        at, offset = run.byte_offset, run.base_offset
        while at < run.byte_offset + run.byte_size:
            batch = batches[run.key, at]
            found.setdefault(run.key, []).append(Placed(offset, batch, run.object_key))
            at, offset = at + batch.byte_size, offset + batch.record_count
        assert offset == run.end_offset
    return found


def restored(history: History):
    """What a restore with all objects makes, and what it tells."""
    manifests = history.manifests()
    before = rebuild(manifests, history.present)
    unknown = [
        NotedObject(*one[:4], RESTORED, [Offsets(batch, -1) for batch in one.batches])
        for key, one in history.contents.items()
        if key in history.present and key not in before.known
    ]
    appended = append_unknown(before, unknown)
    guess = Manifest("cluster", RESTORED, 1, 0, appended.objects, [], [], dict(NAMES))
    return rebuild([*manifests, guess], history.present), appended.findings


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 1 << 32), st.integers(1, 60))
def test_a_restore_keeps_orders_starts_and_records_whatever_was_lost(seed, steps):
    history = History(random.Random(seed))
    for _ in range(steps):
        history.step()
    truth = dict(zip(KEYS, history.tables.states(KEYS), strict=True))
    for notes in history.notes[:UNLUCKY]:
        history.store_those_of(notes)
    rebuilt, findings = restored(history)
    contents = rebuilt.contents
    assert {run.object_key for run in contents.runs} <= history.present.keys()
    states = {log.key: log.state for log in contents.logs}
    deleted = {key for key, state in truth.items() if state is None}
    assert not deleted & states.keys()
    for key, state in truth.items():
        if state is not None and state.start_offset:
            assert states[key].start_offset >= state.start_offset
    rows = placed(history, contents)
    for key, batches in rows.items():
        check_order(key, batches)
    left_out = {each.place for each in findings if each.kind is Kind.RECORDS_LEFT_OUT}
    for object_key, batch, base_offset in history.acknowledged:
        state = truth[batch.key]
        if object_key not in history.present or state is None:
            continue
        if base_offset + batch.record_count <= state.start_offset:
            continue
        there = rows.get(batch.key, [])
        if any(is_same(each, batch, object_key) for each in there):
            continue
        assert batch.producer_id != NO_PRODUCER
        later = [
            each.batch
            for each in there
            if each.batch.producer_id == batch.producer_id
            and each.batch.base_sequence > batch.base_sequence
        ]
        known = {
            producer.written[-1].last_sequence
            for each, producer in contents.producers
            if each == (batch.key, batch.producer_id)
        }
        assert later or max(known) > batch.base_sequence
        assert f"{NAMES[batch.key.topic_id]}-{batch.key.partition}" in left_out
    loaded(contents)


def is_same(placed: Placed, batch: Batch, object_key: str) -> bool:
    """Whether a row has a batch: of an idempotent producer perhaps where it was sent again."""
    if batch.producer_id == NO_PRODUCER:
        return placed[1:] == (batch, object_key)
    return placed.batch[6:] == batch[6:]


def check_order(key: LogKey, batches: list[Placed]) -> None:
    """Each offset is given once, and each producer's batches once and in order."""
    last: dict[int, tuple[int, int]] = {}
    end = 0
    for base_offset, batch, _ in batches:
        assert base_offset >= end
        end = base_offset + batch.record_count
        if batch.producer_id != NO_PRODUCER:
            assert batch.base_sequence > last.get(batch.producer_id, (-1, -1))[1], key
            last[batch.producer_id] = (batch.base_sequence, batch.last_sequence)
