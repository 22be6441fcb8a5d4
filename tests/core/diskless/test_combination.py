"""Combining manifests: what a checkpoint keeps, what is deleted, and what stops an attempt.

That a restore stays exact whatever fails is `tests/sim/test_combination.py`."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from anabranch.core.diskless import checkpoints, combination
from anabranch.core.diskless.checkpoints import (
    Checkpoint,
    Combined,
    NewerCheckpoint,
    Part,
    PartName,
    Writer,
    checkpoint_key,
    checkpoints_prefix,
    crc_of,
    decode_part,
    decode_root,
    encode_part,
    encode_root,
    part_key,
    parts_prefix,
)
from anabranch.core.diskless.combination import (
    Clocks,
    Combining,
    CombiningPace,
    Maker,
    combine,
    covered,
)
from anabranch.core.diskless.combination_rounds import CombiningRounds
from anabranch.core.diskless.garbage_rounds import Turn
from anabranch.core.diskless.keys import object_key
from anabranch.core.diskless.layout import DamagedObject
from anabranch.core.diskless.manifests import (
    RESTORED,
    Manifest,
    ManifestName,
    NotedObject,
    Offsets,
    decode_manifest,
    encode_manifest,
    manifest_key,
    manifest_name,
    manifests_prefix,
)
from anabranch.core.diskless.objects import Listed, ObjectMissing, ObjectTaken
from anabranch.core.diskless.restoration import rebuild
from anabranch.core.diskless.rows import Batch, LogKey, LogState
from anabranch.core.errors import StorageFault
from anabranch.core.types import TopicId

CLUSTER = "c"
KEY = LogKey(TopicId(bytes([7]) * 16), 0)
MAKER = Maker(CLUSTER, 1, 3)
PACE = CombiningPace(tail_ms=10, fewest=1, most_ms=1_000)
NOW_MS = 100_000


def noted(number: int, offset: int, records: int = 10, *, batches: int = 1) -> NotedObject:
    each = [
        Offsets(Batch(KEY, 30 + 9 * at, 9, records, 5), offset + records * at)
        for at in range(batches)
    ]
    return NotedObject(number, object_key(CLUSTER, "mark", number), 99, 1, 3, each)


class Place:
    """A store and a coordinator that answer whatever an attempt asks."""

    def __init__(self) -> None:
        self.held: dict[str, bytes] = {}
        self.unknown: set[str] = set()
        self.start = 0
        self.last_id = 1 << 40
        self.stored: dict[str, int] = {}
        """When objects were stored, 0 for those that are not in it."""
        self.steady_ms = 0
        self.calls: list[object] = []

    def manifest(self, number: int, *objects: NotedObject, broker: int = 1, epoch: int = 3) -> str:
        names = {KEY.topic_id: "river"}
        said = Manifest(CLUSTER, broker, epoch, number, list(objects), [], [], names)
        key = manifest_key(CLUSTER, broker, epoch, number)
        self.held[key] = encode_manifest(said)
        return key

    def combine(self, pace: CombiningPace = PACE) -> Combining:
        steps, result = combine(MAKER, pace), None
        while True:
            try:
                if isinstance(result, StorageFault):
                    step = steps.throw(result)
                else:
                    step = steps.send(result)
            except StopIteration as ended:
                return ended.value
            self.calls.append(step)
            result = self.perform(step)

    def perform(self, step):
        match step:
            case combination.ReadClocks():
                return Clocks(NOW_MS, self.steady_ms)
            case combination.ListPage(_, False):
                return None
            case combination.ListPage(prefix, _):
                return [
                    Listed(key, len(self.held[key]), self.stored.get(key, 0))
                    for key in sorted(self.held)
                    if key.startswith(prefix)
                ]
            case combination.ReadWhole(key, size):
                held = self.held.get(key, b"")
                return held if len(held) == size else ObjectMissing(key)
            case combination.PutWhole(key, content):
                if self.held.setdefault(key, content) != content:
                    return ObjectTaken(key)
                return None
            case combination.DeleteObjects(keys):
                for key in keys:
                    self.held.pop(key, None)
                return keys
            case combination.FindUnknown(keys):
                return [key for key in keys if key in self.unknown]
            case combination.AskLastId():
                return self.last_id
            case combination.AskStates(keys):
                return [LogState(self.start, 1 << 40) for _ in keys]

    def keys(self, prefix: str) -> list[str]:
        return [key for key in sorted(self.held) if key.startswith(prefix)]

    def newest(self) -> Combined:
        key = self.keys(checkpoints_prefix(CLUSTER))[-1]
        root = decode_root(self.held[key], key)
        parts = [decode_part(self.held[name.key], name, name.key) for name in root.parts]
        return Combined(root, parts)

    def restored(self, present=()):
        manifests = [decode_manifest(self.held[key], key) for key in self.keys(f"{CLUSTER}/man")]
        return rebuild(manifests, dict.fromkeys(present, 99), self.newest()).contents


def outcome(place: Place) -> Combining | StorageFault:
    try:
        return place.combine()
    except StorageFault as fault:
        return fault


def test_manifests_go_when_two_checkpoints_have_them():
    place = Place()
    keys = [place.manifest(number, noted(number + 1, 10 * number)) for number in range(3)]
    assert place.combine() == Combining(0, 3, 1, False)
    assert place.combine() == Combining(0, 0, -1, False)
    keys.append(place.manifest(3, noted(4, 30)))
    assert place.combine() == Combining(0, 1, 2, False)
    assert place.keys(manifests_prefix(CLUSTER)) == keys
    assert place.combine() == Combining(3, 0, -1, False)
    assert place.keys(manifests_prefix(CLUSTER)) == keys[3:]
    for number in (4, 5):
        place.manifest(number, noted(number + 1, 10 * number))
        place.combine()
    place.combine()
    assert [each[-1] for each in place.keys(checkpoints_prefix(CLUSTER))] == ["3", "4"]
    assert {key.partition("/checkpoint-parts/")[2][:10] for key in place.held} <= {
        "", "0000000003", "0000000004"
    }  # fmt: skip
    assert place.restored()[0][0].state.high_watermark == 60


def test_an_empty_partition_keeps_its_end_when_no_manifest_has_it():
    place = Place()
    only = place.manifest(0, noted(1, 0))
    place.start, place.unknown = 10, {noted(1, 0).object_key}
    place.combine()
    del place.held[only]
    assert [log.state[:2] for log in place.restored().logs] == [(10, 10)]


def test_ids_go_on_after_objects_that_are_gone():
    place = Place()
    last = noted(9, 80)
    place.manifest(0, last)
    place.start, place.unknown = 90, {last.object_key}
    place.combine()
    place.manifest(1, noted(4, 90))
    place.combine()
    assert place.newest().root.last_object_id == 9
    [log] = place.restored().logs
    assert log.state[:2] == (100, 100) and log.topic == "river"


def test_an_object_whose_records_are_not_deleted_keeps_its_note():
    """Whatever the reason why the coordinator does not know it."""
    place = Place()
    one = noted(1, 0)
    place.manifest(0, one)
    place.start, place.unknown = 9, {one.object_key}
    place.combine()
    assert place.newest().parts[0].objects == [one]
    assert place.restored([one.object_key]).logs[0].state[:2] == (0, 10)


def test_notes_stay_when_there_is_no_room_for_what_they_leave(monkeypatch):
    monkeypatch.setattr(combination, "MOST_FOLDED", 1)
    place = Place()
    gone = [noted(1, 0), noted(2, 10), noted(3, 20)]
    place.manifest(0, *gone)
    place.start, place.unknown = 30, {one.object_key for one in gone}
    place.combine()
    objects, folded = place.newest().parts
    assert objects.objects == gone[1:] and folded.starts == [(KEY, 10)]


def test_parts_are_bounded_however_large_manifests_are():
    place = Place()
    for number in range(3):
        start = 40_000 * number
        objects = [noted(1 + at + 40 * number, start + 900 * at, 1, batches=900) for at in range(9)]
        place.manifest(number, *objects)
    place.combine()
    counts = [sum(len(one.batches) for one in part.objects) for part in place.newest().parts]
    assert sum(counts) == 3 * 9 * 900 and max(counts) < combination.PART_BATCHES + 900


def test_a_manifest_that_is_damaged_stays_and_counts_as_missing():
    place = Place()
    keys = [place.manifest(number, noted(number + 1, 10 * number)) for number in range(3)]
    sound, place.held[keys[1]] = place.held[keys[1]], b"ANBR-MAN"
    place.combine()
    assert place.newest().root.writers == [Writer(1, 3, 3, [(1, 2)])]
    place.held[keys[1]] = sound
    assert place.combine().combined == 1
    assert place.newest().root.writers == [Writer(1, 3, 3, [])]


def test_manifests_that_are_young_or_of_a_restore_are_left_alone():
    place = Place()
    place.manifest(0, noted(1, 0), broker=RESTORED)
    assert place.combine().combined == 0
    place.manifest(0, noted(2, 10))
    assert place.combine(PACE._replace(tail_ms=NOW_MS + 1)).combined == 0
    assert place.combine().combined == 1


def test_only_one_broker_makes_the_checkpoint_of_a_number():
    place = Place()
    place.manifest(0, noted(1, 0))
    first = Place()
    first.held = dict(place.held)
    first.manifest(1, noted(2, 10))
    first.combine()
    root = checkpoint_key(CLUSTER, 1)

    class Slow(Place):
        def perform(self, step):
            if isinstance(step, combination.PutWhole) and step.key == root:
                self.held[root] = first.held[root]
            return super().perform(step)

    slow = Slow()
    slow.held = place.held
    with pytest.raises(ObjectTaken):
        slow.combine()
    assert slow.held[root] == first.held[root]


def test_an_attempt_that_takes_too_long_stores_no_root():
    class Slow(Place):
        def perform(self, step):
            self.steady_ms += 400
            return super().perform(step)

    place = Slow()
    place.manifest(0, noted(1, 0))
    with pytest.raises(StorageFault, match="took longer than 1 s"):
        place.combine()
    assert place.keys(checkpoints_prefix(CLUSTER)) == []


def test_a_damaged_checkpoint_is_replaced_and_costs_nothing():
    place = Place()
    for number in range(2):
        place.manifest(number, noted(number + 1, 10 * number))
        place.combine()
    damaged = place.newest().root.parts[0].key
    place.held[damaged] = place.held[damaged][:-1] + b"!"
    assert outcome(place) == Combining(0, 1, 3, False)
    place.manifest(2, noted(3, 20))
    assert place.combine() == Combining(1, 1, 4, False)
    assert checkpoint_key(CLUSTER, 2) not in place.held
    assert place.restored().logs[0].state.high_watermark == 30


def three_combined() -> Place:
    """Two checkpoints, and the manifest that only the newer one has."""
    place = Place()
    for number in range(2):
        place.manifest(number, noted(number + 1, 10 * number))
        place.combine()
    place.manifest(2, noted(3, 20))
    place.combine()
    return place


@pytest.mark.parametrize("lost", [0, 2])
def test_nothing_is_combined_while_no_checkpoint_is_whole(lost):
    """A new one would be whole, and a restore would no longer say that manifests are gone."""
    place = three_combined()
    roots = place.keys(checkpoints_prefix(CLUSTER))
    for key in roots[lost:]:
        place.held[key] = place.held[key][:-1]
    for key in roots[:lost]:
        del place.held[key]
    before = dict(place.held)
    with pytest.raises(StorageFault, match=r"put one of .*checkpoints/0000000003.* back"):
        place.combine()
    assert place.held == before


def test_older_checkpoints_go_before_manifests():
    """Whatever ends the attempt: a checkpoint that is there has what is not in manifests."""
    place = three_combined()
    place.calls.clear()
    place.combine()
    deleted = [step.keys for step in place.calls if isinstance(step, combination.DeleteObjects)]
    [roots, manifests] = deleted
    assert checkpoint_key(CLUSTER, 1) in roots
    assert manifests == [manifest_key(CLUSTER, 1, 3, 1)]


def test_a_second_checkpoint_is_made_at_once_when_one_is_damaged():
    place = three_combined()
    place.combine()
    newest = place.newest().root.parts[0].key
    place.held[newest] = place.held[newest][:-1]
    assert place.combine(PACE._replace(fewest=100)).number == 4
    assert place.combine(PACE._replace(fewest=100)).number == -1


def test_a_coordinator_that_is_older_than_manifests_is_not_believed():
    """It does not know partitions and objects that it has made since."""
    place = Place()
    one = noted(7, 0)
    place.manifest(0, one)
    place.unknown, place.start, place.last_id = {one.object_key}, 10, 6
    with pytest.raises(StorageFault, match=r"manifests name object 7.*last one is 6"):
        place.combine()
    assert place.keys(checkpoints_prefix(CLUSTER)) == []
    place.last_id = 7
    assert place.combine().number == 1


def test_a_manifest_that_came_after_a_checkpoint_is_not_in_it_whatever_its_name():
    """A broker's epoch may come a second time when metadata were put back from an older copy."""
    place = three_combined()
    place.combine()
    first = manifest_key(CLUSTER, 1, 3, 0)
    assert first not in place.held
    place.stored[place.manifest(0, noted(4, 30))] = 5
    assert place.combine().combined == 1
    place.stored[checkpoint_key(CLUSTER, 4)] = 6
    assert place.combine().deleted == 1 and first in place.held
    place.manifest(3, noted(5, 40))
    place.combine()
    place.stored[checkpoint_key(CLUSTER, 5)] = 7
    place.combine()
    assert first not in place.held
    assert place.restored().logs[0].state.high_watermark == 50


def test_parts_of_attempts_that_failed_do_not_add_up():
    """Also when no attempt succeeds; those of one that may still go on are left alone."""
    place = Place()
    place.manifest(0, noted(1, 0))
    place.last_id = 0
    for _ in range(3):
        outcome(place)
    [old] = place.keys(parts_prefix(CLUSTER))
    young = part_key(CLUSTER, 1, "2-1-1", 0)
    place.held[young], place.stored[young] = b"", NOW_MS
    place.last_id = 1
    assert place.combine(PACE._replace(part_ms=1_000)).number == 1
    assert place.keys(parts_prefix(CLUSTER))[-1] == young
    assert len(place.calls) and old in {
        key
        for step in place.calls
        if isinstance(step, combination.DeleteObjects)
        for key in step.keys
    }


def test_a_format_that_is_not_known_is_refused(monkeypatch):
    place = Place()
    keys = [place.manifest(0, noted(1, 0))]
    monkeypatch.setattr(checkpoints, "FORMAT", 2)
    place.combine()
    monkeypatch.undo()
    keys.append(place.manifest(1, noted(2, 10)))
    before = dict(place.held)
    with pytest.raises(NewerCheckpoint, match=r"format 2 is not known, 1 is; use the version"):
        place.combine()
    assert place.held == before


@given(st.data())
def test_a_root_or_part_that_was_changed_or_cut_is_noticed(data):
    part = encode_part(Part(CLUSTER, [noted(1, 0)], [(KEY, 5)], [], {}))
    name = PartName("part", len(part), crc_of(part))
    root = encode_root(Checkpoint(CLUSTER, 1, [Writer(1, 2, 3, [])], [], [], 9, [name]))
    held, decode = data.draw(
        st.sampled_from(
            [(root, lambda each: decode_root(each, "root")),
             (part, lambda each: decode_part(each, name, "part"))]
        )
    )  # fmt: skip
    decode(held)
    at = data.draw(st.integers(0, len(held) - 1))
    changed = bytearray(held)
    changed[at] ^= data.draw(st.integers(1, 255))
    for damaged in (bytes(changed), held[:at]):
        with pytest.raises(DamagedObject, match=r"root|part"):
            decode(damaged)


def names(writer: tuple[int, int], *numbers: int) -> list[ManifestName]:
    return [ManifestName(*writer, number) for number in numbers]


@given(st.lists(st.lists(st.integers(0, 30), max_size=8), min_size=1, max_size=4))
def test_a_checkpoint_has_the_manifests_that_were_read_and_no_others(rounds):
    root, read = Checkpoint(CLUSTER, 0, [], [], [], 0, []), set()
    for numbers in rounds:
        writers, floors = covered(root, names((1, 5), *set(numbers)), {(1, 5)})
        root = Checkpoint(CLUSTER, 0, writers, floors, [], 0, [])
        read.update(numbers)
        assert {each for each in range(40) if any(one.has(each) for one in writers)} == read


def test_epochs_of_a_broker_do_not_add_up():
    root = None
    for epoch in range(5):
        writers, floors = covered(root, names((1, epoch), 0, 1), {(1, epoch)})
        root = Checkpoint(CLUSTER, epoch, writers, floors, [], 0, [])
    assert [each[1] for each in writers] == [3, 4] and floors == [(1, 2)]
    late = [Manifest(CLUSTER, 1, 1, 7, [], [], [], {})]
    assert rebuild(late, {}, Combined(root, [])).findings == []
    writers, _ = covered(root, names((1, 1), 7), {(1, 1)})
    assert [each[1] for each in writers] == [1, 3, 4]


def test_a_missing_manifest_is_still_told_when_others_are_combined():
    root = Checkpoint(CLUSTER, 1, [Writer(1, 3, 9, [(4, 6)])], [], [], 0, [])
    late = [Manifest(CLUSTER, 1, 3, number, [], [], [], {}) for number in (5, 11)]
    found = rebuild(late, {}, Combined(root, [])).findings
    assert [each.detail.partition(" is")[0] for each in found] == [
        "manifest 4", "manifest 9", "manifest 10"
    ]  # fmt: skip


def test_names_of_manifests_are_read_back():
    for name in (ManifestName(3, 77, 5), ManifestName(RESTORED, 1 << 60, 0)):
        assert manifest_name(manifest_key(CLUSTER, *name), CLUSTER) == name
    assert manifest_name(f"{CLUSTER}/manifests/3/77-5", CLUSTER) is None


def test_brokers_take_turns_and_try_again_soon():
    kept = CombiningRounds(PACE._replace(round_ms=1_000, retry_ms=50))
    assert kept.due_ms(Turn(0, 1, 3)) == 2_000
    kept.ended(Turn(2_000, 1, 3), Combining(5, 9, 1, False))
    assert kept.due_ms(Turn(2_000, 1, 3)) == 5_000 and kept.deleted_manifests == 5
    kept.ended(Turn(5_000, 1, 3), Combining(0, 9, 2, True))
    assert kept.due_ms(Turn(5_000, 1, 3)) == 5_050
    kept.failed(6_000)
    assert kept.due_ms(Turn(6_000, 1, 3)) == 6_050
    for _ in range(9):
        kept.failed(7_000)
    assert kept.due_ms(Turn(7_000, 1, 3)) == 8_000
    kept.ended(Turn(8_000, 1, 3), Combining(0, 9, 2, True))
    kept.failed(9_000)
    assert kept.due_ms(Turn(9_000, 1, 3)) == 9_050
