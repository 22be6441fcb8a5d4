"""Which test of ours checks what each of Kafka's controller tests checks, and what has none.

The list is that of placement-and-leadership 2.9, without placement and reassignment. A name that no
longer exists fails here.
"""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

FOLDER = Path(__file__).parent
WITHOUT: dict[str, str] = {
    "BrokerHeartbeatTrackerTest: +10 ns": "times are whole milliseconds here",
    "ClusterControlManagerTest: testHasOnlineDir": "folders do not fail one by one yet",
    "ReplicationControlManagerTest: testHandleAssignReplicasToDirs, testHandleDirectoriesOffline":
        "folders do not fail one by one yet",
    "ReplicationControlManagerTest: testProcessExpiredBrokerHeartbeat":
        "no request waits in a queue of the controller",
    "ReplicationControlManagerTest: testKRaftClusterDescriber": "a view for Kafka's placers only",
    "PartitionChangeBuilderTest: testLeaderEpochBumpOnIsrShrink": "metadata versions before 3.6",
    "PartitionChangeBuilderTest: *Reassignment*, testLeaderEpochBumpOnNewReplicaSetDisjoint, "
    "testStoppedLeaderIsDemoted…": "replica lists do not change yet",
    "PartitionChangeBuilderTest: testUpdateDirectories": "brokers do not report folders yet",
}  # fmt: skip
"""What is not covered, and why."""

COVERED: dict[str, tuple[str, ...]] = {
    # PartitionChangeBuilderTest
    "testChangeRecordIsNoOp / testNoChange": ("test_a_change_of_nothing_gives_no_record",),
    "testElectLeader": (
        "test_the_table_of_online_and_unclean_elections",
        "test_the_table_of_preferred_elections",
    ),
    "testNoLeaderEpochBumpIfNothingChanged": ("test_a_change_of_nothing_gives_no_record",),
    "testNoLeaderEpochBumpOnIsrShrink": ("test_an_isr_that_shrinks_changes_no_leader_epoch",),
    "testNoLeaderEpochBumpOnIsrExpansion": ("test_an_isr_that_grows_changes_no_leader_epoch",),
    "testNoLeaderEpochBumpOnEmptyTargetIsr": (
        "test_an_empty_target_with_a_living_leader_changes_nothing",
        "test_an_empty_target_keeps_the_isr_so_that_its_last_member_may_lead_again",
    ),
    "testIsrChangeDoesntBumpLeaderEpoch": ("test_an_isr_that_shrinks_changes_no_leader_epoch",),
    "testIsrChangeAndLeaderChange": ("test_isr_and_leader_may_change_in_one_record",),
    "testUncleanLeaderElection / testUncleanSetsLeaderRecoveringState": (
        "test_an_unclean_leader_is_alone_in_sync_and_recovers",
    ),
    "testChangeInLeadershipDoesNotChangeRecoveryState": (
        "test_a_change_of_leaders_does_not_end_the_recovery",
    ),
    "ELR IsrShrinkBelowMinISR": (
        "test_elr_who_leaves_an_isr_below_the_minimum_stays_eligible",
    ),
    "ELR lastKnownElrShouldBePopulatedWhenNoLeader": (
        "test_elr_the_last_known_leader_is_remembered_when_nobody_leads",
    ),
    "ELR IsrExpandAboveMinISR": ("test_elr_is_emptied_when_the_isr_reaches_the_minimum",),
    "ELR IsrAddNewMemberNotInELR": (
        "test_elr_keeps_its_members_when_another_joins_the_isr_below_the_minimum",
    ),
    "ELR RemoveUncleanShutdownReplicasFromElr": (
        "test_elr_who_stopped_without_order_is_not_eligible",
    ),
    "ELR ElrCanBeElected": (
        "test_elr_an_eligible_replica_is_elected_cleanly_when_the_isr_is_empty",
    ),
    "ELR IsrCanShrinkToZero": ("test_elr_the_isr_can_shrink_to_nobody",),
    "ELR ElectLastKnownLeader": (
        "test_elr_the_last_known_leader_leads_when_nobody_is_eligible_and_counts_as_unclean",
    ),
    "ELR ElectLastKnownLeaderShouldFail / NotEligibleLastKnownLeader": (
        "test_elr_the_last_known_leader_does_not_lead",
    ),
    # BrokerHeartbeatManagerTest
    "testHasValidSession": ("test_a_session_belongs_to_a_broker_and_an_epoch",),
    "testMetadataOffsetComparator": ("test_the_lowest_offset_is_that_of_active_brokers",),
    "testUsableBrokerIterator": (
        "test_placement_is_offered_fenced_brokers_and_not_those_that_leave",
    ),
    "testControlledShutdownOffsetIsOnlyUpdatedOnce": (
        "test_the_offset_at_which_a_shutdown_began_is_set_once",
    ),
    "testCalculateNextBrokerState": ("test_the_table_of_states",),
    "testTouchThrowsExceptionUnlessRegistered": (
        "test_a_broker_that_is_not_registered_is_not_heard",
    ),
    # BrokerHeartbeatTrackerTest
    "update": ("test_a_contact_begins_the_session_anew",),
    "expire none, some, all": (
        "test_none_some_or_all_may_be_over_and_the_longest_silence_comes_first",
    ),
    "session known, unknown, of another epoch": (
        "test_a_session_belongs_to_a_broker_and_an_epoch",
    ),
    "boundaries now, after the timeout, clock in the past": (
        "test_a_session_ends_strictly_after_the_timeout",
    ),
    # BrokersToIsrsTest
    "testIterator / testLeadersOnlyIterator / testNoLeader": (
        "test_live_state_is_replay_is_snapshot_plus_tail",
    ),
    # ClusterControlManagerTest
    "testReplay*": ("test_live_state_is_replay_is_snapshot_plus_tail",),
    "testRegistrationWithIncorrectClusterId": ("test_another_cluster_is_refused",),
    "testUnregister": (
        "test_a_broker_that_is_unregistered_leaves_everything_but_replica_lists",
    ),
    "testReRegistrationAndBrokerEpoch": (
        "test_the_same_incarnation_keeps_its_epoch_and_another_gets_a_new_one",
    ),
    "testReRegistrationWithCleanShutdownDetection": (
        "test_a_broker_that_stopped_in_order_stays_eligible",
        "test_a_broker_that_crashed_leaves_the_set_when_it_registers",
    ),
    "testBrokerContactTimesAreUpdatedOnClusterControlActivation": (
        "test_a_new_controller_gives_unfenced_brokers_a_whole_timeout_and_fenced_ones_none",
    ),
    "testDuplicateBrokerRegistrationWithActiveOldBroker / WithInactiveBroker": (
        "test_another_incarnation_is_refused_while_the_session_is_valid",
        "test_an_incarnation_that_never_was_unfenced_has_a_session_too",
    ),
    "testDefaultDir": (
        "test_a_new_replica_lies_in_the_only_directory_or_in_one_its_broker_chooses",
    ),
    "testRegisterWithDuplicateDirectoryId": (
        "test_bad_directories_are_refused",
        "test_a_directory_belongs_to_one_broker",
    ),
    # ReplicationControlManagerTest
    "testRemoveLeaderships / testFenceMultipleBrokers": (
        "test_fencing_one_broker_after_another_moves_leaders_and_keeps_the_last_in_sync",
    ),
    "testShrinkAndExpandIsr": ("test_a_leader_shrinks_and_expands_the_isr",),
    "testInvalidAlterPartitionRequests / HandleUnknownTopicIdOrName / RejectBrokersWithStaleEpoch":
        ("test_each_refusal_has_its_code_and_writes_nothing",
         "test_a_replica_that_was_restarted_is_told_by_its_epoch"),
    "testAlterPartitionShouldReject{FencedBrokers, ShuttingDownBrokers}": (
        "test_a_replica_that_is_fenced_or_leaves_may_not_be_in_sync",
    ),
    "testElectPreferredLeaders": (
        "test_the_preferred_leader_leads_again_once_it_is_in_sync",
        "test_with_no_list_only_what_needs_an_election_is_told",
        "test_what_is_not_there_is_named",
    ),
    "testElectUncleanLeaders_WithoutElr": (
        "test_an_unclean_election_is_for_partitions_that_nobody_leads",
        "test_nobody_is_elected_where_nobody_runs",
    ),
    "testPreferredElectionDoesNotTriggerUncleanElection": (
        "test_a_preferred_election_is_never_unclean_by_itself",
    ),
    "testBalancePartitionLeaders": (
        "test_leaderships_go_back_to_preferred_brokers_after_the_interval",
        "test_a_run_writes_at_most_its_records_and_the_rest_follows_soon",
    ),
    "testMaybeTriggerUncleanLeaderElectionForLeaderlessPartitions (5 sources)": (
        "test_allowing_unclean_elections_elects_nobody_at_once",
        "test_the_file_allows_it_for_topics_that_say_nothing",
        "test_a_topic_that_forbids_it_stays_without_a_leader",
    ),
    "ELR ShrinkAndExpandIsr": (
        "test_a_leader_that_shrinks_and_expands_the_isr_fills_and_empties_the_set",
    ),
    "ELR ShrinkToEmptyIsr / BrokerFence": (
        "test_fencing_moves_replicas_to_the_set_and_the_isr_may_become_empty",
    ),
    "ELR DeleteTopic": ("test_a_deleted_topic_leaves_nothing_in_the_indexes",),
    "ELR EffectiveMinIsr": (
        "test_the_effective_minimum_is_the_topics_else_the_clusters_at_most_the_replicas",
    ),
    "ELR CleanElection": ("test_an_eligible_replica_that_returns_is_elected_cleanly",),
    "ELR UncleanShutdown": (
        "test_a_broker_that_crashed_leaves_the_set_when_it_registers",
        "test_after_a_crash_of_all_the_last_known_leader_leads_and_counts_as_unclean",
    ),
    "testElrsRemovedOnMinIsrUpdate": ("test_a_changed_minimum_clears_the_sets",),
    "testElrsRemovedShouldNotBumpPartitionEpochIfNoChange": (
        "test_clearing_changes_no_partition_that_had_no_set",
    ),
    "testProcessBrokerHeartbeatInControlledShutdown": (
        "test_a_broker_that_leaves_is_led_past_and_asked_to_wait_until_all_have_read_it",
    ),
    "testDuplicateTopicIdReplay": ("test_a_topic_id_is_not_given_twice",),
    # QuorumControllerTest
    "testElrEnabledByDefault": ("test_new_clusters_have_it_on",),
    "testUncleanShutdownElrDisabled": ("test_without_elr_a_crash_is_as_a_stop",),
    "testMinIsrUpdateWithElr": (
        "test_a_single_brokers_minimum_cannot_be_changed",
        "test_the_clusters_minimum_cannot_be_removed",
    ),
}  # fmt: skip


@pytest.fixture(scope="module")
def ours() -> set[str]:
    """The names of all tests of this folder and of the metadata's."""
    return {
        node.name
        for folder in (FOLDER, FOLDER.parent / "metadata")
        for path in folder.glob("test_*.py")
        for node in ast.parse(path.read_text()).body
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize("kafkas", list(COVERED))
def test_kafkas_test_has_its_like_here(ours: set[str], kafkas: str) -> None:
    assert COVERED[kafkas] and set(COVERED[kafkas]) <= ours


def test_what_has_none_has_a_reason() -> None:
    assert all(WITHOUT.values())
