"""UpdateFeatures: levels go up and down together or not at all, with Kafka 4.1's texts."""

from __future__ import annotations

from typing import Any

import pytest
from tests.core.controller.test_resources import alter as alter_config
from tests.core.controller.world import World

from anabranch.core.controller.partitions.observers import set_observers
from anabranch.core.errors import ClientFault, ErrorCode
from anabranch.core.metadata.features import (
    BOOTSTRAP_LEVELS,
    CONTROLLERS_SINCE,
    ELR_VERSION,
    METADATA_VERSION,
)
from anabranch.core.wire.messages.broker_registration import Feature
from anabranch.core.wire.messages.update_features import FeatureUpdateKey, UpdateFeaturesRequest
from anabranch.core.wire.own_records import RECORDS_FEATURE, PlacementCursorRecord

UPGRADE, SAFE, UNSAFE = 1, 2, 3
BROKER = 4
MINIMUM = "min.insync.replicas"
FAILED = "The update failed for all features since the following feature had an error: "


def update(world: World, *updates: tuple[str, int, int], version: int = 2, **changes: Any) -> Any:
    """The error code and text of an update; its text comes without what stands before each."""
    keys = [
        FeatureUpdateKey(feature=name, max_version_level=level, upgrade_type=kind)
        for name, level, kind in updates
    ]
    answer = world.ask(UpdateFeaturesRequest(feature_updates=keys, **changes), version)
    return answer.error_code, (answer.error_message or "").removeprefix(FAILED)


def refused(world: World, *updates: tuple[str, int, int]) -> str:
    before = world.image
    code, text = update(world, *updates)
    assert code == ErrorCode.INVALID_UPDATE_VERSION and world.image is before
    return str(text)


def test_a_new_cluster_has_kafkas_levels_and_ours() -> None:
    assert dict(World().image.features) == dict(BOOTSTRAP_LEVELS)


def test_a_level_goes_up_and_the_log_says_so() -> None:
    world = World()
    world.start(1)
    world.level("group.version", 0)
    assert update(world, ("group.version", 1, UPGRADE)) == (0, "")
    assert world.image.features["group.version"] == 1
    assert world.sentences("FEATURE_CHANGED") == ["group.version goes from level 0 to 1"]
    assert world.replayed() == world.image


def test_the_level_that_is_there_is_written_once() -> None:
    world = World()
    before = world.image
    assert update(world, ("group.version", 1, UPGRADE), (METADATA_VERSION, 27, SAFE)) == (0, "")
    assert world.image is before


def test_validation_alone_changes_nothing() -> None:
    world = World()
    world.level("group.version", 0)
    before = world.image
    assert update(world, ("group.version", 1, UPGRADE), validate_only=True) == (0, "")
    assert world.image is before and world.reasons == []
    assert update(world, ("group.version", 2, UPGRADE), validate_only=True)[0] != 0


def test_all_updates_are_done_or_none() -> None:
    world = World()
    world.level("group.version", 0)
    text = refused(world, ("group.version", 1, UPGRADE), ("transaction.version", 9, UPGRADE))
    assert "transaction.version" in text
    assert "group.version" not in world.image.features


@pytest.mark.parametrize(
    ("name", "level", "kind", "text"),
    [
        ("group.version", 2, UPGRADE, "Local controller 1 only supports versions 0-1"),
        ("no.such", 1, UPGRADE, "Local controller 1 does not support this feature."),
        ("group.version", -1, SAFE, "A feature version cannot be less than 0."),
        ("group.version", 0, 9, "The controller does not support the given upgrade type."),
        (
            "group.version", 0, UPGRADE,
            "Can't downgrade the version of this feature without setting the upgrade type to "
            "either safe or unsafe downgrade.",
        ),
        ("metadata.version", 0, SAFE, "Local controller 1 only supports versions 7-27"),
        ("kraft.version", 1, UPGRADE, "Metadata is committed in a store, not by a quorum."),
    ],
)  # fmt: skip
def test_each_refusal_has_its_text(name: str, level: int, kind: int, text: str) -> None:
    said = refused(World(), (name, level, kind))
    assert said == f"Invalid update version {level} for feature {name}. {text}"


def test_nothing_is_downgraded_to_a_newer_level() -> None:
    world = World()
    world.level("group.version", 0)
    said = refused(world, ("group.version", 1, SAFE))
    assert said.endswith("Can't downgrade to a newer version.")


def test_a_level_that_a_registered_broker_lacks_is_refused() -> None:
    """Also when the broker is fenced: it may come back."""
    world = World()
    world.level("transaction.version", 1)
    levels = {**BOOTSTRAP_LEVELS, "transaction.version": 1}
    features = [
        Feature(name=name, min_supported_version=0, max_supported_version=level)
        for name, level in levels.items()
    ]
    assert world.register(7, features=features).error_code == 0
    said = refused(world, ("transaction.version", 2, UPGRADE))
    assert said.endswith("Broker 7 only supports versions 0-1")


def test_a_downgrade_across_no_change_of_the_records_is_allowed() -> None:
    world = World()
    assert update(world, (METADATA_VERSION, 23, SAFE)) == (0, "")
    assert world.image.features[METADATA_VERSION] == 23
    assert update(world, (METADATA_VERSION, 27, UPGRADE)) == (0, "")


def test_a_downgrade_that_might_lose_metadata_is_refused() -> None:
    assert refused(World(), (METADATA_VERSION, 22, SAFE)) == (
        "Invalid metadata.version 22. Refusing to perform the requested downgrade because it "
        "might delete metadata information."
    )
    assert refused(World(), (METADATA_VERSION, 22, UNSAFE)) == (
        "Invalid metadata.version 22. Unsafe metadata downgrade is not supported in this version."
    )


def test_version_0_says_only_whether_a_downgrade_is_allowed_and_gets_a_row_a_feature() -> None:
    world = World()
    for allowed, code in ((False, ErrorCode.INVALID_UPDATE_VERSION), (True, 0)):
        key = FeatureUpdateKey(feature="group.version", max_version_level=0)
        key.allow_downgrade = allowed
        answer = world.ask(UpdateFeaturesRequest(feature_updates=[key]), 0)
        assert answer.error_code == code
    assert [(each.feature, each.error_code) for each in answer.results] == [("group.version", 0)]


# What goes with a level.


def test_turning_elr_on_writes_the_clusters_minimum_and_removes_those_of_brokers() -> None:
    world = World(settings={MINIMUM: "2"})
    world.start(1, 2)
    world.level(ELR_VERSION, 0)
    assert alter_config(world, BROKER, "", MINIMUM, None, 1) == (0, None)
    assert alter_config(world, BROKER, "2", MINIMUM, "1") == (0, None)
    assert update(world, (ELR_VERSION, 1, UPGRADE)) == (0, "")
    assert world.image.config(BROKER, "")[MINIMUM] == "2"
    assert MINIMUM not in world.image.config(BROKER, "2")


def test_turning_elr_on_keeps_a_minimum_that_is_written_down() -> None:
    world = World(settings={MINIMUM: "2"})
    world.level(ELR_VERSION, 0)
    assert update(world, (ELR_VERSION, 1, UPGRADE)) == (0, "")
    assert world.image.config(BROKER, "")[MINIMUM] == "1"


def test_elr_needs_the_records_that_carry_it() -> None:
    world = World()
    world.level(ELR_VERSION, 0)
    world.level(METADATA_VERSION, 22)
    said = refused(world, (ELR_VERSION, 1, UPGRADE))
    assert said.endswith(
        "eligible.leader.replicas.version could not be set to 1 because it depends on "
        "metadata.version level 23"
    )
    both = ((ELR_VERSION, 1, UPGRADE), (METADATA_VERSION, 27, UPGRADE))
    assert update(world, *both) == (0, "")


def test_turning_elr_off_clears_the_sets_and_is_refused_while_a_partition_lives_on_them() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1, 2], min_insync_replicas="2")
    world.beat(2, want_fence=True)
    world.beat(1, want_fence=True)
    assert world.partition("t").isr == ()
    assert "might delete metadata" in refused(world, (ELR_VERSION, 0, SAFE))
    world.beat(1)
    assert (world.partition("t").isr, world.partition("t").elr) == ((1,), (2,))
    assert update(world, (ELR_VERSION, 0, SAFE)) == (0, "")
    assert (world.partition("t").isr, world.partition("t").elr) == ((1,), ())


def test_the_level_of_own_records_goes_up_with_the_first_that_needs_it() -> None:
    """Until then Kafka can open what a node leaves behind; it is not lowered while one is in
    use."""
    world = World()
    world.start(1, 2)
    world.create("t", [1])
    assert RECORDS_FEATURE not in world.image.features
    world.commit_result(set_observers(world.controller.state, "t", 0, [2]))
    assert world.image.features[RECORDS_FEATURE] == 1
    assert "might delete metadata" in refused(world, (RECORDS_FEATURE, 0, SAFE))
    world.commit_result(set_observers(world.controller.state, "t", 0, []))
    assert update(world, (RECORDS_FEATURE, 0, SAFE)) == (0, "")
    assert world.replayed() == world.image


def test_own_records_go_down_as_far_as_what_is_in_use_allows() -> None:
    world = World()
    world.start(1, 2)
    world.create("t", [1])
    world.commit([PlacementCursorRecord(cursor=5)])
    assert world.image.features[RECORDS_FEATURE] == 2
    assert update(world, (RECORDS_FEATURE, 3, UPGRADE)) == (0, "")
    assert "might delete metadata" in refused(world, (RECORDS_FEATURE, 1, SAFE))
    assert update(world, (RECORDS_FEATURE, 2, SAFE)) == (0, "")
    assert world.image.placement_cursor == 5
    assert "might delete metadata" in refused(world, (RECORDS_FEATURE, 1, SAFE))


def test_own_records_wait_where_controllers_do_not_say_what_they_read() -> None:
    """Below the level at which controllers register, only a command raises it."""
    world = World()
    world.start(1, 2)
    world.create("t", [1])
    world.level(METADATA_VERSION, CONTROLLERS_SINCE - 1)
    with pytest.raises(ClientFault, match="needs level 1 of anabranch"):
        set_observers(world.controller.state, "t", 0, [2])
    assert update(world, (RECORDS_FEATURE, 1, UPGRADE)) == (0, "")
    set_observers(world.controller.state, "t", 0, [2])


def test_a_broker_that_cannot_read_own_records_keeps_their_level_down_and_is_kept_out() -> None:
    world = World()
    old = [
        Feature(name=name, min_supported_version=0, max_supported_version=level)
        for name, level in BOOTSTRAP_LEVELS.items()
        if name != RECORDS_FEATURE
    ]
    world.level(RECORDS_FEATURE, 1)
    assert world.register(1, features=old).error_code == ErrorCode.UNSUPPORTED_VERSION
    world.level(RECORDS_FEATURE, 0)
    assert world.register(1, features=old).error_code == 0
    said = refused(world, (RECORDS_FEATURE, 1, UPGRADE))
    assert said.endswith("Broker 1 does not support this feature.")
