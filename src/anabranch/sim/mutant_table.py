"""The broken rules that the simulator must find: the historic ones of replication, and ours.

The first four are the rules that Kafka's replication had and gave up: truncation to the high
watermark, KIP-101's (the leader answers with an offset alone), KIP-279's (histories are compared
once, fetches not fenced) and the first try of KIP-320 (compared at each fetch, still not fenced).
Each of the others takes back one decision of `core`. `seed` is of a schedule whose checks catch the
mutant and which is clean without it; `python -m anabranch.sim.hunt --record` looks for new ones
when the schedules change.
"""

from __future__ import annotations

from anabranch.sim.diskless_mutants import DATA_PATH
from anabranch.sim.diskless_scheduled import SCHEDULED
from anabranch.sim.managed_mutants import MANAGED
from anabranch.sim.mutants import Mutant
from anabranch.sim.offset_mutants import EXPIRING
from anabranch.sim.storage_mutants import STORAGE
from anabranch.sim.transaction_mutants import SCHEDULED as TRANSACTION_MUTANTS

REPLICA = "anabranch.core.replication.replica"
FOLLOWING = "anabranch.core.replication.following"
IN_SYNC = "anabranch.core.replication.in_sync"
FETCH = "anabranch.core.api.fetch_pass"
HISTORY = "anabranch.core.api.fetch_history"
PRODUCERS = "anabranch.core.log.producers"
ELECTIONS = "anabranch.core.controller.partitions.elections"
MEMBERSHIP = "anabranch.core.controller.brokers.membership"
REPLAY = "anabranch.core.metadata.replay"
REGISTRATION = "anabranch.core.broker.registration.registration"
REGISTRATION_REQUESTS = "anabranch.core.broker.registration.requests"
LIFECYCLE = "anabranch.core.controller.brokers.lifecycle"
SUCCESSION = "anabranch.core.controller.brokers.succession"
SHARD = "anabranch.core.groups.shard"
ANY_SHARD = "anabranch.core.coordination.shard"
MEMBERS = "anabranch.core.groups.members"
COMPACTION = "anabranch.core.log.compaction"

HOSTING = "anabranch.core.broker.hosting.hosting"
HOSTED_LOGS = "anabranch.core.broker.hosting.logs"
HOSTED_FOLDERS = "anabranch.core.broker.hosting.folders"
HOSTED_SYNCS = "anabranch.core.broker.hosting.syncs"
HOSTING_TESTS = "tests/core/broker/test_hosting.py"

TENURE = "anabranch.core.controller.tenure"

DISKLESS_COMMIT = "anabranch.core.diskless.commit"
SQL_TABLES = "anabranch.server.coordinator.sql_tables"
SQLITE_COORDINATOR = "anabranch.server.coordinator.sqlite"
POSTGRES_COORDINATOR = "anabranch.server.coordinator.postgres"
POSTGRES_TABLES = "anabranch.server.coordinator.postgres_tables"
COMMIT_TESTS = "tests/core/diskless/test_commit.py"
COORDINATOR_TESTS = "tests/server/coordinator"

TRANSACTIONS = "anabranch.core.coordination.transactions"
TRANSACTION_TESTS = "tests/core/coordination/transactions"
DROPPED = "tests/core/replication/test_dropped_transactions.py"
LOG_ANY_ORDER = "tests/core/log/test_transactions_any_order.py"
NO_SCHEDULE = -1

MUTANTS = (
    Mutant(
        name="truncate-to-high-watermark",
        rule="a follower cuts its log where histories part, never at its high watermark (KIP-101)",
        module=FOLLOWING,
        old="self._part(truncation_offset(log, diverging.epoch, diverging.end_offset))",
        new="self._part(replica.high_watermark)",
        seed=20,
        caught_by="L6",
    ),
    Mutant(
        name="divergence-by-offset-alone",
        rule="a leader that lacks the follower's epoch says so, whatever the offsets (KIP-279)",
        module=HISTORY,
        old="if epoch < wanted.last_fetched_epoch or end_offset < wanted.fetch_offset:",
        new="if end_offset < wanted.fetch_offset:",
        seed=1878,
        caught_by="L2",
    ),
    Mutant(
        name="aligned-once",
        rule="a follower's history is compared again in every leader epoch (KIP-320)",
        module=FETCH,
        old="            replica.check_epoch(wanted.leader_epoch)\n",
        new="            if wanted.leader_epoch != replica.leader_epoch:\n"
        "                wanted.last_fetched_epoch = -1\n",
        seed=1000012993,
        caught_by="L2",
    ),
    Mutant(
        name="fetch-not-fenced",
        rule="a fetch of another leader epoch is refused, also when histories agree (KIP-320)",
        module=FETCH,
        old="            replica.check_epoch(wanted.leader_epoch)\n",
        new="",
        seed=2000002089,
        caught_by="L6",
    ),
    Mutant(
        name="answer-to-an-older-question",
        rule="an answer counts only while the log still ends where it was asked for",
        module=FOLLOWING,
        old="        if self.sent_offset != log.end_offset:\n",
        new="        if False:\n",
        seed=31,
        caught_by="liveness",
    ),
    Mutant(
        name="pending-member-not-counted",
        rule="a proposed member of the ISR bounds the high watermark at once (KIP-497)",
        module=REPLICA,
        old="members = dict.fromkeys((*isr, *self.left, "
        "*(() if proposal is None else proposal.isr)))",
        new="members = dict.fromkeys((*isr, *self.left))",
        seed=38000000017,
        caught_by="L3",
    ),
    Mutant(
        name="join-below-epoch-start",
        rule="a follower joins the ISR only when its log reaches into this leader's epoch",
        module=IN_SYNC,
        old="follower.end_offset < max(replica.high_watermark, replica.epoch_start_offset)",
        new="follower.end_offset < replica.high_watermark",
        seed=51000000135,
        caught_by="L4",
    ),
    Mutant(
        name="join-below-high-watermark",
        rule="a follower joins the ISR only when it has everything that is committed",
        module=IN_SYNC,
        old="follower.end_offset < max(replica.high_watermark, replica.epoch_start_offset)",
        new="follower.end_offset < 0",
        seed=2,
        caught_by="L4",
    ),
    Mutant(
        name="high-watermark-of-the-leader-alone",
        rule="a record counts when every in-sync replica has it",
        module=REPLICA,
        old="            if follower.end_offset < end:\n",
        new="            if follower.end_offset < 0:\n",
        seed=0,
        caught_by="L3",
    ),
    Mutant(
        name="high-watermark-below-minimum",
        rule="the high watermark waits for min.insync.replicas (KIP-966)",
        module=REPLICA,
        old="if not self.is_leader or not self._is_enough(in_sync):",
        new="if not self.is_leader:",
        seed=7,
        caught_by="L7",
    ),
    Mutant(
        name="committed-before-flushed",
        rule="with flush.messages=1 a record counts when the leader has flushed it",
        module=REPLICA,
        old="end = log.flushed_offset if self.flushed_counts else log.end_offset",
        new="end = log.end_offset",
        seed=5,
        caught_by="L7",
    ),
    Mutant(
        name="follower-believes-beyond-its-end",
        rule="a follower's high watermark is never beyond what it has",
        module=REPLICA,
        old="end = max(min(leader_high_watermark, log.end_offset), log.start_offset)",
        new="end = max(leader_high_watermark, log.start_offset)",
        seed=2,
        caught_by="L1",
    ),
    Mutant(
        name="acknowledged-when-appended",
        rule="acks=all is answered when the high watermark has passed the record",
        module=REPLICA,
        old="if self.high_watermark > ticket.last_offset:",
        new="if self.log.end_offset > ticket.last_offset:",
        seed=0,
        caught_by="L7",
    ),
    Mutant(
        name="acknowledged-across-leaderships",
        rule="what was appended in an earlier leadership is not acknowledged in a later one",
        module=REPLICA,
        old="if self.led_from_epoch != led_from_epoch:",
        new="if False:",
        seed=11000000306,
        caught_by="lost-write",
    ),
    Mutant(
        name="shown-before-committed",
        rule="consumers see nothing at or above the high watermark",
        module=REPLICA,
        old="            return self.last_stable_offset\n        return self.high_watermark",
        new="            return self.last_stable_offset\n        return self.log.end_offset",
        seed=2,
        caught_by="L5",
    ),
    Mutant(
        name="sequence-not-checked",
        rule="a producer's batch follows the one before it",
        module=PRODUCERS,
        old="if first != self.next_sequence(header.producer_id, header.producer_epoch):",
        new="if first < 0:",
        seed=24,
        caught_by="L8",
    ),
    Mutant(
        name="anybody-may-lead",
        rule="only an in-sync replica is elected, unless the topic allows unclean elections",
        module=ELECTIONS,
        old="        if broker_id in candidates and broker_id in holding:",
        new="        if broker_id in holding:",
        seed=1,
        caught_by="L4",
    ),
    Mutant(
        name="an-empty-disk-may-lead",
        rule="a member of the ISR that lost its disk does not lead",
        module=ELECTIONS,
        old="holding = [each for each in usable if each not in rules.emptied or each in joined]",
        new="holding = usable",
        seed=413,
        caught_by="L4",
    ),
    Mutant(
        name="preferred-leads-out-of-sync",
        rule="a preferred leader leads when it is in sync",
        module=ELECTIONS,
        old="may_lead = preferred in partition.isr and preferred not in",
        new="may_lead = preferred not in",
        seed=5,
        caught_by="M3",
    ),
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
        name="leader-epoch-not-raised",
        rule="every election raises the leader epoch",
        module=REPLAY,
        old='changes["leader_epoch"] = old.leader_epoch + 1',
        new='changes["leader_epoch"] = old.leader_epoch',
        seed=1,
        caught_by="M5",
    ),
    Mutant(
        name="commit-acknowledged-early",
        rule="a group's commit is acknowledged when its record is committed",
        module=ANY_SHARD,
        old="while pending and pending[0][0] <= committed:",
        new="while pending:",
        seed=109,
        caught_by="group-commit",
    ),
    Mutant(
        name="commit-acknowledged-across-epochs",
        rule="a deposed coordinator acknowledges no commit, even if its log has it",
        module=ANY_SHARD,
        old="        if not self.is_current:\n            return False\n",
        new="",
        seed=4000000076,
        caught_by="group-commit",
    ),
    Mutant(
        name="observer-counted-in-sync",
        rule="an observer is never in sync",
        module=IN_SYNC,
        old="    if broker_id not in replica.replicas:\n        return False\n",
        new="",
        seed=6,
        caught_by="liveness",
    ),
    Mutant(
        name="compaction-forgets-the-last-value",
        rule="the newest record of a key stays",
        module="anabranch.core.log.record_walk",
        old="if newest_of(key, -1) <= first + delta and",
        new="if newest_of(key, -1) < first + delta and",
        seed=257,
        caught_by="C1",
    ),
    Mutant(
        name="tombstone-removed-at-once",
        rule="a tombstone stays for delete.retention.ms after it was first compacted",
        module=COMPACTION,
        old="not header.has_delete_horizon or self._job.now_ms < header.base_timestamp",
        new="False",
        seed=257,
        caught_by="C2",
    ),
    Mutant(
        name="compacted-above-the-high-watermark",
        rule="only a committed record replaces older records of its key",
        module=COMPACTION,
        old="limit = min(log.last_stable_offset(high_watermark), log.flushed_offset)",
        new="limit = log.flushed_offset",
        seed=19,
        caught_by="C1",
    ),
    Mutant(
        name="expiry-above-the-high-watermark",
        rule="retention drops only what is committed",
        module="anabranch.core.log.shortening",
        old="if end_offset > high_watermark or (segment is log.active and segment.size == 0):",
        new="if segment is log.active and segment.size == 0:",
        seed=1000000019,
        caught_by="L1",
    ),
    Mutant(
        name="moved-away-and-in-sync",
        rule="a replica that a move removes leaves the ISR",
        module="anabranch.core.controller.moves.reassignment",
        old="    return Move(target), remaining\n",
        new="    return Move(target), isr\n",
        seed=221,
        caught_by="M3",
    ),
    Mutant(
        name="cancelled-move-keeps-the-stranger",
        rule="a cancelled move restores the replicas from before it",
        module="anabranch.core.controller.moves.reassignment",
        old="    replicas = Move.of(partition).original\n",
        new="    replicas = partition.replicas\n",
        seed=44,
        caught_by="M3",
    ),
    Mutant(
        name="rolled-segment-left-unsynced",
        rule="a round of syncs covers segments that were rolled since the last one",
        module="anabranch.core.log.syncing",
        old="        targets.append(SegmentSync(segment))\n",
        new="",
        seed=262,
        caught_by="L7",
    ),
    Mutant(
        name="failed-sync-tried-again",
        rule="a sync that failed takes its folder offline and is never tried again",
        module=HOSTED_SYNCS,
        old="            return fault if is_hosted else None\n",
        new="            self._broker.unsynced.add(place)\n            return None\n",
        seed=82,
        caught_by="H2",
    ),
    Mutant(
        name="room-again-not-noticed",
        rule="a full folder takes records again when its disk has room",
        module=HOSTED_FOLDERS,
        old="            for path in sorted(self._partitions.full_folders)\n",
        new="            for path in ()\n",
        seed=19,
        caught_by="liveness",
    ),
    Mutant(
        name="folder-failed-takes-others",
        rule="a folder that fails takes its own partitions offline and no others",
        module=HOSTED_FOLDERS,
        old="[each for each in partitions if each.folder == path]",
        new="list(partitions)",
        seed=11,
        caught_by="H1",
    ),
    Mutant(
        name="log-begun-while-its-folder-is-away",
        rule="no empty log replaces one that may be in an offline folder",
        module=HOSTED_LOGS,
        old="if found is None and not is_new and self._is_missing(assignment, another):",
        new="if False:",
        seed=19,
        caught_by="L7",
    ),
    Mutant(
        name="unknown-append-taken-for-committed",
        rule="after an append of unknown outcome a controller resigns and reads again",
        module=f"{TENURE}.term",
        old="        if not isinstance(event.outcome, Committed):\n            self.resign(",
        new='        if hasattr(event.outcome, "epoch"):\n            self.resign(',
        seed=1000000032,
        caught_by="T2",
    ),
    Mutant(
        name="answers-leave-before-the-commit",
        rule="an answer is sent when everything that it depends on is committed",
        module=f"{TENURE}.decisions",
        old="if controller.log.end_offset >= needed:",
        new="if True:",
        seed=0,
        caught_by="T2",
    ),
    Mutant(
        name="suspended-holder-goes-on",
        rule="a holder whose lease was not confirmed in time resigns before it answers anything",
        module=f"{TENURE}.lease",
        old="return now_ms - self.confirmed_ms > timing.lease_timeout_ms",
        new="return False",
        seed=7,
        caught_by="T1",
    ),
    Mutant(
        name="store-that-went-back-is-written-to",
        rule="a store that is older than what a node has seen ends the node",
        module=f"{TENURE}.takeover",
        old="if first >= self._store_age.seen_end:",
        new="if True:",
        seed=23,
        caught_by="T4",
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
        rule="a heartbeat counts only for the incarnation that is registered",
        module=LIFECYCLE,
        old="check_broker_epoch(state.image, request.broker_id, request.broker_epoch)\n"
        "    sessions.heard",
        new="state.image.brokers[request.broker_id]\n    sessions.heard",
        seed=550,
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
        rule="a broker is unfenced when it has read its own registration and asks for it",
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
        seed=35,
        caught_by="B1",
    ),
    Mutant(
        name="shutdown-without-waiting",
        rule="a broker stops when the controller has taken its leaderships away",
        module=REGISTRATION,
        old="if event.response.should_shut_down or event.response.error_code:",
        new="if True:",
        seed=1,
        caught_by="B2",
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
    *SCHEDULED,
    *EXPIRING,
    *TRANSACTION_MUTANTS,
)

OFFSETS = "anabranch.core.groups.offsets"
OFFSET_FETCH = "anabranch.core.api.p09_offset_fetch"
HELD_UP = "anabranch.core.api.held_up"
IN_SYNC_CHANGES = "anabranch.core.controller.partitions.in_sync_replicas"
LANES = "anabranch.client.lanes"
LANE_TESTS = "tests/client/test_lanes.py"
ISR_TESTS = "tests/core/controller/test_in_sync.py"
ANY_ORDER = "tests/core/groups/test_offsets_any_order.py::test_what_once_went_wrong"
THREE = "tests/core/groups/test_three_coordinators.py"
HELD_UP_ORDER = (
    "tests/core/api/test_held_up_order.py"
    "::test_no_batch_is_taken_before_an_earlier_one_that_was_refused"
)
SUCCESSION_TESTS = "tests/core/controller/test_succession.py"

BEYOND = "tests/core/replication/test_out_of_range.py"
LEADERS = "tests/core/controller/test_leader_histories.py"
HINTS = "anabranch.core.controller.brokers.hints"
HINT_TESTS = "tests/core/controller/test_hints.py"
OVERTAKEN = "tests/core/replication/test_overtaken_metadata.py"
LOG = "anabranch.core.log.state"
RECOVERY = "anabranch.core.log.recovery"
REPLAYED = "anabranch.core.log.producer_replay"
HISTORIES_TESTS = "tests/core/log/test_histories.py"
FORGETTING_TESTS = "tests/core/log/test_forgetting_producers.py"
SYNCING_TESTS = "tests/core/log/test_syncing.py"
UNSURE_TESTS = "tests/core/log/test_unsure.py"
COMPACTED_TESTS = "tests/core/replication/test_compacted_logs.py"
CONTROLLER_ROOM = "anabranch.core.controller.brokers.full_folders"
ROOM_TESTS = "tests/core/controller/test_room.py"

DIRECTED = (
    *DATA_PATH,
    *STORAGE,
    *MANAGED,
    Mutant(
        name="confirmed-lease-ignores-when-it-was-asked",
        rule="the lease's time counts from when its confirmation was asked for",
        module=f"{TENURE}.term",
        old="state.held.confirm(event.asked.asked_ms)",
        new="state.held.confirm(now_ms)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_confirmation_counts_from_when_it_was_asked_for",
    ),
    Mutant(
        name="bytes-of-a-failed-sync-are-believed",
        rule="what a sync failed to store is written again by the next process, and synced then",
        module=RECOVERY,
        old="            if opening.is_unsure and header.next_offset > opening.recovery_point:\n",
        new="            if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{UNSURE_TESTS}::test_what_the_next_process_syncs_is_there_after_a_power_cut",
    ),
    Mutant(
        name="files-of-a-failed-sync-are-believed",
        rule="so are the small files beside the batches",
        module=RECOVERY,
        old="        _write_again_beside(log, names)\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{UNSURE_TESTS}::test_what_the_next_process_syncs_is_there_after_a_power_cut",
    ),
    Mutant(
        name="sync-that-hangs-is-believed",
        rule="a sync that takes long leaves the mark of one that failed",
        module="anabranch.server.flush",
        old="run_in_executor(None, leave_mark, log)",
        new="run_in_executor(None, str, log)",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_flush.py"
        "::test_a_round_that_takes_long_leaves_the_mark_of_one_that_fails",
    ),
    Mutant(
        name="cut-that-was-not-synced-is-believed",
        rule="a failed sync outside of rounds also leaves a mark",
        module="anabranch.core.log.unsure",
        old="        leave_mark(log)\n        raise\n\n\nclass Rewriting",
        new="        raise\n\n\nclass Rewriting",
        seed=NO_SCHEDULE,
        caught_by=f"{UNSURE_TESTS}::test_a_cut_that_could_not_be_synced_leaves_the_mark",
    ),
    Mutant(
        name="log-without-a-name-adopted",
        rule="a log without a name that was never synced is copied anew where others lead",
        module=HOSTED_LOGS,
        old="        if found is not None and self._may_be_anothers(found, assignment):\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_log_without_a_name_may_be_an_older_topic_s",
    ),
    Mutant(
        name="older-topic-adopted",
        rule="a log of an older topic of the same name is set aside and never opened",
        module=HOSTED_LOGS,
        old="if found is not None and found.topic_id not in (None, topic_id):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_log_of_an_older_topic_is_set_aside_and_never_opened",
    ),
    Mutant(
        name="promises-of-an-older-topic-count",
        rule="what was synced of an older topic's log does not hold up the new one's",
        module=HOSTED_LOGS,
        old="            promised[another.path] = 0\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_a_log_of_an_older_topic_is_set_aside_and_never_opened[True]",
    ),
    Mutant(
        name="moved-log-adopted",
        rule="the log of a replica that moved away is set aside and never opened again",
        module=HOSTED_LOGS,
        old="if not self._partitions.is_placed_here(known):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_replica_that_moved_away_meanwhile_is_set_aside",
    ),
    Mutant(
        name="full-disk-is-final",
        rule="a log that a full disk kept from opening is tried again",
        module=HOSTING,
        old="if self._partitions.roomless and not self._work:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_no_full_folder_holds_up_what_waits_for_another",
    ),
    Mutant(
        name="full-folder-holds-up-others",
        rule="a log that waits for room in one folder delays no log in another",
        module=HOSTED_LOGS,
        old="                        break\n                waiting.pop(place, None)\n",
        new="                        return\n                waiting.pop(place, None)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_no_full_folder_holds_up_what_waits_for_another",
    ),
    Mutant(
        name="expired-sessions-are-served",
        rule="a connection without an authenticated session may only open one",
        module="anabranch.core.broker.gate",
        old="(SessionState.EXPIRED, False): Verdict.CLOSE,",
        new="(SessionState.EXPIRED, False): Verdict.ADMIT,",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_gate.py::test_a_session_opens_expires_and_is_renewed",
    ),
    Mutant(
        name="late-offsets-are-not-told",
        rule="a producer is told the final offsets of its batch",
        module="anabranch.core.api.p00_produce",
        old="if answer.base_offset == UNKNOWN_OFFSET:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_partition.py"
        "::test_a_produce_request_waits_for_offsets_that_come_late",
    ),
    Mutant(
        name="groups-read-in-part-are-served",
        rule="groups whose log could not be read to its end are not served",
        module="anabranch.core.groups.coordinator",
        old="""            else:
                shard.coordinator.loaded(loader, now_ms)""",
        new="""            shard.coordinator.loaded(loader, now_ms)""",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_shard.py"
        "::test_groups_that_are_read_at_once_in_part_are_not_served",
    ),
    Mutant(
        name="acts-end-the-step",
        rule="work that an act at the end of a step creates is done in the same step",
        module="anabranch.core.step",
        old="""            if not (changed or left.ready or faults or unsynced):
                break""",
        new="""            break""",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_step.py::test_what_an_act_leaves_belongs_to_the_same_step",
    ),
    Mutant(
        name="empty-batches-alone",
        rule="a consumer is given no empty batches alone while records follow",
        module="anabranch.core.api.empty_batches",
        old="        if follows >= limit or looked_at > MOST_BYTES_PAST:\n",
        new="        if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_empty_batches.py"
        "::test_a_consumer_is_given_a_record_while_one_follows_and_passes_over_none",
    ),
    Mutant(
        name="store-asks-for-no-room",
        rule="a SQLite store whose volume is full has room made, and tries again",
        module="anabranch.server.metadata_store.sqlite",
        old="            if not self.make_room(fault):\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/server/metadata_store/test_full_volume.py",
    ),
    Mutant(
        name="one-older-folder-sets-all-back",
        rule="only what lies in an older folder is set back, not the broker's other folders",
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
        name="snapshot-of-uncommitted-state",
        rule="a snapshot of the metadata holds only what is committed",
        module=f"{TENURE}.snapshots",
        old="if self._controller.image.next_offset == self._controller.log.end_offset:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_tenure.py"
        "::test_a_snapshot_waits_until_what_was_decided_is_committed",
    ),
    Mutant(
        name="one-cold-range-a-round",
        rule="a fetch names all ranges that are not in memory, and they are brought in together",
        module="anabranch.core.api.fetch_pass",
        old="if len(missing) == MOST_READS:",
        new="if missing:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p01_fetch.py"
        "::test_fifty_cold_partitions_cost_one_round_of_reads",
    ),
    Mutant(
        name="cold-ranges-count-for-nothing",
        rule="cold ranges count against the request's size as if they had been read",
        module="anabranch.core.api.fetch_pass",
        old="at_least_one, left = False, max(0, left - cold.length)",
        new="at_least_one = False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p01_fetch.py"
        "::test_a_round_of_reads_stays_within_what_the_request_wants",
    ),
    Mutant(
        name="out-of-range-by-an-unproven-leader",
        rule="what lies beyond a leader's log is out of range once the controller has confirmed it",
        module=FETCH,
        old="            if offset > replica.end_offset:\n",
        new="            if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{BEYOND}::test_a_deposed_leader_says_that_it_does_not_lead",
    ),
    Mutant(
        name="unknown-epoch-by-an-unproven-leader",
        rule="an epoch newer than a leader's is unknown once the controller has confirmed it",
        module="anabranch.core.api.p23_offset_for_leader_epoch",
        old="is_beyond = found.may_be_deposed and partition.leader_epoch > found.leader_epoch",
        new="is_beyond = False",
        seed=NO_SCHEDULE,
        caught_by=f"{BEYOND}::test_a_deposed_leader_does_not_say_that_it_knows_no_such_epoch",
    ),
    Mutant(
        name="leadership-proven-by-an-earlier-answer",
        rule="only a question that left after the request had come proves the leadership",
        module="anabranch.core.replication.asking",
        old="return self._asked + 1",
        new="return self._asked",
        seed=NO_SCHEDULE,
        caught_by=f"{BEYOND}::test_an_answer_to_an_earlier_question_proves_nothing",
    ),
    Mutant(
        name="join-with-what-the-leader-deleted",
        rule="a follower joins only when it has dropped what the leader has deleted",
        module=IN_SYNC,
        old="if UNKNOWN_OFFSET != follower.start_offset < replica.log.start_offset:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_histories.py"
        "::test_what_was_never_committed_is_not_shown_where_records_were_deleted",
    ),
    Mutant(
        name="own-log-start-not-told",
        rule="a follower tells its leader each start of its log, also one that it moved by itself",
        module="anabranch.core.replication.following",
        old="log.start_offset != self.sent_start",
        new="log.start_offset != answer.log_start_offset",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_records.py"
        "::test_a_follower_that_had_dropped_them_by_itself_says_so",
    ),
    Mutant(
        name="earlier-heartbeat-lets-a-stopping-broker-in",
        rule="a broker that was permitted to stop is let in by no earlier heartbeat",
        module=LIFECYCLE,
        old="        or sessions.is_stopping(broker.broker_id, broker.epoch),\n",
        new="        or False,\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_permitted_to_stop.py"
        "::test_no_heartbeat_lets_a_broker_in_that_may_stop",
    ),
    Mutant(
        name="refilled-replica-passed-over",
        rule="an emptied replica may lead from the change by which it joins the ISR",
        module=ELECTIONS,
        old="holding = [each for each in usable if each not in rules.emptied or each in joined]",
        new="holding = [each for each in usable if each not in rules.emptied]",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}"
        "::test_a_wiped_replica_that_was_filled_again_leads_when_a_move_leaves_it_alone",
    ),
    Mutant(
        name="added-replica-leads-empty",
        rule="a replica that a move adds leads uncleanly only when an operator asks for it",
        module=ELECTIONS,
        old="chosen = [each for each in last_resort if each not in added]",
        new="chosen = [*last_resort]",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}"
        "::test_a_replica_that_comes_does_not_lead_while_those_that_have_the_records_are_down",
    ),
    Mutant(
        name="cancel-puts-the-first-in-sync",
        rule="cancelling a move adds no replica to the ISR",
        module="anabranch.core.controller.moves.reassignment",
        old="isr = _without(partition.isr, partition.adding)",
        new="isr = _without(partition.isr, partition.adding) or replicas[:1]",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}"
        "::test_a_move_taken_back_to_a_replica_out_of_sync_is_an_unclean_election",
    ),
    Mutant(
        name="cancel-leaves-no-leader",
        rule="a move is not cancelled if none of the replicas from before it may lead",
        module="anabranch.core.controller.moves.requests",
        old="if leader < 0 and (may_lose or partition.leader >= 0):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{LEADERS}::test_a_move_is_not_taken_back_to_replicas_that_are_all_dead",
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
        rule="a broker that a hint fenced is only suspected until it was silent for a session",
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
        rule="a heartbeat after the connection attempt began cancels the hint",
        module=HINTS,
        old="        if was_heard(sessions, probe):\n            return None\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HINT_TESTS}"
        "::test_a_heartbeat_since_the_dial_began_outweighs_the_hint_however_quickly_it_came",
    ),
    Mutant(
        name="older-connection-is-a-hint",
        rule="the end of a connection is no hint if the broker has used a newer one",
        module="anabranch.server.roles",
        old="if heard_on == connection_id and self.shell is not None:",
        new="if self.shell is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_dialling.py"
        "::test_an_older_connection_that_ends_says_nothing_of_a_broker",
    ),
    Mutant(
        name="join-from-a-failed-folder",
        rule="a replica whose folder failed in its broker's present life does not join the ISR",
        module=IN_SYNC_CHANGES,
        old="    _check_folders(image, sessions, partition, wanted)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_directories.py"
        "::test_a_fetch_from_before_its_folder_failed_brings_no_replica_back_in_sync",
    ),
    Mutant(
        name="broker-without-folders-stays",
        rule="a broker of which no folder works is fenced",
        module=LIFECYCLE,
        old="want_fence=request.want_fence or has_none,",
        new="want_fence=request.want_fence,",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_directories.py"
        "::test_a_broker_of_which_every_folder_failed_is_fenced_and_leads_nothing",
    ),
    Mutant(
        name="deleted-tail-keeps-its-producers",
        rule="a log that the leader has deleted whole keeps no producers of an uncommitted tail",
        module=FOLLOWING,
        old="            self._begin_at(log.end_offset)\n        if answer.records:\n",
        new="            pass\n        if answer.records:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_deleted_histories.py"
        "::test_a_producer_of_what_was_never_committed_is_unknown_where_records_were_deleted",
    ),
    Mutant(
        name="start-that-does-not-follow",
        rule="a follower's log start follows its leader's, so that it may join",
        module=REPLICA,
        old="        if log.start_offset < leader_start_offset <= log.end_offset:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcw]",
    ),
    Mutant(
        name="out-of-range-follower-waits",
        rule="a follower that its leader's log has left behind begins anew",
        module=FOLLOWING,
        old="        self._begin_at(answer.log_start_offset)\n        return Next.FETCH",
        new="        return Next.LATER",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcw]",
    ),
    Mutant(
        name="cut-keeps-the-producers-of-its-tail",
        rule="a cut forgets the producers and transactions of what it drops",
        module="anabranch.core.log.shortening",
        old="    _find_producers(log, segment)\n\n\ndef _find",
        new="\n\ndef _find",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcw]",
    ),
    Mutant(
        name="dropped-log-keeps-its-transactions",
        rule="a log that begins anew has no open transaction",
        module="anabranch.core.log.shortening",
        old="    log.producers = ProducerStates(log.producers.now_ms)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wca]",
    ),
    Mutant(
        name="dropped-log-keeps-its-snapshots",
        rule="nor do its snapshots tell the next process of one",
        module="anabranch.core.log.shortening",
        old="    _drop_snapshots(log, lambda _taken: True)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcDo]",
    ),
    Mutant(
        name="answer-drops-an-eligible-member",
        rule="a replica that an answer removes bounds the high watermark until metadata shows it",
        module=REPLICA,
        old="self.left += tuple(each for each in self.in_sync_replicas if each not in isr)",
        new="self.left = ()",
        seed=NO_SCHEDULE,
        caught_by=f"{OVERTAKEN}"
        "::test_who_may_be_elected_has_all_that_counts_whatever_the_leader_was_told",
    ),
    Mutant(
        name="answer-fills-the-minimum",
        rule="a replica that joins counts for the minimum when the metadata shows it",
        module=REPLICA,
        old="in_sync = min(self.told_count, len(self.in_sync_replicas))",
        new="in_sync = len(self.in_sync_replicas)",
        seed=NO_SCHEDULE,
        caught_by=f"{OVERTAKEN}"
        "::test_a_factor_that_grows_with_a_join_asks_for_more_before_the_leader_hears_of_it",
    ),
    Mutant(
        name="stale-change-of-the-isr",
        rule="a change of the ISR that is based on an older state is refused",
        module=IN_SYNC_CHANGES,
        old="if wanted.partition_epoch < partition.partition_epoch:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{ISR_TESTS}::test_a_change_that_stands_on_an_older_state_is_refused",
    ),
    Mutant(
        name="change-by-a-former-leader",
        rule="only the leader of the present epoch changes the ISR",
        module=IN_SYNC_CHANGES,
        old="if wanted.leader_epoch < partition.leader_epoch:\n"
        "        raise ClientFault(ErrorCode.FENCED_LEADER_EPOCH)\n"
        "    if broker_id != partition.leader:",
        new="if broker_id not in partition.replicas:",
        seed=NO_SCHEDULE,
        caught_by=f"{ISR_TESTS}::test_each_refusal_has_its_code_and_writes_nothing",
    ),
    Mutant(
        name="join-of-an-earlier-life",
        rule="a follower joins as the broker epoch that it fetched with (KIP-903)",
        module=IN_SYNC_CHANGES,
        old="if broker is None or not broker.active or epoch not in (ANY_EPOCH, broker.epoch):",
        new="if broker is None or not broker.active:",
        seed=NO_SCHEDULE,
        caught_by=f"{ISR_TESTS}::test_a_replica_that_was_restarted_is_told_by_its_epoch",
    ),
    Mutant(
        name="progress-of-an-earlier-epoch",
        rule="a follower's progress under an earlier leader does not count",
        module=REPLICA,
        old="        if new_epoch:\n            self.followers = {}\n",
        new="        if new_epoch:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_in_sync.py"
        "::test_what_a_follower_had_under_another_leader_counts_for_nothing",
    ),
    Mutant(
        name="leads-by-old-metadata",
        rule="a process leads nothing by metadata that does not show its registration",
        module="anabranch.core.replication.partitions",
        old="is_known = own is not None and own.epoch == broker_epoch",
        new="is_known = True",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_partitions.py"
        "::test_a_process_leads_nothing_by_metadata_that_does_not_know_it",
    ),
    Mutant(
        name="expiry-overlooks-commits-in-flight",
        rule="an offset that a commit in flight is about to replace does not expire",
        module=OFFSETS,
        old="        if place not in under_way\n        and (",
        new="        if (",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="offset-of-an-earlier-topic",
        rule="an offset is returned only for the topic id that it was committed for",
        module=OFFSETS,
        old="return committed.topic_id == topic_id != ZERO_TOPIC_ID",
        new="return True",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="topic-by-name-when-read",
        rule="an offset that is read from the log belongs to the topic id in its record",
        module="anabranch.core.groups.loading",
        old="            if committed.topic_id == ZERO_TOPIC_ID:\n",
        new="            if committed:\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="offset-deleted-and-committed",
        rule="a deletion covers the commits that were written before it",
        module=OFFSETS,
        old="or (topic, partition) in under_way",
        new="or False",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="group-deleted-and-committed",
        rule="deleting a group also deletes its offsets whose commits are in flight",
        module=OFFSETS,
        old="places = list(dict.fromkeys([*_places(group), *under_way]))",
        new="places = _places(group)",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="deletion-from-a-forgotten-group",
        rule="a deletion applies to the group that has the id when the deletion is committed",
        module=OFFSETS,
        old="    def effect(_now_ms: int) -> None:\n        _drop(coordinator, group_id, places)\n",
        new="    group = coordinator.groups.get(group_id)\n"
        "\n"
        "    def effect(_now_ms: int) -> None:\n"
        "        if coordinator.groups.get(group_id) is group:\n"
        "            _drop(coordinator, group_id, places)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="no-offset-without-proof",
        rule="a coordinator proves its role before it says that there is no offset to delete",
        module=OFFSETS,
        old="        group.shard.prove(done, now_ms)\n",
        new="        done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="no-group-without-proof",
        rule="a coordinator proves its role before it says that there is no group to delete",
        module="anabranch.core.api.p42_delete_groups",
        old="            shard.prove(done, now_ms)\n",
        new="            done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="no-offsets-of-no-group-without-proof",
        rule="the same for the offsets of a group that does not exist",
        module="anabranch.core.api.p47_offset_delete",
        old="            shard.prove(done, now_ms)\n",
        new="            done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=ANY_ORDER,
    ),
    Mutant(
        name="generation-told-from-memory",
        rule="a coordinator proves its role before it tells a member its generation",
        module=MEMBERS,
        old="group.shard.write([nothing_said(group.group_id, now_ms)], now_ms, tell)",
        new="tell(now_ms)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_shard.py"
        "::test_a_generation_that_was_read_above_the_high_watermark_is_told_once_it_is_committed",
    ),
    Mutant(
        name="offset-told-from-memory",
        rule="a coordinator proves its role before it returns offsets",
        module=OFFSET_FETCH,
        old="    shard.prove(done, now_ms)\n",
        new="    done.give(ErrorCode.NONE)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{THREE}::test_no_fetch_tells_less_than_was_acknowledged_before",
    ),
    Mutant(
        name="offset-told-unsettled",
        rule="a coordinator that is alone in sync waits until all that it has read is committed",
        module=SHARD,
        old="if replica.is_alone and self.is_settled:",
        new="if replica.is_alone:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_offsets.py"
        "::test_alone_in_sync_a_new_coordinator_waits_until_what_it_read_is_flushed",
    ),
    Mutant(
        name="proof-of-an-earlier-record",
        rule="only a record that is written after the request proves the role",
        module=SHARD,
        old="        if not self._is_proving:\n",
        new="        if self._is_proving:\n"
        "            end = self._pending[-1][0]\n"
        "            self._pending.append((end, lambda _now_ms: answer.give(ErrorCode.NONE)))\n"
        "        else:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{THREE}::test_no_fetch_tells_less_than_was_acknowledged_before",
    ),
    Mutant(
        name="held-up-never-refuses",
        rule="no batch after a refused one is accepted before it",
        module=HELD_UP,
        old="held.is_awaited(now_ms) and is_behind(sequence, held.sequence):",
        new="False:",
        seed=NO_SCHEDULE,
        caught_by=HELD_UP_ORDER,
    ),
    Mutant(
        name="held-up-one-epoch-at-a-time",
        rule="what one epoch of a producer lacks is remembered whatever happens in another",
        module=HELD_UP,
        old="            self.first.pop(key, None)\n",
        new="            for each in [each for each in self.first if each[:2] == key[:2]]:\n"
        "                del self.first[each]\n",
        seed=NO_SCHEDULE,
        caught_by=HELD_UP_ORDER,
    ),
    Mutant(
        name="fenced-epoch-held-up",
        rule="a batch of a fenced producer epoch is not held up",
        module=PRODUCERS,
        old="        if producer.epoch > epoch:\n            return True\n",
        new="        if producer.epoch > epoch:\n            return False\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_held_up.py::test_what_a_newer_epoch_has_fenced_does_not_wait",
    ),
    Mutant(
        name="recovery-forgets-epochs",
        rule="recovery keeps the leader epochs that are known where the batches agree",
        module=RECOVERY,
        old="    if not epochs_known:\n        _rebuild_epochs(log, log.segments[:first])",
        new="    if epochs_known:\n"
        "        log.epochs.cut_end(base_offset)\n"
        "    else:\n"
        "        _rebuild_epochs(log, log.segments[:first])",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}::test_the_table_of_epochs_outlives_batches_that_kafka_took",
    ),
    Mutant(
        name="older-table-outlives-the-batches",
        rule="the batches override a table of epochs that is older than the log",
        module="anabranch.core.log.epochs",
        old="if epoch < 0 or epoch == self.epoch_of(offset):",
        new="if epoch <= self.latest:",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}::test_a_table_older_than_the_log_gives_way_to_the_batches",
    ),
    Mutant(
        name="gap-at-the-start-has-no-epoch",
        rule="what compaction removed at a log's start belonged to the epoch of the next batch",
        module="anabranch.core.log.appending",
        old="assign_epoch(log, epoch, log_start if is_first else offset)",
        new="assign_epoch(log, epoch, offset)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_an_old_leader_is_told_of_it_where_the_begin_of_the_epoch_was_deleted[True-False]",
    ),
    Mutant(
        name="rebuilt-table-begins-behind-a-gap",
        rule="a rebuilt epoch table gives a gap at the log's start to the epoch behind it",
        module=RECOVERY,
        old="        if not epochs_known:\n            log.epochs.reach_back(log.start_offset)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}"
        "::test_a_lost_table_of_epochs_keeps_no_more_of_a_replica_than_the_table[7]",
    ),
    Mutant(
        name="settings-before-states",
        rule="an image's settings and its states reach a replica in one piece",
        module=HOSTING,
        old="        for replica, state in updates:\n",
        new="        for each in reconfigured:\n"
        "            self._configure(each, image)\n"
        "            each.advance()\n"
        "        for replica, state in updates:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_settings_with_states.py"
        "::test_one_image_alone_raises_a_high_watermark[old17-new17]",
    ),
    Mutant(
        name="log-before-the-leaders-start-counts",
        rule="a log that ends where its leader's begins has nothing that counts",
        module=FOLLOWING,
        old="if log.end_offset == answer.log_start_offset:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_an_old_leader_is_told_of_it_where_the_begin_of_the_epoch_was_deleted[False-True]",
    ),
    Mutant(
        name="compaction-takes-where-an-epoch-began",
        rule="compaction keeps the first batch of each leader epoch",
        module=COMPACTION,
        old="self._stays = begins_epoch or left == 0 or self._is_last_word(header)",
        new="self._stays = left == 0 or self._is_last_word(header)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_an_old_leader_is_told_of_it_by_one_who_copied_a_compacted_log",
    ),
    Mutant(
        name="compacted-log-ends-in-nothing",
        rule="compaction keeps the last batch of a pass",
        module=COMPACTION,
        old="self._stays = begins_epoch or left == 0 or self._is_last_word(header)",
        new="self._stays = begins_epoch or self._is_last_word(header)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_a_replica_of_a_log_that_ends_in_a_tombstone_gets_in_sync",
    ),
    Mutant(
        name="hole-taken-for-compaction",
        rule="a hole between segments that were never synced is the log's end",
        module=RECOVERY,
        old="return segment.base_offset > compacted_upto and left_out < FAR_OFFSETS",
        new="return segment.base_offset > compacted_upto and not log.config.compacted",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}"
        "::test_epochs_end_where_they_ended_and_every_reader_comes_to_the_end",
    ),
    Mutant(
        name="compacted-log-is-cut",
        rule="a compacted log that loses committed records begins anew",
        module=FOLLOWING,
        old="if loses_committed and may_have_holes(log, offset):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}::test_a_cut_into_what_was_compacted_leaves_no_key_out",
    ),
    Mutant(
        name="producers-expire-by-their-records",
        rule="a producer is forgotten by when it last wrote",
        module=PRODUCERS,
        old="and now_ms - producer.last_written_ms >= expiration_ms",
        new="and now_ms - producer.last_timestamp >= expiration_ms",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="restart-forgets-when-producers-wrote",
        rule="a snapshot says when a producer wrote",
        module="anabranch.core.log.producer_snapshot",
        old="producer.last_written_ms,\n",
        new="producer.last_timestamp,\n",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="retries-known-by-record-time",
        rule="a producer that wrote recently may retry, whatever timestamps its records have",
        module=REPLAYED,
        old="newest_ms = max((each.last_written_ms for each in states), default=0)",
        new="newest_ms = max((each.last_timestamp for each in states), default=0)",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="retries-known-in-one-segment",
        rule="batches that may be retried are also looked for in earlier segments",
        module=REPLAYED,
        old="for segment in reversed(log.segments):",
        new="for segment in log.segments[-1:]:",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="synced-claims-what-came-later",
        rule="a round of syncs covers what was there when it began",
        module=LOG,
        old="reached = min(end_offset, self.sync_ceiling)",
        new="reached = self.end_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{SYNCING_TESTS}::test_what_a_round_said_is_there_after_a_power_cut",
    ),
    Mutant(
        name="synced-claims-what-was-cut",
        rule="a round of syncs does not cover what replaced records that were cut during it",
        module=LOG,
        old="reached = min(end_offset, self.sync_ceiling)",
        new="reached = end_offset",
        seed=NO_SCHEDULE,
        caught_by=f"{SYNCING_TESTS}::test_what_a_round_said_is_there_after_a_power_cut",
    ),
    Mutant(
        name="names-safe-when-a-round-begins",
        rule="a file's name counts as synced when the round that covers it has ended",
        module="anabranch.core.log.syncing",
        old="if log.names_unsynced or log.names_syncing:",
        new="if log.names_unsynced:",
        seed=NO_SCHEDULE,
        caught_by=f"{SYNCING_TESTS}::test_what_a_round_said_is_there_after_a_power_cut",
    ),
    Mutant(
        name="empty-batches-have-a-time",
        rule="a batch that compaction left without records is not the newest by time",
        module="anabranch.core.wire.batch",
        old="return self.max_timestamp if self.record_count else -1",
        new="return self.max_timestamp",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_compaction.py"
        "::test_the_newest_record_by_time_is_found_though_newer_ones_are_gone",
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
        name="attempt-not-noted",
        rule="a process notes itself in its folders before it may be registered",
        module="anabranch.core.log.incarnations",
        old="[*ids[:1], *ids[1:][1 - MOST_ATTEMPTS :], incarnation_id]",
        new="[*ids[:1], *ids[1:][1 - MOST_ATTEMPTS :]]",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_the_registered_incarnation_is_known_whenever_processes_die",
    ),
    Mutant(
        name="append-by-who-had-the-epoch-before",
        rule="two controllers with the same epoch from a restored store do not both append",
        module="anabranch.core.metadata.store",
        old="return mine == (present.epoch, present.holder, present.incarnation)",
        new="return mine[0] == present.epoch",
        seed=NO_SCHEDULE,
        caught_by="tests/server/metadata_store/test_any_store.py"
        "::test_no_backup_lets_two_append_under_one_epoch[sqlite]",
    ),
    Mutant(
        name="older-snapshot-loaded",
        rule="a copy of the metadata is never replaced by an older snapshot",
        module="anabranch.core.metadata.store_check",
        old="if min(end_offset, snapshot_end) < copy.end_offset:",
        new="if end_offset < 0:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_store_check.py::test_no_snapshot_takes_a_copy_back",
    ),
    Mutant(
        name="cut-by-older-metadata",
        rule="a log that knows newer leader epochs than the metadata is not cut",
        module=FOLLOWING,
        old="        if replica.is_ahead:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_restored_metadata.py"
        "::test_a_follower_that_knows_newer_epochs_than_the_metadata_keeps_its_log",
    ),
    Mutant(
        name="older-metadata-forgotten",
        rule="nor when the metadata reaches those epochs another time",
        module=REPLICA,
        old="self.is_ahead = self.is_ahead or state.leader_epoch < self.log.epochs.latest",
        new="self.is_ahead = state.leader_epoch < self.log.epochs.latest",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_restored_metadata.py"
        "::test_it_goes_on_to_refuse_when_the_metadata_reaches_its_epochs_another_time",
    ),
    Mutant(
        name="full-disk-keeps-leading",
        rule="a replica without room leaves the leadership and the ISR to those with room",
        module=CONTROLLER_ROOM,
        old="    if any(rules.acceptable(each) and each not in empty for each in left):\n"
        "        return left\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_what_a_full_broker_led_is_led_by_others_at_once_and_it_waits_for_no_lag",
    ),
    Mutant(
        name="full-disk-gives-way-to-nobody",
        rule="the last in-sync replica stays in sync even if its disk is full",
        module=CONTROLLER_ROOM,
        old="if any(rules.acceptable(each) and each not in empty for each in left):",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}"
        "::test_nobody_gives_way_to_nobody_or_to_a_replica_that_may_not_lead",
    ),
    Mutant(
        name="every-folder-is-full-with-one",
        rule="only replicas in the full folder hand over leadership",
        module=CONTROLLER_ROOM,
        old="if lies_in <= set(full[broker_id]):",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_only_what_lies_in_the_full_folder_moves",
    ),
    Mutant(
        name="full-disk-joins",
        rule="a replica without room does not join the ISR",
        module=IN_SYNC_CHANGES,
        old="if not joining.isdisjoint(rules.roomless):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_who_has_no_room_does_not_join",
    ),
    Mutant(
        name="full-leader-keeps-what-joins",
        rule="a leader without room hands over to a replica that joins the ISR",
        module=IN_SYNC_CHANGES,
        old="isr = with_room(named, rules, partition.isr)",
        new="isr = named",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_the_last_one_in_sync_leads_on_for_readers_and_gives_way_to_who_joins",
    ),
    Mutant(
        name="full-disk-is-elected-first",
        rule="of those who may lead cleanly, those with room come first",
        module=ELECTIONS,
        old="for broker_id in sorted(order, key=lambda each: each in rules.roomless):",
        new="for broker_id in order:",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_of_those_who_may_lead_cleanly_those_with_room_come_first",
    ),
    Mutant(
        name="full-disk-is-preferred",
        rule="a preferred leader waits for room",
        module=ELECTIONS,
        old="preferred not in (*rules.emptied, *rules.roomless)",
        new="preferred not in rules.emptied",
        seed=NO_SCHEDULE,
        caught_by=f"{ROOM_TESTS}::test_preferred_leaders_wait_for_room",
    ),
    Mutant(
        name="full-folder-takes-records",
        rule="a full folder takes no records: its reserve is for other writes",
        module="anabranch.core.log.appending",
        old="if log.room.is_full:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_room.py"
        "::test_the_logs_of_a_full_folder_take_no_records_and_are_read",
    ),
    Mutant(
        name="full-follower-copies",
        rule="a follower without room asks for nothing",
        module="anabranch.core.replication.replication",
        old="if log.room.is_full:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_copying.py"
        "::test_a_follower_without_room_asks_for_nothing_until_it_has_room",
    ),
    Mutant(
        name="room-again-at-once",
        rule="a folder has room again when its reserve fits, and the same amount is free",
        module="anabranch.core.log.room",
        old="free_bytes > 2 * self.reserve_bytes",
        new="free_bytes > 0",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_room.py"
        "::test_a_folder_has_no_room_again_where_only_the_reserve_fits",
    ),
    Mutant(
        name="reserve-is-kept",
        rule="on a full disk, what must be written uses the reserve",
        module="anabranch.core.broker.hosting.folders",
        old="                GiveBack(path),\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_room.py"
        "::test_a_full_disk_gives_back_what_is_kept_and_says_so_once",
    ),
    Mutant(
        name="metadata-is-not-tried-again",
        rule="metadata that a full disk refuses is written into the reserve",
        module="anabranch.core.metadata.following.following",
        old="if not event.is_made:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_what_does_not_fit_is_written_into_what_is_given_back",
    ),
    Mutant(
        name="aborted-beyond-its-marker",
        rule="an aborted transaction hides no records after its marker",
        module="anabranch.client.committed",
        old="self._aborting.discard(header.producer_id)",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/client/test_committed.py"
        "::test_what_was_committed_is_seen_and_nothing_else",
    ),
    Mutant(
        name="reads-another-topic-of-the-name",
        rule="a range is read from the topic that it was counted in",
        module="anabranch.client.ranges",
        old="if known and topic.topic_id != self.topic_id:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/client/test_ranges.py::test_another_topic_of_the_same_name_is_not_read",
    ),
    Mutant(
        name="reads-past-what-was-deleted",
        rule="a read of deleted offsets reports them, and where reading can continue",
        module="anabranch.client.ranges",
        old="resume_at = first if first < self.until else None",
        new="resume_at = None",
        seed=NO_SCHEDULE,
        caught_by="tests/client/test_ranges.py::test_deleted_offsets_are_named_with_where_to_go_on",
    ),
    Mutant(
        name="producer-hurries-after-a-failure",
        rule="a producer retries a batch alone, so that the broker still recognises it",
        module=LANES,
        old="self._unsure = max(self._unsure + kept - len(outcomes), kept)",
        new="self._unsure = 0",
        seed=NO_SCHEDULE,
        caught_by=f"{LANE_TESTS}::test_every_record_is_written_once_and_in_order_whatever_goes_wrong",
    ),
    Mutant(
        name="producer-begins-with-several-batches",
        rule="a producer's first batch goes alone: a broker takes any number as the first",
        module=LANES,
        old="self._unsure = 1\n",
        new="self._unsure = 0\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LANE_TESTS}::test_every_record_is_written_once_and_in_order_whatever_goes_wrong",
    ),
    Mutant(
        name="producer-takes-a-duplicate-for-a-failure",
        rule="a batch that a broker has already is acknowledged",
        module=LANES,
        old="if fault.code is not ErrorCode.DUPLICATE_SEQUENCE_NUMBER:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{LANE_TESTS}::test_every_record_is_written_once_and_in_order_whatever_goes_wrong",
    ),
    Mutant(
        name="full-follower-is-asked-for",
        rule="a leader asks for no follower that the metadata knows to have no room",
        module=IN_SYNC,
        old="not broker.active or _lacks_room(replica, broker, image):",
        new="not broker.active:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/replication/test_roomless_followers.py"
        "::test_a_leader_asks_for_no_follower_that_has_no_room_until_it_has",
    ),
    Mutant(
        name="proof-is-waited-for-with-too-few",
        rule="with too few replicas in sync no request waits for a proof",
        module=SHARD,
        old="if not replica.enough_in_sync:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_proofs.py"
        "::test_nobody_waits_for_a_proof_once_too_few_are_in_sync",
    ),
    Mutant(
        name="account-of-an-earlier-life-stays",
        rule="a folder that takes no account of this life keeps none of an earlier one",
        module="anabranch.core.log.incarnations",
        old='self._files.remove(f"{folder}/{INCARNATIONS}")',
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_a_folder_that_takes_no_account_is_not_taken_for_an_older_one",
    ),
    Mutant(
        name="attempt-alone-is-noted",
        rule="a folder without an account names no attempt before it is registered",
        module="anabranch.core.log.incarnations",
        old="            if ids is not None:\n                ids = [*ids[:1], *",
        new="            if (ids := ids or []) is not None:\n                ids = [*ids[:1], *",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_a_folder_that_takes_no_account_is_not_taken_for_an_older_one",
    ),
    Mutant(
        name="unreadable-folder-counts-as-older",
        rule="a life does without a folder whose account its disk does not give",
        module="anabranch.core.log.incarnations",
        old="            self.unreadable.add(folder)\n            return None\n",
        new="            return []\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_life_does_without_a_folder_that_it_cannot_read_and_nothing_in_it_is_older",
    ),
    Mutant(
        name="removed-account-returns",
        rule="a power cut brings no account back that its folder had no room to replace",
        module="anabranch.core.log.incarnations",
        old="self._files.sync_dir(folder)  # a power cut",
        new="pass  # a power cut",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_a_power_cut_brings_no_account_back_that_a_full_disk_has_replaced",
    ),
    Mutant(
        name="holes-are-looked-for-in-any-size",
        rule="the walk that looks for holes is bounded in bytes too",
        module="anabranch.core.log.holes",
        old="if not left or left_bytes <= 0:",
        new="if not left:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_holes.py::test_of_large_batches_fewer_are_looked_at",
    ),
    Mutant(
        name="older-version-s-life-counts",
        rule="a life of a version that notes nothing makes no folder older",
        module=SUCCESSION,
        old="if not existing.is_noted:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/controller/test_succession.py"
        "::test_a_life_of_an_earlier_version_makes_no_folder_older",
    ),
    Mutant(
        name="copy-longer-than-the-store-goes-on",
        rule="a node stops if the store ends before the node's copy of the metadata",
        module="anabranch.core.metadata.store_check",
        old="    if end_offset < copy.end_offset:",
        new="    if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_store_that_went_back_stops_the_node",
    ),
    Mutant(
        name="refusals-of-made-up-topics-take-memory",
        rule="refused batches of topics that do not exist are counted together",
        module="anabranch.core.api.p00_produce",
        old="known = name if broker.image.topic(name) is not None else NO_TOPIC",
        new="known = name",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_produce.py"
        "::test_r19_every_batch_that_is_refused_is_counted",
    ),
    Mutant(
        name="twin-is-waited-for",
        rule="a node whose id another process holds for longer than a session stops",
        module=REGISTRATION,
        old="elif self._now_ms >= self._twin_limit_ms:",
        new="elif False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_second_process_stops_when_the_first_outlives_a_session",
    ),
    Mutant(
        name="new-controller-gives-no-session",
        rule="the wait for an own last process begins anew with each controller",
        module=REGISTRATION,
        old='whole session."""\n        self._twin_limit_ms = FAR_MS\n',
        new='whole session."""\n',
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_new_controller_gives_a_refused_process_a_whole_session_more",
    ),
    Mutant(
        name="own-registration-not-awaited",
        rule="a broker acts on metadata that shows the registration of this very process",
        module="anabranch.core.metadata.following.following",
        old="if own is not None and own.epoch == self._broker_epoch:",
        new="if own is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_broker_acts_from_its_own_registration_on",
    ),
    Mutant(
        name="diverging-epoch-overlooked",
        rule="a log that diverges under a live connection stops the node",
        module="anabranch.core.metadata.following.following",
        old="        if answer.diverging_epoch.epoch >= 0:",
        new="        if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py::test_a_diverging_epoch_stops_the_node",
    ),
    Mutant(
        name="snapshot-tells-only-what-is-there",
        rule="loading a snapshot reports what was deleted meanwhile",
        module="anabranch.core.metadata.following.following",
        old="self._publish(difference(before, self.copy.image))",
        new="self._publish(everything(self.copy.image))",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_loaded_snapshot_tells_of_what_was_deleted",
    ),
    Mutant(
        name="late-batch-after-a-marker",
        rule="a verification from before a marker begins no transaction after it",
        module="anabranch.core.broker.verifying",
        old="if code is ErrorCode.NONE and self.is_overtaken:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py::test_a_marker_overtakes_what_the_coordinator_said_before",
    ),
    Mutant(
        name="marker-overtakes-the-next-transaction",
        rule="a marker that raises the epoch ends no transaction of that epoch",
        module="anabranch.core.broker.verifying",
        old="if found is not None and (found.epoch < epoch or not raises_epoch):",
        new="if found is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_the_marker_of_the_transaction_before_overtakes_nothing",
    ),
    Mutant(
        name="verification-outlives-a-leadership",
        rule="a coordinator that was asked in an earlier leadership is asked again",
        module="anabranch.core.broker.verifying",
        old="or partition.led_from_epoch != self.led_from_epoch:",
        new="or False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py::test_a_new_leadership_asks_again",
    ),
    Mutant(
        name="marker-of-a-deposed-coordinator",
        rule="a marker of an older coordinator epoch is refused",
        module="anabranch.core.log.producers",
        old="if producer is not None and coordinator_epoch < producer.coordinator_epoch:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p27_write_txn_markers.py::test_a_deposed_coordinator_and_an_old_epoch_are_refused",
    ),
    Mutant(
        name="late-marker-ends-the-next-transaction",
        rule="a marker that raises the epoch is written once",
        module="anabranch.core.api.p27_write_txn_markers",
        old="if raises_epoch and producers.has_marker(producer_id, epoch):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p27_write_txn_markers.py::test_a_marker_that_raises_the_epoch_counts_once",
    ),
    Mutant(
        name="aborted-list-lost-at-a-cut",
        rule="a cut keeps the aborted transactions before it",
        module="anabranch.core.log.shortening",
        old="[each for each in aborted_ranges(log, segment) if each.last_offset < end_offset]",
        new="[]",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}"
        "::test_a_reader_sees_what_was_committed_and_stops_at_what_is_open[1]",
    ),
    Mutant(
        name="index-of-what-was-cut",
        rule="what an index on the disk says of a segment that is written to does not count",
        module="anabranch.core.log.lookup",
        old="    if held is not None or segment is log.active:\n",
        new="    if held is not None:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_an_index_on_the_disk_is_not_of_what_was_cut",
    ),
    Mutant(
        name="missing-index-says-that-nothing-was-aborted",
        rule="a cut makes an index that is missing again before it goes by it",
        module="anabranch.core.log.shortening",
        old="in aborted_ranges(log, segment)",
        new="in log.aborted.get(segment.base_offset, ())",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[15]",
    ),
    Mutant(
        name="older-index-left-by-a-full-disk",
        rule="an index that a full disk keeps from being replaced is removed",
        module="anabranch.core.log.rolling",
        old="            forget_beside(log, segment)\n",
        new="            return\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[48]",
    ),
    Mutant(
        name="older-list-of-the-aborted-left-by-a-full-disk",
        rule="so is a list of aborted transactions",
        module="anabranch.core.log.beside",
        old="        log.files.remove(segment.stem + TRANSACTIONS)\n        return\n",
        new="        return\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[211]",
    ),
    Mutant(
        name="snapshot-after-the-indexes",
        rule="an index that a full disk refuses keeps no snapshot of producers from being written",
        module="anabranch.core.log.rolling",
        old="        save_snapshot(log)\n        segment.save_indexes(log.files)\n",
        new="        segment.save_indexes(log.files)\n        save_snapshot(log)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[16]",
    ),
    Mutant(
        name="offsets-forgotten-with-a-marker-that-is-refused",
        rule="offsets wait for their transaction's marker until the log has taken it",
        module="anabranch.core.groups.offsets",
        old="        shard.undecided.restore(producer_id, decided)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_full_disk.py"
        "::test_a_transaction_ends_by_itself_once_there_is_room[5-True]",
    ),
    Mutant(
        name="stable-offset-forgets-at-a-cut",
        rule="a cut leaves the last stable offset before markers that not all have",
        module="anabranch.core.log.producer_replay",
        old="if one[1] < log.end_offset)",
        new="if False)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_transactions_any_order.py"
        "::test_a_reader_sees_what_was_committed_and_stops_at_what_is_open[53]",
    ),
    Mutant(
        name="offsets-before-the-marker",
        rule="offsets of a transaction count once its marker is committed",
        module="anabranch.core.groups.offsets",
        old="        shard.write_batches([marker], now_ms, effect)",
        new="        shard.write_batches([marker], now_ms, lambda _: None)\n        effect(now_ms)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_transactions.py::test_nothing_is_visible_before_the_marker_is_committed",
    ),
    Mutant(
        name="undecided-offsets-stay-behind",
        rule="a coordinator of a group that moved knows the offsets of open transactions",
        module="anabranch.core.groups.coordinator",
        old="        shard.undecided = loader.undecided\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_transactions.py::test_offsets_count_when_the_transaction_is_committed",
    ),
    Mutant(
        name="undecided-offset-replaces-a-later-one",
        rule="an offset that was committed after an undecided one is kept",
        module="anabranch.core.groups.undecided",
        old="of_producer[group_id, place] = self._written, None",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_transactions.py::test_what_comes_after_an_undecided_offset_stands",
    ),
    Mutant(
        name="offset-that-is-decided-later-stands",
        rule="of two offsets of transactions the one that was written later stands",
        module="anabranch.core.groups.undecided",
        old="            if committed and offset is not None and written > stands:",
        new="            if committed and offset is not None:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_transactions.py::test_any_order_is_as_the_log_says[8]",
    ),
    Mutant(
        name="zombie-member-commits",
        rule="a transaction commits offsets of a member in its generation only",
        module="anabranch.core.groups.offsets",
        old="if generation_id < 0 and (group.state is EMPTY or not is_named):",
        new="if group.state is EMPTY or generation_id < group.generation_id:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_transactions.py::test_only_the_member_of_this_generation_may_commit",
    ),
    Mutant(
        name="duplicate-is-written-again",
        rule="a producer's batch that is sent again gets the offset of the first",
        module=DISKLESS_COMMIT,
        old="if written[:2] == sequences:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}::test_five_batches_are_known_and_the_sixth_is_not",
    ),
    Mutant(
        name="gap-is-written",
        rule="a gap in a producer's sequence is refused, and the number that is next is told",
        module=DISKLESS_COMMIT,
        old="if batch.base_sequence != producer.next_sequence:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}"
        "::test_a_gap_tells_what_is_next_and_whether_the_producer_is_known",
    ),
    Mutant(
        name="object-is-committed-after-its-lease",
        rule="no object is committed once its lease is over",
        module=DISKLESS_COMMIT,
        old="if found.state is not ObjectState.PREPARED or now_ms >= found.expires_ms:",
        new="if found.state is not ObjectState.PREPARED:",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_nothing_is_committed_after_its_lease[memory]",
    ),
    Mutant(
        name="earlier-incarnation-commits",
        rule="a broker commits only in its newest epoch",
        module=DISKLESS_COMMIT,
        old="if broker_epoch != commit.broker_epoch:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_an_older_incarnation_of_a_broker_neither_prepares_nor_commits[memory]",
    ),
    Mutant(
        name="offset-is-given-twice",
        rule="each batch moves the end of its partition",
        module=DISKLESS_COMMIT,
        old="log.start_offset, end_offset, log.byte_size + batch.byte_size",
        new="log.start_offset, log.high_watermark, log.byte_size + batch.byte_size",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}::test_verdicts_and_offsets_are_those_of_the_whole_history",
    ),
    Mutant(
        name="apart-is-one-run",
        rule="batches are one run only where their bytes touch",
        module=DISKLESS_COMMIT,
        old="run.byte_offset + run.byte_size == batch.byte_offset\n        and",
        new="True\n        and",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}::test_a_refused_batch_parts_two_runs_and_a_bound_does",
    ),
    Mutant(
        name="outcome-is-not-final",
        rule="an object that was said to be refused is never committed",
        module=DISKLESS_COMMIT,
        old='return Decided(_refused("its lease is over"), ObjectState.REFUSED)',
        new='return Decided(_refused("its lease is over"))',
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_who_asks_about_an_expired_object_refuses_it_for_good[sqlite]",
    ),
    Mutant(
        name="deleted-topic-comes-back",
        rule="an id that was deleted gets no partitions again",
        module=SQL_TABLES,
        old="                    continue\n",
        new="                    pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_a_deleted_topic_is_gone_for_good[sqlite]",
    ),
    Mutant(
        name="object-is-garbage-with-runs",
        rule="an object waits for deletion when its last run is gone",
        module=SQL_TABLES,
        old="AND state = 1 AND live_runs = 0",
        new="AND state = 1",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_an_object_is_garbage_when_its_last_run_is_gone_and_after_grace[sqlite]",
    ),
    Mutant(
        name="missed-changes-are-not-told",
        rule="a listener that may have missed changes is told so",
        module=SQLITE_COORDINATOR,
        old="if found and found[0][0] != after + 1:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_sqlite.py::test_a_listener_that_is_too_far_behind_is_told_so",
    ),
    Mutant(
        name="listener-looks-behind-the-last-change",
        rule="a listener takes the turn of a file once for each page of changes",
        module=SQLITE_COORDINATOR,
        old="is_all = len(found) < PACKETS_READ",
        new="is_all = not found",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}/test_sqlite.py"
        "::test_a_listener_takes_one_turn_for_each_page_of_what_others_committed[1-1]",
    ),
    Mutant(
        name="counter-of-an-unfinished-transaction",
        rule="a listener notes a file's counter after it has read its changes, not before",
        module=SQLITE_COORDINATOR,
        old="        return await self._run(lambda: self._in_turn(read))",
        new="        early = self._counter()\n"
        "        return early, (await self._run(lambda: self._in_turn(read)))[1]",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_sqlite.py::test_a_transaction_that_a_killed_process_left_hides_no_later_one",
    ),
    Mutant(
        name="lost-commit-is-tried-again",
        rule="a commit whose connection was lost is not made again",
        module=POSTGRES_COORDINATOR,
        old="or not (self._may_repeat or error.sqlstate in ROLLED_BACK)",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_postgres.py::test_what_the_server_rolled_back_is_tried_again",
    ),
    Mutant(
        name="partitions-read-without-their-lock",
        rule="of brokers that commit to one partition at once, each waits for the one before",
        module=POSTGRES_TABLES,
        old='"ORDER BY l.topic_id, l.partition FOR UPDATE OF l"',
        new='"ORDER BY l.topic_id, l.partition"',
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}/test_postgres.py"
        "::test_brokers_that_commit_at_once_and_lose_connections_get_each_offset_once",
    ),
    Mutant(
        name="producers-read-before-their-partitions-are-locked",
        rule="what is known of a producer is read when no other broker can move it any more",
        module=POSTGRES_TABLES,
        old="        logs = self._execute(\n"
        "            LOCKED, _columns(dict.fromkeys(batch.key for batch in commit.batches), 2)\n"
        "        )\n"
        "        wanted = sorted(producer_keys(commit.batches))\n"
        "        producers = self._producers(wanted) if wanted else None\n",
        new="        wanted = sorted(producer_keys(commit.batches))\n"
        "        producers = self._producers(wanted) if wanted else None\n"
        "        logs = self._execute(\n"
        "            LOCKED, _columns(dict.fromkeys(batch.key for batch in commit.batches), 2)\n"
        "        )\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}/test_postgres.py"
        "::test_brokers_that_commit_at_once_and_lose_connections_get_each_offset_once",
    ),
    Mutant(
        name="partitions-locked-as-they-come",
        rule="a commit locks its partitions in their order",
        module=POSTGRES_TABLES,
        old='"ORDER BY l.topic_id, l.partition FOR UPDATE OF l"',
        new='"ORDER BY place FOR UPDATE OF l"',
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_postgres.py::test_partitions_are_locked_in_order_whatever_the_order_of_batches",
    ),
    Mutant(
        name="zombie-not-fenced",
        rule="a producer of an older epoch is refused",
        module=f"{TRANSACTIONS}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    return before\n",
        new="    return before\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_second_producer_fences_the_first",
    ),
    Mutant(
        name="markers-before-the-decision-is-committed",
        rule="no marker is sent before the decision is committed",
        module=f"{TRANSACTIONS}.coordinator",
        old="        else:\n"
        "            shard.change(transactional_id, after, now_ms, then)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        new="        else:\n"
        "            shard.change(transactional_id, after, now_ms, then)\n"
        "            self.markers.send(shard, transactional_id, after, now_ms)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_nothing_is_answered_and_no_marker_is_sent_before_the_record_is_committed",
    ),
    Mutant(
        name="epoch-not-raised-at-the-end",
        rule="each end of a transaction raises the producer's epoch (KIP-890)",
        module=f"{TRANSACTIONS}.transaction",
        old="    if client_version < BUMPS_EPOCHS:\n"
        "        return after\n"
        "    return after._replace",
        new="    if client_version < BUMPS_EPOCHS + 1:\n"
        "        return after\n"
        "    return after._replace",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_transaction_ends_with_a_marker_in_each_partition_and_in_no_other",
    ),
    Mutant(
        name="end-asked-again-is-fenced",
        rule="the same EndTxn again is answered as before, in the epoch before (KAFKA-14402)",
        module=f"{TRANSACTIONS}.rules",
        old="        and before.producer_epoch == producer.epoch + 1\n",
        new="        and before.producer_epoch == producer.epoch\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_an_end_that_is_asked_again_is_answered_as_before",
    ),
    Mutant(
        name="opposite-end-is-answered",
        rule="a request for the opposite outcome is not answered with success",
        module=f"{TRANSACTIONS}.rules",
        old="    return before.state is (COMPLETE_COMMIT if commits else COMPLETE_ABORT)\n",
        new="    return before.state in (COMPLETE_COMMIT, COMPLETE_ABORT)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_end_with_an_epoch_for_each_transaction",
    ),
    Mutant(
        name="late-transaction-goes-on",
        rule="a transaction that outlives its timeout is aborted",
        module=f"{TRANSACTIONS}.transaction",
        old="        return self.state is ONGOING and self.started_ms + self.timeout_ms < now_ms\n",
        new="        return False\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py::test_a_late_transaction_is_aborted",
    ),
    Mutant(
        name="id-with-a-record-on-its-way-expires",
        rule="an id that a record on its way is about is not forgotten",
        module=f"{TRANSACTIONS}.upkeep",
        old="now_ms, expiration_ms) and name not in shard.pending\n",
        new="now_ms, expiration_ms)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_an_id_with_a_record_on_its_way_does_not_expire",
    ),
    Mutant(
        name="fenced-producer-is-told-the-next-epoch",
        rule="a producer that the coordinator fenced is not told the epoch that fences it",
        module=f"{TRANSACTIONS}.rules",
        old="        and not before.is_fenced\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_fenced_producer_is_not_told_the_epoch_of_its_successor",
    ),
    Mutant(
        name="decisions-carried-out-before-they-are-committed",
        rule="a new coordinator carries out what it read once that is committed",
        module=f"{TRANSACTIONS}.coordinator",
        old="        shard.when_committed(loader.read_to, ready, now_ms)\n",
        new="        ready(now_ms)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_new_coordinator_says_nothing_before_all_that_it_read_is_committed",
    ),
    Mutant(
        name="decision-of-the-past-is-left-alone",
        rule="a new coordinator carries out what the one before it decided",
        module=f"{TRANSACTIONS}.coordinator",
        old="                if each.state in DECIDED:\n",
        new="                if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_three_coordinators.py"
        "::test_a_transaction_is_decided_once_and_ends",
    ),
    Mutant(
        name="epoch-raised-twice-by-a-fence",
        rule="the coordinator's own abort raises the epoch once (KAFKA-19367)",
        module=f"{TRANSACTIONS}.transaction",
        old="become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))\n",
        new="become(PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch + 2)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_every_way_out_of_a_transaction_raises_the_epoch_by_one",
    ),
    Mutant(
        name="late-request-joins-the-next-transaction",
        rule="an earlier epoch asks for nothing in a later transaction (KAFKA-14402)",
        module=f"{TRANSACTIONS}.rules",
        old="    before = _checked(before, producer)\n    if is_pending",
        new="    before = _checked(\n"
        "        before, before and Producer(producer.producer_id, before.producer_epoch)\n"
        "    )\n"
        "    if is_pending",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py::test_partitions_join",
    ),
    Mutant(
        name="transactions-wait-for-a-client",
        rule="a decision is carried out once it is committed, without waiting for a client",
        module=f"{TRANSACTIONS}.coordinator",
        old="                if shard is not None:\n                    shard.catch_up(now_ms)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_markers_are_sent_when_the_record_is_committed_though_no_client_waits",
    ),
    Mutant(
        name="next-transaction-does-not-wait-for-markers",
        rule="a client's next transaction waits for the markers of the one before",
        module="anabranch.core.api.transactions",
        old="if may_wait and fault.code is ErrorCode.CONCURRENT_TRANSACTIONS:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_the_next_transaction_begins_when_the_one_before_has_its_markers",
    ),
    Mutant(
        name="next-transaction-waits-its-time-out",
        rule="a request that waits for the end of a transaction is answered when it has ended",
        module=f"{TRANSACTIONS}.shard",
        old="            self._broker.changed.add(Changed(transactional_id))\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_the_next_transaction_begins_when_the_one_before_has_its_markers",
    ),
    Mutant(
        name="one-connection-cannot-fill-the-write-buffers",
        rule="what waits for a store is bounded for all connections together",
        module="anabranch.server.dispatch",
        old="if stored_later_bytes:  #",
        new="if False:  #",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_connection.py"
        "::test_what_waits_for_a_store_is_bounded_for_all_connections_not_for_each[True]",
    ),
    Mutant(
        name="end-overtakes-a-waiting-join",
        rule="what a client sends after a join that waits is run after it",
        module="anabranch.server.dispatch",
        old="        slot.is_alone = slot.is_alone or wait.holds_up\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_connection.py"
        "::test_a_wait_that_says_so_holds_up_what_comes_behind_it",
    ),
    Mutant(
        name="waiting-join-holds-up-nothing",
        rule="so it holds up its client's requests",
        module="anabranch.core.api.transactions",
        old=", decided, holds_up=is_client)",
        new=", decided)",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_an_end_does_not_overtake_the_join_that_waits",
    ),
    Mutant(
        name="leader-does-not-wait-for-markers",
        rule="a leader's question that may wait is answered when the id is free",
        module="anabranch.core.api.p24_add_partitions_to_txn",
        old="if is_client or has_own(request.body):",
        new="if is_client:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_leader_that_asks_to_wait_is_answered_when_all_may_begin",
    ),
    Mutant(
        name="leader-pauses-before-it-asks-to-wait",
        rule="a partition asks at once to wait for the end of the transaction before",
        module="anabranch.core.broker.verifying",
        old="rest_ms = 0 if asked_ms == NEVER_MS else asked_ms + backoff_ms - now_ms",
        new="rest_ms = backoff_ms",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_the_coordinator_is_asked_to_wait_for_the_end_of_the_transaction_before",
    ),
    Mutant(
        name="first-partition-asked-about-alone",
        rule="partitions of one request are asked about in one question",
        module="anabranch.core.broker.verifying",
        old=".append(verification)\n        broker.peers.ask_last(self._ask_all)\n",
        new=".append(verification)\n        self._ask_all()\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_partitions_of_one_request_are_asked_about_in_one_question",
    ),
    Mutant(
        name="coordinator-asked-without-a-pause",
        rule="a coordinator that does not wait is asked again after a pause",
        module="anabranch.core.broker.verifying",
        old="rest_ms = 0 if asked_ms == NEVER_MS else asked_ms + backoff_ms - now_ms",
        new="rest_ms = 0",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_a_coordinator_that_does_not_wait_is_asked_again_after_a_pause",
    ),
    Mutant(
        name="join-holds-up-other-transactions",
        rule="a question that waits holds up no question about others",
        module="anabranch.core.broker.verifying",
        old="            self._queue(verification, JOINS)\n            return True\n",
        new="            self._queue(verification, VERIFICATIONS)\n            return True\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_who_waits_for_the_end_of_the_transaction_before_holds_up_no_other",
    ),
    Mutant(
        name="lanes-share-a-connection",
        rule="an answer that waits holds up none of another lane",
        module="anabranch.server.peers",
        old="self._connections.post, ask.broker_id, ask.lane, post",
        new='self._connections.post, ask.broker_id, "peer", post',
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_peers.py::test_a_lane_whose_answers_wait_holds_up_no_other",
    ),
    Mutant(
        name="part-that-waits-on-is-told",
        rule="an answer of many parts is given when no part waits, also not for something else",
        module="anabranch.core.outcome",
        old="return when_all(found, respond) if goes_on or not waits else None",
        new="return None if waits else respond(found)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/test_outcome.py"
        "::test_a_part_may_wait_for_something_else_while_others_wait_still",
    ),
    Mutant(
        name="late-producer-may-not-go-on",
        rule="a producer whose transaction was aborted for its timeout may go on (KIP-588)",
        module=f"{TRANSACTIONS}.transaction",
        old="last_producer_epoch=before.producer_epoch,\n        client_version=server_version",
        new="last_producer_epoch=NO_PRODUCER_EPOCH,\n        client_version=server_version",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_kafka_answers.py::test_as_kafka[a_late_transaction]",
    ),
    Mutant(
        name="ended-transaction-forgotten-at-a-restart",
        rule="a restart keeps the last stable offset before markers that not all have",
        module="anabranch.core.log.unreplicated",
        old="        producers.unreplicated = deque(_ended_from(log, high_watermark))\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_transactions_any_order.py"
        "::test_a_reader_sees_what_was_committed_and_stops_at_what_is_open[1]",
    ),
    Mutant(
        name="ids-hold-empty-sets-of-their-own",
        rule="ids without a transaction share one empty set of partitions",
        module=f"{TRANSACTIONS}.records",
        old="        or NO_PARTITIONS,\n",
        new="        | NO_PARTITIONS,\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_ids_without_a_transaction_share_one_empty_set_of_partitions",
    ),
    Mutant(
        name="ids-listed-whatever-the-pattern",
        rule="ids are listed that a pattern matches as a whole",
        module="anabranch.core.api.p66_list_transactions",
        old="if pattern is not None and not pattern.matches(name):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_ids_are_listed_by_a_pattern_of_whole_ids",
    ),
    Mutant(
        name="late-transactions-all-named",
        rule="a round names twenty late transactions in the log, and counts the others",
        module=f"{TRANSACTIONS}.upkeep",
        old="if len(self.said) < MOST_SAID:",
        new="if True:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_late_transactions_are_named_in_the_log_up_to_a_number",
    ),
    Mutant(
        name="group-error-in-no-partition",
        rule="an error of a group stands in each partition, for readers that look nowhere else",
        module="anabranch.core.api.p09_offset_fetch",
        old="            for topic in body.topics or ()\n        ],\n    )\n",
        new="            for topic in ()\n        ],\n    )\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/groups/test_offsets.py"
        "::test_a_reader_is_told_wherever_it_looks_that_its_offsets_are_not_known",
    ),
    Mutant(
        name="next-producer-id-is-a-strangers",
        rule="a producer that goes on with a new producer id comes again while markers are written",
        module=f"{TRANSACTIONS}.rules",
        old="    return producer == (before.next_producer_id, 0)\n",
        new="    return False\n",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_who_goes_on_before_the_markers_are_written_comes_again",
    ),
    Mutant(
        name="next-end-is-fenced-while-markers-are-written",
        rule="who was told its next epoch comes again while markers are written",
        module=f"{TRANSACTIONS}.rules",
        old="        if before.is_fenced:  # no producer",
        new="        if True:  # no producer",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_who_goes_on_before_the_markers_are_written_comes_again",
    ),
    Mutant(
        name="last-epoch-is-given",
        rule="no producer is given the epoch behind which there is none",
        module=f"{TRANSACTIONS}.rules",
        old="    if epoch > LAST_EPOCH or (is_newest and before.is_exhausted):",
        new="    if is_newest and before.is_exhausted:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_states.py"
        "::test_each_epoch_that_a_producer_is_given_can_be_fenced",
    ),
    Mutant(
        name="diskless-topic-of-the-name-gets-markers",
        rule="a transaction ends without markers in diskless topics that have taken a name",
        module=f"{TRANSACTIONS}.markers",
        old="if state is None or is_diskless(image, place.topic):",
        new="if state is None:",
        seed=NO_SCHEDULE,
        caught_by=f"{TRANSACTION_TESTS}/test_coordinator.py"
        "::test_a_diskless_topic_of_the_same_name_holds_nothing_up",
    ),
    Mutant(
        name="committed-while-verified-is-waited-for",
        rule="what is committed while another partition is verified is not waited for",
        module="anabranch.core.api.p00_produce",
        old="        acks = request.body.acks\n"
        "        pending[:] = [entry for entry in pending if not _settled(broker, entry, acks)]\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_p00_transactions.py"
        "::test_what_is_committed_while_another_partition_is_verified_is_not_waited_for",
    ),
    Mutant(
        name="sequence-zero-begins-a-transaction",
        rule="a restart finds where a transaction began by what ended before it",
        module="anabranch.core.log.unreplicated",
        old="    found[producer_id] = header.base_offset\n",
        new="    found[producer_id] = header.base_offset\n"
        "    if header.base_sequence == 0:\n"
        "        wanted.discard(producer_id)\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_unreplicated.py"
        "::test_sequence_zero_is_not_always_the_begin_of_a_transaction",
    ),
)
"""Rules that another rule stands behind, so that thousands of schedules notice nothing: the nodes
of the simulator wait for their own registration, and an older leader epoch, broker epoch or fetch
is refused elsewhere too. Or rules of what no schedule does yet: compaction, and records of another
time than their producer's. A test of the one decision notices each."""
