"""At each level of metadata.version records are written as nodes of that version read them."""

from __future__ import annotations

import pytest
from immutables import Map
from tests.core.controller.world import World

from anabranch.core.errors import Bug, ProtocolError, TooOld
from anabranch.core.metadata.batches import (
    decode_batches,
    encode_batch,
    encode_snapshot,
    understood,
)
from anabranch.core.metadata.features import (
    ELR_VERSION,
    METADATA_VERSION,
    SUPPORTED_FEATURES,
)
from anabranch.core.metadata.image import MetadataImage
from anabranch.core.metadata.levels import (
    VERSIONS,
    check_supported,
    level_of,
    to_write,
    version_at,
)
from anabranch.core.metadata.snapshot import from_snapshot, snapshot_records
from anabranch.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.core.wire.metadata_records import (
    ALL_RECORDS,
    BrokerRegistrationChangeRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    decode_record,
    encode_record,
    read_record_head,
)
from anabranch.core.wire.primitives import LONGEST_STRING_BYTES
from anabranch.core.wire.records import Record, build_batch, decode_records
from anabranch.core.wire.schema import fields_of

LOWEST, NEWEST = SUPPORTED_FEATURES[METADATA_VERSION]


@pytest.mark.parametrize(
    ("level", "register", "partition", "change"),
    [(7, 1, 0, 1), (8, 2, 0, 1), (16, 2, 0, 1), (17, 3, 1, 2), (22, 3, 1, 2), (23, 3, 2, 2)],
)
def test_versions_are_those_of_kafka(
    level: int, register: int, partition: int, change: int
) -> None:
    assert version_at(RegisterBrokerRecord, level) == register
    assert version_at(PartitionRecord, level) == partition
    assert version_at(PartitionChangeRecord, level) == partition
    assert version_at(BrokerRegistrationChangeRecord, level) == change
    assert version_at(TopicRecord, level) == 0


def test_without_a_level_everything_is_written_as_it_is_newest() -> None:
    assert all(version_at(kind, None) == kind.versions[-1] for kind in VERSIONS)
    assert all(version_at(kind, NEWEST) == kind.versions[-1] for kind in VERSIONS)


@pytest.mark.parametrize("kind", VERSIONS, ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("level", [LOWEST, 8, 17, 22, 23, NEWEST])
def test_what_is_applied_is_what_is_read_back(kind: type, level: int) -> None:
    values = {
        "directories": [bytes([7]) * 16],
        "log_dirs": [bytes([8]) * 16],
        "eligible_leader_replicas": [1],
        "last_known_elr": [2],
    }
    known = {each.name for each in fields_of(kind)}
    record = kind(**{name: value for name, value in values.items() if name in known})
    (kept,) = to_write(MetadataImage(features=Map({METADATA_VERSION: level})), [record])
    batch = encode_batch([kept], base_offset=0, epoch=1, now_ms=1, level=level)
    (decoded,) = decode_batches(batch)
    assert decoded.records == (kept,)


def versions_in(world: World) -> set[int]:
    found = set()
    for batch in world.batches:
        for record in decode_records(batch):
            type_id, version, _ = read_record_head(record.value or b"")
            if type_id in (PartitionRecord.type_id, PartitionChangeRecord.type_id):
                found.add(version)
    return found


def lived(level: int) -> World:
    """A cluster that has always been at that level, in which brokers came and went."""
    world = World()
    for name in tuple(world.image.features):
        world.level(name, 0)
    world.level(METADATA_VERSION, level)
    world.batches.clear()
    world.controller.state = type(world.controller.state)()
    world.commit([FeatureLevelRecord(name=METADATA_VERSION, feature_level=level)])
    world.start(1, 2, 3)
    world.create("t", [1, 2, 3], [2, 3, 1], min_insync_replicas="2")
    world.beat(2, want_fence=True)
    world.beat(1, want_fence=True)
    world.beat(2)
    return world


@pytest.mark.parametrize(
    ("level", "versions"), [(7, {0}), (16, {0}), (17, {1}), (22, {1}), (25, {2})]
)
def test_live_state_and_replayed_log_are_equal_at_every_level(level: int, versions: set) -> None:
    world = lived(level)
    assert versions_in(world) == versions
    assert world.replayed() == world.image
    payload = encode_snapshot(
        snapshot_records(world.image), epoch=1, last_contained_ms=1, now_ms=1, level=level
    )
    records = [each for batch in decode_batches(payload) for each in batch.records]
    assert from_snapshot(records, world.image.next_offset, 1) == world.image


def test_a_raised_level_brings_the_new_fields() -> None:
    world = lived(22)
    world.start(1, 3)
    updates = [
        FeatureUpdateKey(feature=METADATA_VERSION, max_version_level=NEWEST, upgrade_type=1),
        FeatureUpdateKey(feature=ELR_VERSION, max_version_level=1, upgrade_type=1),
    ]
    assert world.ask(UpdateFeaturesRequest(feature_updates=updates), 2).error_code == 0
    assert versions_in(world) == {1}
    world.create("u", [1, 2, 3], min_insync_replicas="3")
    world.beat(3, want_fence=True)
    assert world.partition("u").elr == (3,)
    assert versions_in(world) == {1, 2}
    assert world.replayed() == world.image
    assert level_of(world.image) == NEWEST


def test_a_level_that_is_not_known_is_named() -> None:
    world = World()
    check_supported(world.image)
    world.level(METADATA_VERSION, NEWEST + 1)
    with pytest.raises(TooOld, match=rf"at level {NEWEST + 1}, and {NEWEST} is the highest"):
        check_supported(world.image)
    world.level("some.feature", 1)
    world.level(METADATA_VERSION, NEWEST)
    with pytest.raises(TooOld, match=r"some\.feature is at level 1, and 0 is the highest"):
        check_supported(world.image)


def batch_of(value: bytes) -> bytes:
    return bytes(build_batch([Record(0, 1, None, value, ())], base_offset=0, leader_epoch=1))


@pytest.mark.parametrize(
    ("head", "said"),
    [(b"\x01\x03\x09", "PartitionRecord version 9"), (b"\x01\x8f\x4f\x00", "record type 10127")],
)
def test_what_a_newer_version_wrote_is_named(head: bytes, said: str) -> None:
    with pytest.raises(TooOld, match=f"the metadata holds {said}, which it cannot read"):
        understood(batch_of(head + bytes(40)))


def test_what_is_torn_is_not_taken_for_newer() -> None:
    torn = encode_record(TopicRecord(name="t"))[:-9]
    with pytest.raises(ProtocolError):
        understood(batch_of(torn))


STRINGS = [
    (kind, field.name)
    for kind in ALL_RECORDS.values()
    for field in fields_of(kind)
    if field.type.kind == "string"
]


@pytest.mark.parametrize(
    ("kind", "name"), STRINGS, ids=lambda each: getattr(each, "__name__", each)
)
def test_what_could_not_be_read_is_not_written(kind: type[MetadataRecord], name: str) -> None:
    longest = "a" * LONGEST_STRING_BYTES
    assert getattr(decode_record(encode_record(kind(**{name: longest}))), name) == longest
    with pytest.raises(Bug, match=f"{name}: length 32769 is over the limit of 32767"):
        encode_record(kind(**{name: longest + "é"}))
