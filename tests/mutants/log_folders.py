"""Broken rules of a log folder: its room, and the processes that have used it."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

MOVES = (
    "tests/core/broker/test_folder_move_crashes.py"
    "::test_a_crash_at_any_call_of_a_move_leaves_one_good_log"
)
ADOPT = "        log = self.target.adopt_future(copied, unique=unique, now_ms=now_ms)\n"
LEAVE = "        self.origin.rename_away(copied.topic_partition, unique=unique, now_ms=now_ms)\n"

MUTANTS = (
    Mutant(
        name="attempt-not-noted",
        rule="a process notes itself in its folders before it can be registered",
        module="anabranch.core.log.incarnations",
        old="[*ids[:1], *ids[1:][1 - MOST_ATTEMPTS :], incarnation_id]",
        new="[*ids[:1], *ids[1:][1 - MOST_ATTEMPTS :]]",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_the_registered_incarnation_is_known_whenever_processes_die",
    ),
    Mutant(
        name="full-folder-takes-records",
        rule="a full folder accepts no records: its reserve is for other writes",
        module="anabranch.core.log.appends",
        old="if log.room.is_full:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_room.py"
        "::test_the_logs_of_a_full_folder_take_no_records_and_are_read",
    ),
    Mutant(
        name="room-again-at-once",
        rule="a folder has space again when its reserve fits, and as much again is free",
        module="anabranch.core.log.room",
        old="free_bytes > 2 * self.reserve_bytes",
        new="free_bytes > 0",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_room.py"
        "::test_a_folder_has_no_room_again_where_only_the_reserve_fits",
    ),
    Mutant(
        name="account-of-an-earlier-life-stays",
        rule="a folder that cannot store the account of this process keeps no older one",
        module="anabranch.core.log.incarnations",
        old='self._files.remove(f"{folder}/{INCARNATIONS}")',
        new="pass",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_a_folder_that_takes_no_account_is_not_taken_for_an_older_one",
    ),
    Mutant(
        name="full-folder-never-takes-its-account",
        rule="a folder that was full takes its account once it has room",
        module="anabranch.core.broker.registration.registration",
        old="self._notes is not None and self._notes.lacking",
        new="False",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_folder_that_took_no_account_takes_it_with_a_heartbeat_once_it_has_room",
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
        rule="a process does without a folder whose account cannot be read",
        module="anabranch.core.log.incarnations",
        old="            self.unreadable.add(folder)\n            return None\n",
        new="            return []\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/broker/test_registration.py"
        "::test_a_life_does_without_a_folder_that_it_cannot_read_and_nothing_in_it_is_older",
    ),
    Mutant(
        name="removed-account-returns",
        rule="a power cut brings back no account that the folder had no space to replace",
        module="anabranch.core.log.incarnations",
        old="self._files.sync_dir(folder)  # a power cut",
        new="pass  # a power cut",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_incarnations.py"
        "::test_a_power_cut_brings_no_account_back_that_a_full_disk_has_replaced",
    ),
    Mutant(
        name="refused-name-keeps-a-segment",
        rule="a segment that a log drops leaves its folder, also on a full disk",
        module="anabranch.core.log.truncation",
        old="        log.files.remove(path)\n        return False",
        new="        raise",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_refused_names.py"
        "::test_a_log_is_the_same_when_it_is_opened_again[1-expire]",
    ),
    Mutant(
        name="moved-log-leaves-first",
        rule="a log that moves to another folder goes when its copy has the partition's name",
        module="anabranch.core.log.future_log",
        old=ADOPT + "        try:\n    " + LEAVE,
        new=LEAVE + ADOPT + "        try:\n            pass\n",
        seed=NO_SCHEDULE,
        caught_by=MOVES,
    ),
    Mutant(
        name="moved-log-may-return",
        rule="nothing is appended to a moved log before the old one is gone for good",
        module="anabranch.core.log.future_log",
        old="            self.origin.settle_names()\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=MOVES,
    ),
    Mutant(
        name="moved-log-not-synced",
        rule="a copy is on disk before the log goes that it was made from",
        module="anabranch.core.log.future_log",
        old="        close_cleanly(copied)\n",
        new="        copied.flushed_offset = copied.end_offset\n",
        seed=NO_SCHEDULE,
        caught_by=MOVES,
    ),
)
