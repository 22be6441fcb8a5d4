"""Broken rules of the registration of brokers, of their fencing, and of their folders."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

ASSIGNMENTS = "tests/core/broker/test_directory_assignments.py"
FULL_FOLDERS = "anabranch.core.controller.brokers.full_folders"
HINTS = "anabranch.core.controller.brokers.hints"
HINT_TESTS = "tests/core/controller/test_hints.py"
LEADERS = "tests/core/controller/test_leader_histories.py"
LIFECYCLE = "anabranch.core.controller.brokers.lifecycle"
MEMBERSHIP = "anabranch.core.controller.brokers.membership"
REGISTRATION = "anabranch.core.broker.registration.registration"
REGISTRATION_REQUESTS = "anabranch.core.broker.registration.requests"
ROOM_TESTS = "tests/core/controller/test_room.py"
SUCCESSION = "anabranch.core.controller.brokers.succession"
SUCCESSION_TESTS = "tests/core/controller/test_succession.py"

MUTANTS = (
    Mutant(
        name="fenced-stays-in-sync",
        rule="a fenced broker leaves every ISR (KIP-841)",
        module=MEMBERSHIP,
        old="isr = tuple(member for member in partition.isr if member != broker_id)",
        new="isr = partition.isr",
        seed=0,
        caught_by="M3",
    ),
    Mutant(
        name="crash-keeps-eligibility",
        rule="a broker that comes back after a crash is no longer an eligible leader (KIP-966)",
        module=MEMBERSHIP,
        old="unclean = frozenset((broker_id,)) if self.elr else frozenset()",
        new="unclean = frozenset()",
        seed=1,
        caught_by="L4",
    ),
    Mutant(
        name="stale-epoch-goes-on",
        rule="a broker whose epoch is no longer its own registers again, or stops",
        module=REGISTRATION,
        old="        if event.response.error_code == ErrorCode.STALE_BROKER_EPOCH:\n"
        "            self._look_why()\n            return\n",
        new="",
        seed=1162,
        caught_by="liveness",
    ),
    Mutant(
        name="heartbeat-of-an-older-incarnation-counts",
        rule="a heartbeat counts only for the registered incarnation",
        module=LIFECYCLE,
        old="check_broker_epoch(state.image, request.broker_id, request.broker_epoch)\n"
        "    sessions.heard",
        new="state.image.brokers[request.broker_id]\n    sessions.heard",
        seed=5000000550,
        caught_by="B1",
    ),
    Mutant(
        name="offline-folder-not-told",
        rule="each heartbeat names the folders that failed (KIP-858)",
        module=REGISTRATION_REQUESTS,
        old="offline_log_dirs=failed_directories(identity, standing)",
        new="offline_log_dirs=[]",
        seed=28,
        caught_by="B3",
    ),
    Mutant(
        name="unfenced-before-caught-up",
        rule="a broker is unfenced only after it has read its own registration",
        module=LIFECYCLE,
        old="return BrokerState.UNFENCED if caught_up and not want_fence else BrokerState.FENCED",
        new="return BrokerState.UNFENCED",
        seed=0,
        caught_by="B1",
    ),
    Mutant(
        name="unfenced-before-its-logs-are-open",
        rule="a broker asks to stay fenced until its logs are open",
        module=REGISTRATION_REQUESTS,
        old="want_fence=not wants_in",
        new="want_fence=False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_broker_is_let_in_when_its_logs_are_open_and_it_has_read_its_registration",
    ),
    Mutant(
        name="shutdown-without-waiting",
        rule="a broker stops after the controller has moved its leaderships away",
        module=REGISTRATION,
        old="if may_stop or (event.response.error_code and self._is_counted_out()):",
        new="if True:",
        seed=3000000001,
        caught_by="B2",
    ),
    Mutant(
        name="refusal-taken-for-permission-to-stop",
        rule="a broker that stops does not take a replaced controller's refusal for permission",
        module=REGISTRATION,
        old="(event.response.error_code and self._is_counted_out())",
        new="event.response.error_code",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py::test_the_refusal_of_a_controller_that_was_replaced_is_no_permission_to_stop",
    ),
    Mutant(
        name="copy-takes-the-place-of-the-living",
        rule="a process is refused while the registered one sends heartbeats",
        module=SUCCESSION,
        old="if not sessions.valid(*registered, now_ms) or registered in sessions.gone:",
        new="if True:",
        seed=9,
        caught_by="B4",
    ),
    Mutant(
        name="one-older-folder-sets-all-back",
        rule="only the replicas in an older folder are set back, not those in other folders",
        module=MEMBERSHIP,
        old="directory_of(self.state.partition(key), broker_id) not in elsewhere",
        new="True",
        seed=NO_SCHEDULE,
        caught_by=f"{SUCCESSION_TESTS}::test_only_what_lies_in_an_older_folder_is_set_back",
    ),
    Mutant(
        name="folder-newer-than-the-metadata-counts-as-older",
        rule="a folder with a newer broker epoch than the metadata's is no older copy",
        module=SUCCESSION,
        old="        and folder.broker_epoch <= existing.epoch\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{SUCCESSION_TESTS}::test_a_folder_that_is_newer_than_the_metadata_is_not_older",
    ),
    Mutant(
        name="earlier-heartbeat-lets-a-stopping-broker-in",
        rule="a delayed heartbeat does not unfence a broker that was permitted to stop",
        module=LIFECYCLE,
        old="        or sessions.is_stopping(broker.broker_id, broker.epoch),\n",
        new="        or False,\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_permitted_to_stop.py"
        "::test_no_heartbeat_lets_a_broker_in_that_may_stop",
    ),
    Mutant(
        name="hint-elects-uncleanly",
        rule="a hint alone never permits an unclean election",
        module=MEMBERSHIP,
        old="bool(suspects) and not {*partition.isr, *partition.elr}.isdisjoint(suspects),",
        new="False,",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}::test_whatever_happens_a_clean_leader_has_what_was_acknowledged",
    ),
    Mutant(
        name="hint-is-taken-for-silence",
        rule="a broker fenced by a hint is only suspected until its session has expired",
        module="anabranch.core.controller.brokers.fencing",
        old="sessions.suspect(broker.broker_id, broker.epoch)",
        new="sessions.forget(broker.broker_id, broker.epoch)",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}::test_whatever_happens_a_clean_leader_has_what_was_acknowledged",
    ),
    Mutant(
        name="hint-from-any-listener",
        rule="the controller connects to the listener that other brokers use",
        module=HINTS,
        old="return broker.endpoint(listener) or only",
        new="return broker.endpoints[min(broker.endpoints)]",
        seed=NO_SCHEDULE,
        caught_by=f"{HINT_TESTS}::test_no_living_broker_is_fenced_however_its_connections_break",
    ),
    Mutant(
        name="hint-outweighs-a-heartbeat",
        rule="a heartbeat sent after the connection attempt began cancels the hint",
        module=HINTS,
        old="        if was_heard(sessions, probe):\n            return None\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HINT_TESTS}"
        "::test_a_heartbeat_since_the_dial_began_outweighs_the_hint_however_quickly_it_came",
    ),
    Mutant(
        name="broker-without-folders-stays",
        rule="a broker without a working folder is fenced",
        module=LIFECYCLE,
        old="want_fence=request.want_fence or has_none,",
        new="want_fence=request.want_fence,",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_directories.py"
        "::test_a_broker_of_which_every_folder_failed_is_fenced_and_leads_nothing",
    ),
    Mutant(
        name="copy-displaces-a-living-broker",
        rule="a process on a copied folder does not displace a broker that sends heartbeats",
        module=SUCCESSION,
        old="if sessions.is_out_of_touch(*registered) and _has_its_place(existing, request):",
        new="if _has_its_place(existing, request):",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_succession.py"
        "::test_while_it_sends_heartbeats_nobody_takes_its_place",
    ),
    Mutant(
        name="older-folders-count",
        rule="replicas in folders that are older than the last incarnation do not lead",
        module=SUCCESSION,
        old="and existing.incarnation_id not in folder.incarnation_ids",
        new="and False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_succession.py"
        "::test_older_folders_never_lead_what_may_be_elsewhere",
    ),
    Mutant(
        name="full-disk-keeps-leading",
        rule="a replica without disk space gives up the leadership and the ISR to others that "
        "have space",
        module=FULL_FOLDERS,
        old="    if any(rules.acceptable(each) and each not in empty for each in left):\n"
        "        return left\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_what_a_full_broker_led_is_led_by_others_at_once_and_it_waits_for_no_lag",
    ),
    Mutant(
        name="full-disk-gives-way-to-nobody",
        rule="the last in-sync replica stays in sync even if its disk is full",
        module=FULL_FOLDERS,
        old="if any(rules.acceptable(each) and each not in empty for each in left):",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}"
        "::test_nobody_gives_way_to_nobody_or_to_a_replica_that_may_not_lead",
    ),
    Mutant(
        name="every-folder-is-full-with-one",
        rule="only replicas in the full folder hand over leadership",
        module=FULL_FOLDERS,
        old="if lies_in <= set(full[broker_id]):",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_only_what_lies_in_the_full_folder_moves",
    ),
    Mutant(
        name="older-release-makes-folders-old",
        rule="a process of a release that keeps no account makes no folder older",
        module=SUCCESSION,
        old="if not existing.is_noted:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_succession.py"
        "::test_a_life_of_an_earlier_version_makes_no_folder_older",
    ),
    Mutant(
        name="twin-is-waited-for",
        rule="a node stops if another process holds its id for longer than a session",
        module=REGISTRATION,
        old="elif self._now_ms >= self._twin_limit_ms:",
        new="elif False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_second_process_stops_when_the_first_outlives_a_session",
    ),
    Mutant(
        name="new-controller-gives-no-session",
        rule="a restarted node waits a full session under each new controller",
        module=REGISTRATION,
        old='whole session."""\n        self._twin_limit_ms = NEVER_MS\n',
        new='whole session."""\n',
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_new_controller_gives_a_refused_process_a_whole_session_more",
    ),
    Mutant(
        name="older-connection-is-a-hint",
        rule="a closed connection is no hint if the broker has used a newer one",
        module="anabranch.core.controller.brokers.connections",
        old="            if heard_on == connection\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_liveness_probe.py"
        "::test_an_older_connection_that_ends_says_nothing_of_a_broker",
    ),
    Mutant(
        name="lost-to-all-told",
        rule="a replica that is alone in sync is never reported as lost",
        module="anabranch.core.broker.directory_assignments",
        old="return self._broker.broker_id in partition.isr and len(partition.isr) > 1",
        new="return self._broker.broker_id in partition.isr",
        seed=NO_SCHEDULE,
        caught_by=f"{ASSIGNMENTS}::test_what_nobody_else_is_in_sync_with_is_not_told_to_be_lost",
    ),
    Mutant(
        name="folder-begun-anew-told-at-once",
        rule="a replica that starts over catches up before its folder is reported",
        module="anabranch.core.broker.directory_assignments",
        old="return known in ANYWHERE or placed.found",
        new="return True",
        seed=NO_SCHEDULE,
        caught_by=f"{ASSIGNMENTS}"
        "::test_a_log_that_was_found_elsewhere_is_told_and_one_begun_anew_is_not",
    ),
)
