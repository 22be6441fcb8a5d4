"""A coordinator that is lost: what manifests told of it is there again, exactly."""

from __future__ import annotations

import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from anabranch.core.diskless.findings import Kind
from anabranch.core.diskless.guessed_offsets import append_unknown
from anabranch.core.diskless.layout import DamagedObject
from anabranch.core.diskless.manifests import (
    INTERVAL_MS,
    MOST_WAITING,
    Manifest,
    ManifestLog,
    NotedObject,
    Offsets,
    decode_manifest,
)
from anabranch.core.diskless.restoration import rebuild
from anabranch.core.diskless.rows import (
    Batch,
    Change,
    Commit,
    LogKey,
    LogState,
    NewLogs,
    Wanted,
)
from anabranch.core.errors import ErrorCode, StorageFault
from anabranch.core.types import ZERO_TOPIC_ID, TopicId
from anabranch.stores.coordinator.sqlite_memory import SqliteInMemory

TOPICS = [TopicId(bytes([number]) * 16) for number in (7, 3)]
NAMES = dict(zip(TOPICS, ("orders", "clicks"), strict=True))
KEYS = [LogKey(topic_id, partition) for topic_id in TOPICS for partition in range(2)]
BROKERS = 3


class Cluster:
    """Three brokers that commit to one coordinator, and note what they do."""

    def __init__(self) -> None:
        self.now_ms = 1_000_000
        self.tables = SqliteInMemory("cluster", lambda: self.now_ms)
        self.tables.take_control(1)
        self.tables.create_logs(1, [NewLogs(topic, NAMES[topic], 0, 2) for topic in TOPICS])
        self.notes = [ManifestLog("cluster", each, 9, NAMES.get) for each in range(BROKERS)]
        self.stored: dict[str, bytes] = {}
        self.present: dict[str, int] = {}
        self.contents: dict[str, Commit] = {}
        self.acknowledged: list[tuple[str, Batch, int]] = []
        """Objects, batches in them, and the offsets that they got."""
        self.sequences: dict[tuple[LogKey, int], int] = {}
        self.tables.listen(self.hear)
        for broker in range(BROKERS):
            self.tables.register(broker, 9)

    def batch(self, chance: random.Random, position: int) -> Batch:
        key = chance.choice(KEYS)
        count, producer = chance.randint(1, 4), chance.choice([-1, 50, 51])
        if producer < 0:
            return Batch(key, position, 100, count, chance.randint(0, 99))
        sequence = self.sequences.get((key, producer), 0)
        if sequence and chance.random() < 0.2:
            sequence -= 1  # refused: a gap or a part of what is there
        else:
            self.sequences[key, producer] = sequence + count
        return Batch(key, position, 100, count, chance.randint(0, 99), 0, producer, 4, sequence)

    def commit(self, chance: random.Random, broker: int | None = None) -> None:
        broker = chance.randrange(BROKERS) if broker is None else broker
        [prepared] = self.tables.prepare(broker, 9, 1, 60_000)
        positions = range(30, 30 + 100 * chance.randint(1, 6), 100)
        batches = sorted(
            (self.batch(chance, position) for position in positions), key=lambda each: each.key
        )
        batches = [
            each._replace(byte_offset=at) for each, at in zip(batches, positions, strict=True)
        ]
        commit = Commit(*prepared[:2], 900, broker, 9, tuple(batches))
        self.present[commit.object_key], self.contents[commit.object_key] = 900, commit
        answer = self.tables.commit(commit)
        self.notes[broker].committed(commit, answer, self.now_ms)
        self.acknowledged += (
            (commit.object_key, batch, verdict.base_offset)
            for batch, verdict in zip(batches, answer.verdicts, strict=True)
            if verdict.code == ErrorCode.NONE and not verdict.is_duplicate
        )

    def hear(self, changes: list[Change]) -> None:
        """What the watch tells every broker."""
        for notes in self.notes:
            notes.heard(changes, self.now_ms)

    def shorten(self, chance: random.Random) -> None:
        key = chance.choice(KEYS)
        [state] = self.tables.states([key])
        if state is not None:
            offset = chance.randint(0, state.high_watermark)
            self.tables.delete_before([(key, offset)])

    def collect(self, chance: random.Random) -> None:
        for object_id, key in self.tables.to_delete(0, 100):
            self.present.pop(key, None)
            self.tables.deleted([object_id])

    def store_manifests(self) -> None:
        for notes in self.notes:
            self.store_those_of(notes)

    def store_those_of(self, notes: ManifestLog) -> None:
        while frozen := notes.tick(self.now_ms, at_once=True):
            self.stored[frozen.key] = frozen.content
            notes.stored(frozen)

    def manifests(self):
        return [decode_manifest(self.stored[key], key) for key in sorted(self.stored)]


def dumped(tables: SqliteInMemory):
    """All that brokers can see."""
    states = dict(zip(KEYS, tables.states(KEYS), strict=True))
    wanted = [
        Wanted(key, state.start_offset, 1 << 40)
        for key, state in states.items()
        if state is not None
    ]
    return states, tables.find(wanted)


def loaded(contents) -> SqliteInMemory:
    tables = SqliteInMemory("cluster", lambda: 2_000_000, mark="restored")
    tables.load(contents)
    return tables


@settings(max_examples=60)
@given(st.integers(0, 1 << 32), st.integers(1, 40))
def test_what_was_noted_is_rebuilt_exactly(seed, steps):
    chance, cluster = random.Random(seed), Cluster()
    for _ in range(steps):
        act = chance.choice([cluster.commit] * 4 + [cluster.shorten, cluster.collect])
        act(chance)
        if chance.random() < 0.2:
            cluster.store_manifests()
    cluster.store_manifests()
    rebuilt = rebuild(cluster.manifests(), cluster.present)
    assert rebuilt.findings == []
    restored = loaded(rebuilt.contents)
    touched = {log.key for log in rebuilt.contents.logs}
    states, found = dumped(cluster.tables)
    again, found_again = dumped(restored)
    assert {key: state for key, state in again.items() if key in touched} == {
        key: state for key, state in states.items() if key in touched
    }
    assert all(states[key].high_watermark == 0 for key in KEYS if key not in touched)
    assert found_again == [each for each in found if each.key in touched]


@settings(max_examples=30)
@given(st.integers(0, 1 << 32))
def test_producers_go_on_where_they_were(seed):
    chance, cluster = random.Random(seed), Cluster()
    for _ in range(10):
        cluster.commit(chance)
    cluster.store_manifests()
    restored = loaded(rebuild(cluster.manifests(), cluster.present).contents)
    restored.register(0, 10)
    cluster.tables.register(0, 10)
    for producer in (50, 51):
        for key in KEYS:
            for back in range(8):
                sequence = max(0, cluster.sequences.get((key, producer), 0) - back)
                batch = Batch(key, 30, 100, 1, 5, 0, producer, 4, sequence)
                verdicts = []
                for tables in (cluster.tables, restored):
                    if tables.states([key]) == [None]:
                        continue
                    [prepared] = tables.prepare(0, 10, 1, 60_000)
                    commit = Commit(*prepared[:2], 900, 0, 10, (batch,))
                    verdicts += tables.commit(commit).verdicts
                assert len(set(verdicts)) <= 1


def test_a_restored_coordinator_gives_new_ids():
    chance, cluster = random.Random(1), Cluster()
    for _ in range(5):
        cluster.commit(chance)
    cluster.store_manifests()
    restored = loaded(rebuild(cluster.manifests(), cluster.present).contents)
    restored.register(0, 10)
    [prepared] = restored.prepare(0, 10, 1, 1000)
    assert prepared.object_id == 6 and prepared.object_key not in cluster.present


def test_ids_go_on_after_objects_that_are_gone_or_that_no_manifest_names():
    chance, cluster = random.Random(1), Cluster()
    for _ in range(3):
        cluster.commit(chance)
    cluster.store_manifests()
    cluster.commit(chance)
    assert rebuild(cluster.manifests(), {}).contents.last_object_id == 3
    assert rebuild(cluster.manifests(), cluster.present).contents.last_object_id == 4


def test_a_coordinator_that_holds_something_takes_no_contents():
    cluster = Cluster()
    contents = rebuild([], {}).contents
    with pytest.raises(StorageFault, match="not empty"):
        cluster.tables.load(contents)


def test_a_missing_manifest_is_named_with_the_offsets_that_it_had():
    chance, cluster = random.Random(2), Cluster()
    for _ in range(6):
        cluster.commit(chance, broker=0)
        cluster.store_manifests()
    [lost] = [key for key in cluster.stored if key.endswith("-0000000002")]
    del cluster.stored[lost]
    rebuilt = rebuild(cluster.manifests(), cluster.present)
    assert (Kind.MANIFEST_MISSING, "broker 0, epoch 9") in [each[:2] for each in rebuilt.findings]
    assert set(cluster.present) - rebuilt.known


def test_an_object_that_is_gone_from_the_head_moves_the_start_and_elsewhere_is_a_loss():
    cluster = Cluster()
    keys = []
    for number in range(3):
        [prepared] = cluster.tables.prepare(0, 9, 1, 60_000)
        commit = Commit(*prepared[:2], 900, 0, 9, (Batch(KEYS[0], 30, 100, 10, number),))
        cluster.notes[0].committed(commit, cluster.tables.commit(commit), 0)
        keys.append(commit.object_key)
    cluster.store_manifests()
    rebuilt = rebuild(cluster.manifests(), {keys[1]: 900, keys[2]: 900})
    assert [each.kind for each in rebuilt.findings] == [Kind.START_RAISED]
    assert rebuilt.contents.logs[0].state[:2] == (10, 30)
    rebuilt = rebuild(cluster.manifests(), {keys[0]: 900, keys[2]: 900})
    [finding] = rebuilt.findings
    assert finding.kind is Kind.OBJECT_MISSING and "offsets 10 to 20" in finding.detail
    assert rebuilt.contents.logs[0].state == LogState(0, 30, 200)
    assert [run.base_offset for run in rebuilt.contents.runs] == [0, 20]
    rebuilt = rebuild(cluster.manifests(), {keys[0]: 900})
    assert [each.kind for each in rebuilt.findings] == [Kind.OBJECT_MISSING] * 2
    assert rebuilt.contents.logs[0].state == LogState(0, 30, 100)  # offsets are not given again


def test_two_coordinators_of_one_cluster_cannot_be_merged():
    clusters = [Cluster(), Cluster()]
    clusters[1].tables = SqliteInMemory("cluster", lambda: 5, mark="another")
    clusters[1].tables.register(0, 9)
    for cluster in clusters:
        cluster.commit(random.Random(3), broker=0)
        cluster.store_manifests()
    manifests = [each for cluster in clusters for each in cluster.manifests()]
    with pytest.raises(StorageFault, match="two coordinators"):
        rebuild(manifests, {})


def test_topics_that_were_deleted_stay_away():
    chance, cluster = random.Random(4), Cluster()
    for _ in range(8):
        cluster.commit(chance)
    cluster.tables.delete_topics(1, [TOPICS[0]])
    cluster.store_manifests()
    contents = rebuild(cluster.manifests(), cluster.present).contents
    assert {log.key.topic_id for log in contents.logs} == {TOPICS[1]}
    assert all(run.key.topic_id == TOPICS[1] for run in contents.runs)


def test_partitions_without_a_record_have_rows_again_below_those_that_have_some():
    """A topic of six partitions, of which three had records."""
    topic = TOPICS[0]
    batches = [
        Offsets(Batch(LogKey(topic, partition), at, 100, 2, 5), 0)
        for at, partition in ((0, 0), (100, 3), (200, 5))
    ]
    noted = NotedObject(1, "object", 300, 1, 9, batches)
    manifest = Manifest("cluster", 1, 9, 0, [noted], [], [], NAMES)
    restored = loaded(rebuild([manifest], {"object": 300}).contents)
    written, empty = LogState(0, 2, 100), LogState(0, 0)
    assert restored.states([LogKey(topic, each) for each in range(7)]) == [
        written, empty, empty, written, empty, written, None,
    ]  # fmt: skip
    assert restored.topics(ZERO_TOPIC_ID, 9) == [(topic, 6)]


@settings(max_examples=40)
@given(st.integers(0, 1 << 32), st.integers(0, 12))
def test_objects_that_no_manifest_names_are_appended_whole_and_without_repeats(seed, noted):
    chance, cluster = random.Random(seed), Cluster()
    for _ in range(noted):
        cluster.commit(chance)
    cluster.store_manifests()
    for _ in range(4):
        cluster.commit(chance)
    truth, _ = dumped(cluster.tables)
    stored = dict(cluster.stored)
    cluster.store_manifests()
    everything = {one.object_key: one for each in cluster.manifests() for one in each.objects}
    cluster.stored = stored
    rebuilt = rebuild(cluster.manifests(), cluster.present)
    unknown = [one for key, one in everything.items() if key not in rebuilt.known]
    appended = append_unknown(rebuilt, unknown).objects
    ends = {log.key: log.state.high_watermark for log in rebuilt.contents.logs}
    for one in appended:
        for batch, base_offset in one.batches:
            assert base_offset == ends.get(batch.key, 0)
            ends[batch.key] = base_offset + batch.record_count
    assert ends == {key: state.high_watermark for key, state in truth.items() if key in ends}


def test_manifests_come_at_most_ten_seconds_apart_and_again_until_stored():
    chance, cluster = random.Random(5), Cluster()
    [notes] = cluster.notes[:1]
    assert notes.next_tick_ms is None and notes.tick(0) is None
    cluster.commit(chance, broker=0)
    assert notes.next_tick_ms == cluster.now_ms + INTERVAL_MS
    assert notes.tick(cluster.now_ms + INTERVAL_MS - 1) is None
    frozen = notes.tick(cluster.now_ms + INTERVAL_MS)
    assert frozen is not None and notes.tick(cluster.now_ms + INTERVAL_MS + 1) is frozen
    notes.stored(frozen)
    assert notes.tick(cluster.now_ms + 9 * INTERVAL_MS) is None


def test_what_waits_to_be_stored_is_bounded_and_what_is_given_up_is_counted():
    chance, cluster = random.Random(6), Cluster()
    [notes] = cluster.notes[:1]
    for _ in range(MOST_WAITING + 3):
        cluster.commit(chance, broker=0)
        notes.tick(cluster.now_ms, at_once=True)
    assert notes.waiting_count == MOST_WAITING and notes.given_up_objects == 3
    cluster.store_manifests()
    findings = rebuild(cluster.manifests(), cluster.present).findings
    assert [each.kind for each in findings].count(Kind.MANIFEST_MISSING) == 3


@given(st.data())
def test_a_manifest_that_was_changed_or_cut_is_noticed(data):
    cluster = Cluster()
    cluster.commit(random.Random(7), broker=0)
    cluster.store_manifests()
    [(key, held)] = cluster.stored.items()
    at = data.draw(st.integers(0, len(held) - 1))
    changed = bytearray(held)
    changed[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), held[:at]):
        with pytest.raises(DamagedObject, match=key):
            decode_manifest(damaged, key)
