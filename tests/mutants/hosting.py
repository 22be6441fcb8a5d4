"""Broken rules of the logs that a broker hosts, and of its folders."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

HOSTED_FOLDERS = "anabranch.core.broker.hosting.folders"
HOSTED_LOGS = "anabranch.core.broker.hosting.logs"
HOSTED_SYNCS = "anabranch.core.broker.hosting.syncs"
HOSTING = "anabranch.core.broker.hosting.hosting"
HOSTING_TESTS = "tests/core/broker/test_hosting.py"
READINESS_TESTS = "tests/core/broker/test_readiness.py"
OLDER_COPIES = (
    "tests/core/broker/test_older_copies.py"
    "::test_a_copy_is_opened_in_place_of_what_is_away_only_where_nothing_can_be_lost"
)
LEFT_UNREAD = f"{HOSTING_TESTS}::test_a_log_left_unread_after_a_power_cut_is_checked_by_the_next"
LOG_CLEANER = "anabranch.core.broker.hosting.log_cleaner"
LOG_CLEANER_TESTS = "tests/core/broker/test_log_cleaner.py"

MUTANTS = (
    Mutant(
        name="failed-sync-tried-again",
        rule="a sync that failed takes its folder offline and is never tried again",
        module=HOSTED_SYNCS,
        old="            return fault if is_hosted else None\n",
        new="            self._broker.unsynced.add(place)\n            return None\n",
        seed=12000000082,
        caught_by="H2",
    ),
    Mutant(
        name="room-again-not-noticed",
        rule="a full folder accepts records again when its disk has space",
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
        seed=3000000011,
        caught_by="H1",
    ),
    Mutant(
        name="log-begun-while-its-folder-is-away",
        rule="no empty log replaces one that may be in an offline folder",
        module=HOSTED_LOGS,
        old="if found is None and not is_new and self._is_missing(assignment, others):",
        new="if False:",
        seed=19,
        caught_by="L7",
    ),
    Mutant(
        name="let-in-before-its-tail-is-safe",
        rule="a broker is let in once what recovery found in its logs is on disk",
        module=HOSTING,
        old="self._readiness.followed(chain(self._broker.unsynced, self.syncs.under_way))",
        new="self._readiness.followed(())",
        seed=NO_SCHEDULE,
        caught_by=f"{READINESS_TESTS}::test_a_broker_is_ready_when_what_recovery_found_is_on_disk",
    ),
    Mutant(
        name="rounds-to-come-not-awaited",
        rule="a broker that starts also awaits the syncs that begin at the end of the step",
        module=HOSTING,
        old="self._readiness.followed(chain(self._broker.unsynced, self.syncs.under_way))",
        new="self._readiness.followed(self.syncs.under_way)",
        seed=NO_SCHEDULE,
        caught_by=f"{READINESS_TESTS}::test_rounds_that_began_while_logs_were_opened_count",
    ),
    Mutant(
        name="let-in-when-no-sync-is-under-way",
        rule="a broker that copies all the time is let in when what it found is on disk",
        module=HOSTING,
        old="                self._readiness.ended(asked.replica.topic_partition)\n",
        new="                if not (self._broker.unsynced or self.syncs.under_way):\n"
        "                    self._readiness.ended(asked.replica.topic_partition)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{READINESS_TESTS}::test_a_broker_that_appends_all_the_time_is_let_in",
    ),
    Mutant(
        name="failed-folder-keeps-its-broker-out",
        rule="a broker that starts does not wait for the syncs of a folder that failed",
        module=HOSTING,
        old="            if place not in self.syncs.under_way:\n",
        new="            if self._partitions.get(*place) and place not in self.syncs.under_way:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{READINESS_TESTS}::test_a_folder_that_fails_keeps_no_broker_out",
    ),
    Mutant(
        name="log-without-a-name-adopted",
        rule="a log without a synced name is copied again if other brokers lead",
        module=HOSTED_LOGS,
        old="            and not self._may_be_anothers(each, assignment)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_log_without_a_name_may_be_an_older_topic_s",
    ),
    Mutant(
        name="log-without-a-name-adopted-while-nobody-leads",
        rule="and so it is if nobody leads, and the controller does not count on this log",
        module=HOSTED_LOGS,
        old="return not self._partitions.is_counted(state)",
        new="return self._partitions.may_begin_anew(state)",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_a_log_without_a_name_may_be_an_older_topic_s[-1-isr1-False-0]",
    ),
    Mutant(
        name="log-without-a-name-adopted-for-a-replica-that-never-was",
        rule="and so it is if the broker never told in which folder it lies",
        module=HOSTED_LOGS,
        old=" or self._was_never_told(state):",
        new=":",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_what_a_broker_of_several_folders_never_told_of_is_not_its_own[3-False-False-0]",
    ),
    Mutant(
        name="log-without-a-name-adopted-for-a-topic-made-again",
        rule="and so it is if an older topic of that name was seen to go",
        module=HOSTED_LOGS,
        old="place.topic in self.deleted_before or ",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_a_log_without_a_name_may_be_that_of_a_topic_which_was_seen_to_go[t-False-0]",
    ),
    Mutant(
        name="deleted-topic-stays-on-disk",
        rule="a log of a topic that was deleted while its broker was away is removed",
        module=HOSTED_LOGS,
        old="topic_id in self.deleted_ids and ",
        new="False and ",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_what_was_deleted_while_the_broker_was_away_is_removed[True-False-1]",
    ),
    Mutant(
        name="deletion-forgotten-by-a-restart",
        rule="a broker that stops before it acts hears of deletions again",
        module="anabranch.core.metadata.following.copy",
        old="                self.deleted_ids.update(topic.topic_id for topic in gone)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/metadata/test_following.py"
        "::test_a_broker_that_stopped_before_it_acted_hears_again_what_went[1]",
    ),
    Mutant(
        name="orphan-adopted-by-what-comes-later",
        rule="a log without a name that nothing was placed for is of no later topic",
        module=HOSTED_LOGS,
        old="            and not each.is_orphan\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_log_without_a_name_is_of_no_partition_that_comes_later",
    ),
    Mutant(
        name="one-orphan-of-several",
        rule="each log without a name is of no later topic, in however many folders they lie",
        module=HOSTED_LOGS,
        old="tuple(orphan if each == found else each for each in lying)",
        new="tuple(each._replace(is_orphan=each == found) for each in lying)",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_log_without_a_name_is_of_no_partition_that_comes_later",
    ),
    Mutant(
        name="unread-log-marked-clean",
        rule="what a power cut left is checked by the process that opens it, however late",
        module=HOSTED_FOLDERS,
        old="        return folder.clean or not has_unread\n",
        new="        return True\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LEFT_UNREAD}[not in the metadata]",
    ),
    Mutant(
        name="log-that-stayed-marked-clean",
        rule="a log that could not be taken away is checked by the process that opens it",
        module="anabranch.core.log.logs",
        old="            self.holds_unchecked = True\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{LEFT_UNREAD}[moved away]",
    ),
    Mutant(
        name="log-that-was-taken-away-returns",
        rule="a log begins where another lay once a power cut cannot bring that one back",
        module="anabranch.core.log.logs",
        old="        if key in self._may_return:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_logs_taken_away.py"
        "::test_no_power_cut_brings_an_unnamed_log_back_to_its_place",
    ),
    Mutant(
        name="recovery-point-lowered-for-a-cut-that-finds-no-room",
        rule="a log's recovery point is lowered once nothing but the cut is left to do",
        module="anabranch.core.log.logs",
        old="        self._distrust(key, end_offset)\n"
        "        self._lower_high_watermark(key, end_offset)\n"
        "        log = self.logs.get(key)\n",
        new="        for offsets in (self._recovery_points, self.clean_points):\n"
        "            if offsets.get(key, 0) > end_offset:\n"
        "                is_clean = offsets is self.clean_points\n"
        "                offsets[key] = end_offset\n"
        "                self._write(CLEAN_POINTS if is_clean else RECOVERY_POINTS, offsets)\n"
        "        self._distrust(key, end_offset)\n"
        "        self._lower_high_watermark(key, end_offset)\n"
        "        log = self.logs.get(key)\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_truncation_without_room.py"
        "::test_a_log_that_could_not_be_cut_is_whole_after_a_kill",
    ),
    Mutant(
        name="deleted-log-returns-in-another-folder",
        rule="a log begins once no power cut can bring back a deleted one in another folder",
        module=HOSTED_LOGS,
        old="is_left = folder.path in left or folder.may_return(place)",
        new="is_left = folder.path in left",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_no_power_cut_brings_an_older_log_back_beside_one_in_another_folder",
    ),
    Mutant(
        name="log-set-aside-returns-in-another-folder",
        rule="a log begins once no power cut can bring back one set aside in another folder",
        module=HOSTED_LOGS,
        old="is_left = folder.path in left or folder.may_return(place)",
        new="is_left = folder.may_return(place)",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_no_power_cut_brings_an_older_log_back_beside_one_in_another_folder",
    ),
    Mutant(
        name="log-begun-at-an-offset-without-a-synced-name",
        rule="a log that begins at an offset has its name synced before that is promised",
        module="anabranch.core.log.truncation",
        old="sync_whose(log)",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_logs_taken_away.py"
        "::test_a_log_of_which_something_is_promised_says_whose_it_is",
    ),
    Mutant(
        name="log-closed-without-records-counts-as-named",
        rule="a log closed in order without records has no name until that is synced",
        module="anabranch.core.log.recovery",
        old="log.is_named = clean and log.flushed_offset > log.local_start_offset",
        new="log.is_named = clean",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_logs_taken_away.py"
        "::test_a_log_of_which_something_is_promised_says_whose_it_is",
    ),
    Mutant(
        name="older-topic-adopted",
        rule="a log of an older topic with the same name is set aside and never opened",
        module=HOSTED_LOGS,
        old="own = [each for each in lying if each.topic_id == topic_id] or [",
        new="own = [each for each in lying if each.topic_id is not None] or [",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_a_log_of_an_older_topic_is_set_aside_and_never_opened",
    ),
    Mutant(
        name="promises-of-an-older-topic-count",
        rule="records synced for an older topic do not count for the new topic's log",
        module=HOSTED_LOGS,
        old="promised |= dict.fromkeys((each.path for each in others), 0)",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_a_log_of_an_older_topic_is_set_aside_and_never_opened[True]",
    ),
    Mutant(
        name="first-folder-wins",
        rule="of logs in several folders, the one of the topic in the metadata is opened",
        module=HOSTED_LOGS,
        old="self.found[place] = (*self.found.get(place, ()), found)",
        new="self.found.setdefault(place, (found,))",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_a_topic_made_again_while_a_folder_was_away_is_opened_where_it_lies",
    ),
    Mutant(
        name="older-copy-in-another-folder-adopted",
        rule="of two copies of a replica, the one in the folder that the metadata names is opened",
        module=HOSTED_LOGS,
        old="is_named = self._partitions.directory_ids.get(found.path) == named",
        new="is_named = False",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}"
        "::test_of_two_copies_of_a_replica_the_one_that_the_metadata_names_is_opened",
    ),
    Mutant(
        name="older-copy-opened-while-its-folder-is-away",
        rule="a copy that may be older is not opened while others may count on what is away",
        module=HOSTED_LOGS,
        old="if found is not None and self._is_older_copy(image, assignment, found):",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=OLDER_COPIES,
    ),
    Mutant(
        name="older-copy-opened-before-the-controller-knows",
        rule="nor before the controller knows that the folder is gone",
        module="anabranch.core.replication.partitions",
        old="return is_known or not self.is_counted(state)",
        new="return True",
        seed=NO_SCHEDULE,
        caught_by=OLDER_COPIES,
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
        rule="a log that did not open because the disk was full is opened later",
        module=HOSTING,
        old="if self._partitions.roomless and not self._work:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_no_full_folder_holds_up_what_waits_for_another",
    ),
    Mutant(
        name="full-folder-holds-up-others",
        rule="a log that waits for space in one folder delays no log in another",
        module=HOSTED_LOGS,
        old="                        break\n                waiting.pop(place, None)\n",
        new="                        return\n                waiting.pop(place, None)\n",
        seed=NO_SCHEDULE,
        caught_by=f"{HOSTING_TESTS}::test_no_full_folder_holds_up_what_waits_for_another",
    ),
    Mutant(
        name="settings-before-states",
        rule="a replica gets settings and state of one metadata image together",
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
        name="reserve-is-kept",
        rule="on a full disk, essential writes use the reserve",
        module="anabranch.core.broker.hosting.folders",
        old="                GiveBack(path),\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/server/test_room.py"
        "::test_a_full_disk_gives_back_what_is_kept_and_says_so_once",
    ),
    Mutant(
        name="given-up-pass-begins-again-at-once",
        rule="after a compaction that was given up, a log rests",
        module=LOG_CLEANER,
        old="            self._resting[place] = now_ms + self.backoff_ms\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_CLEANER_TESTS}::test_what_follows_from_each_end",
    ),
    Mutant(
        name="damaged-log-compacted-again",
        rule="a log that compaction could not read is not compacted again",
        module=LOG_CLEANER,
        old="            self.uncleanable[place] = (replica.log, why)\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_CLEANER_TESTS}::test_what_follows_from_each_end",
    ),
    Mutant(
        name="retention-under-a-pass",
        rule="retention leaves segments alone while compaction reads them",
        module=HOSTING,
        old="is_cleaning = self.cleaner.is_cleaning(replica.topic_partition)",
        new="is_cleaning = False",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_CLEANER_TESTS}::test_retention_leaves_the_segments_of_a_pass_alone",
    ),
    Mutant(
        name="compacted-while-copied",
        rule="a log is not compacted while it is copied to another folder",
        module=LOG_CLEANER,
        old="found = [each for each in found if each[0].topic_partition not in moving]",
        new="found = [each for each in found if moving is not None]",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_folder_moves.py"
        "::test_a_key_that_was_deleted_does_not_come_back_by_a_move",
    ),
)
