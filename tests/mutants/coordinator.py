"""Broken rules of the coordinator of diskless topics, and of the rows that it keeps."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

COMMIT_TESTS = "tests/core/diskless/test_commit.py"
COORDINATOR_TESTS = "tests/stores/coordinator"
DISKLESS = "anabranch.core.diskless"
DISKLESS_COMMIT = "anabranch.core.diskless.commit"
OBJECT_TESTS = "tests/stores/objects"
OLDER_TESTS = "tests/server/diskless/test_older_copies.py"
POSTGRES_COORDINATOR = "anabranch.stores.coordinator.postgres"
POSTGRES_TABLES = "anabranch.stores.coordinator.postgres_tables"
ROWS = "tests/core/controller/test_diskless_rows.py"
SET_BACK = (
    f"{COORDINATOR_TESTS}/test_set_back.py"
    "::test_what_was_set_back_gets_no_call_from_a_node_that_knows_a_later_commit"
)
SQLITE_COORDINATOR = "anabranch.stores.coordinator.sqlite"
SQL_TABLES = "anabranch.stores.coordinator.sql_tables"

MUTANTS = (
    Mutant(
        name="diskless-duplicate-written-again",
        rule="a repeated batch of an idempotent producer gets its first offset",
        module=f"{DISKLESS}.commit",
        old="        for written in producer.written:\n"
        "            if written[:2] == sequences:\n"
        "                return Verdict(ErrorCode.NONE, written.base_offset, log.start_offset, "
        "True)\n"
        "        if batch.base_sequence != producer.next_sequence and not goes_on:\n",
        new="        if batch.base_sequence > producer.next_sequence:\n",
        seed=100,
        caught_by="D5",
    ),
    Mutant(
        name="diskless-gap-written",
        rule="a batch that leaves a gap in an idempotent producer's sequence is not written",
        module=f"{DISKLESS}.commit",
        old="        if batch.base_sequence != producer.next_sequence and not goes_on:\n",
        new="        if batch.base_sequence < producer.next_sequence:\n",
        seed=100,
        caught_by="D5",
    ),
    Mutant(
        name="diskless-garbage-without-grace",
        rule="an object that has lost its last row stays for the grace period",
        module=SQL_TABLES,
        old='ORDER BY marked_ms LIMIT ?",\n            (self.now_ms() - grace_ms, limit),',
        new='ORDER BY marked_ms LIMIT ?",\n            (self.now_ms(), limit),',
        seed=100,
        caught_by="D7",
    ),
    Mutant(
        name="diskless-garbage-of-the-living",
        rule="a prepared object is no garbage while its lease runs",
        module=SQL_TABLES,
        old="WHERE state = 0 AND expires_ms <= ? ",
        new="WHERE state = 0 AND expires_ms - 590000 <= ? ",
        seed=100,
        caught_by="D7",
    ),
    Mutant(
        name="diskless-garbage-with-rows",
        rule="an object is garbage when its last row is gone, not its first",
        module=SQL_TABLES,
        old="AND state = 1 AND live_runs = 0",
        new="AND state = 1",
        seed=108,
        caught_by="D7",
    ),
    Mutant(
        name="diskless-expired-objects-stay",
        rule="objects with an expired lease are collected",
        module=SQL_TABLES,
        old="done = self._mark_prepared(now_ms, limit)",
        new="done = 0",
        seed=100,
        caught_by="orphans",
    ),
    Mutant(
        name="diskless-old-epoch-commits",
        rule="only the newest epoch of a broker commits objects",
        module=f"{DISKLESS}.commit",
        old="if broker_epoch != commit.broker_epoch:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_commit.py::test_only_its_own_broker_in_its_current_epoch_commits_an_object_in_time",
    ),
    Mutant(
        name="diskless-commit-after-the-lease",
        rule="an object with an expired lease is not committed, however late its broker resumes",
        module=f"{DISKLESS}.commit",
        old="if found.state is not ObjectState.PREPARED or now_ms >= found.expires_ms:",
        new="if found.state is not ObjectState.PREPARED:",
        seed=772,
        caught_by="D3",
    ),
    Mutant(
        name="duplicate-is-written-again",
        rule="a batch that a producer sends again gets the offset of the first",
        module=DISKLESS_COMMIT,
        old="if written[:2] == sequences:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}::test_five_batches_are_known_and_the_sixth_is_not",
    ),
    Mutant(
        name="gap-is-written",
        rule="a gap in a producer's sequence is refused, and the expected number is returned",
        module=DISKLESS_COMMIT,
        old="if batch.base_sequence != producer.next_sequence and not goes_on:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}"
        "::test_a_gap_tells_what_is_next_and_whether_the_producer_is_known",
    ),
    Mutant(
        name="object-is-committed-after-its-lease",
        rule="no object is committed after its lease",
        module=DISKLESS_COMMIT,
        old="if found.state is not ObjectState.PREPARED or now_ms >= found.expires_ms:",
        new="if found.state is not ObjectState.PREPARED:",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_nothing_is_committed_after_its_lease[sqlite]",
    ),
    Mutant(
        name="earlier-incarnation-commits",
        rule="a broker commits only in its newest epoch",
        module=DISKLESS_COMMIT,
        old="if broker_epoch != commit.broker_epoch:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_an_older_incarnation_of_a_broker_neither_prepares_nor_commits[sqlite]",
    ),
    Mutant(
        name="offset-is-given-twice",
        rule="each batch moves the end of its partition",
        module=DISKLESS_COMMIT,
        old="            high_watermark=end_offset, byte_size=log.byte_size + batch.byte_size\n",
        new="            byte_size=log.byte_size + batch.byte_size\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}::test_verdicts_and_offsets_are_those_of_the_whole_history",
    ),
    Mutant(
        name="apart-is-one-run",
        rule="batches form one run only if their bytes are adjacent",
        module=DISKLESS_COMMIT,
        old="run.byte_offset + run.byte_size == batch.byte_offset\n        and",
        new="True\n        and",
        seed=NO_SCHEDULE,
        caught_by=f"{COMMIT_TESTS}::test_a_refused_batch_parts_two_runs_and_a_bound_does",
    ),
    Mutant(
        name="outcome-is-not-final",
        rule="an object that was refused is never committed",
        module=DISKLESS_COMMIT,
        old='return Decided(_refused("its lease is over"), ObjectState.REFUSED)',
        new='return Decided(_refused("its lease is over"))',
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_who_asks_about_an_expired_object_refuses_it_for_good[sqlite]",
    ),
    Mutant(
        name="deleted-topic-comes-back",
        rule="a deleted topic id gets no partitions again",
        module=SQL_TABLES,
        old="                    continue\n",
        new="                    pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_any_coordinator.py::test_a_deleted_topic_is_gone_for_good[sqlite]",
    ),
    Mutant(
        name="missed-changes-are-not-told",
        rule="a listener learns when it may have missed changes",
        module=SQLITE_COORDINATOR,
        old="if found and found[0][0] != after + 1:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_sqlite.py::test_a_listener_that_is_too_far_behind_is_told_so",
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
        rule="a commit whose connection was lost is not repeated",
        module=POSTGRES_COORDINATOR,
        old="or not (self._may_repeat or error.sqlstate in ROLLED_BACK)",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_postgres.py::test_what_the_server_rolled_back_is_tried_again",
    ),
    Mutant(
        name="partitions-read-without-their-lock",
        rule="brokers that commit to one partition at once wait for each other",
        module=POSTGRES_TABLES,
        old='"ORDER BY l.topic_id, l.partition FOR UPDATE OF l"',
        new='"ORDER BY l.topic_id, l.partition"',
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}/test_postgres.py"
        "::test_brokers_that_commit_at_once_and_lose_connections_get_each_offset_once",
    ),
    Mutant(
        name="producers-read-before-their-partitions-are-locked",
        rule="the state of a producer is read after its partition is locked",
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
        rule="a commit locks its partitions in a fixed order",
        module=POSTGRES_TABLES,
        old='"ORDER BY l.topic_id, l.partition FOR UPDATE OF l"',
        new='"ORDER BY place FOR UPDATE OF l"',
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}"
        "/test_postgres.py::test_partitions_are_locked_in_order_whatever_the_order_of_batches",
    ),
    Mutant(
        name="diskless-rows-by-old-metadata",
        rule="rows are compared with metadata that is not older than the controller's term",
        module="anabranch.core.controller.diskless.rows",
        old="return image.next_offset >= self._from_offset",
        new="return True",
        seed=NO_SCHEDULE,
        caught_by=f"{ROWS}::test_metadata_from_before_the_term_deletes_nothing",
    ),
    Mutant(
        name="diskless-deposed-controller-rings-on",
        rule="a controller that resigned or was deposed no longer sets timers for rows",
        module="anabranch.core.controller.diskless.rows",
        old="        if not self._may_call:\n            return NEVER_MS\n        if self._attempts",
        new="        if self._under_way is not None:\n            return NEVER_MS\n        if self._attempts",
        seed=NO_SCHEDULE,
        caught_by=f"{ROWS}::test_no_timer_rings_for_a_call_that_may_not_be_made",
    ),
    Mutant(
        name="coordinator-made-anew-serves",
        rule="a coordinator that did not name the store's objects is refused",
        module="anabranch.core.diskless.claim",
        old="    if known != mark:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OBJECT_TESTS}/test_objects.py"
        "::test_a_coordinator_that_was_made_anew_is_refused_until_it_is_restored[memory]",
    ),
    Mutant(
        name="older-coordinator-serves",
        rule="a coordinator that does not know a noted commit is refused",
        module="anabranch.core.diskless.last_commits",
        old="    if lacking:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}"
        "::test_any_copy_from_before_a_noted_commit_is_refused_and_any_later_one_is_not",
    ),
    Mutant(
        name="file-that-was-set-back-is-used",
        rule="a database file that lacks changes seen earlier is no longer used",
        module=SQLITE_COORDINATOR,
        old="        if newest < self._seen:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SET_BACK}[written over-its own]",
    ),
    Mutant(
        name="file-that-was-replaced-is-used",
        rule="a database file that was renamed, replaced or removed is no longer used",
        module=SQLITE_COORDINATOR,
        old="        if not os.path.samestat(here, os.fstat(self._header)):\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SET_BACK}[another file-its own]",
    ),
    Mutant(
        name="another-server-is-trusted",
        rule="a new connection is used once its database has shown the last known commits",
        module=POSTGRES_COORDINATOR,
        old="lacking = tables.uncommitted(self._known.ids)",
        new="lacking: list[int] = []",
        seed=NO_SCHEDULE,
        caught_by=f"{SET_BACK}[a standby-its own]",
    ),
    Mutant(
        name="tables-loaded-again-are-trusted",
        rule="a commit is made only where the last known commits are there",
        module=POSTGRES_TABLES,
        old="        if missing:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/stores/coordinator/test_postgres.py"
        "::test_tables_that_are_loaded_again_over_open_connections_take_no_commit[its own]",
    ),
    Mutant(
        name="commits-of-others-not-known",
        rule="a broker also remembers the last commit of other brokers that it heard of",
        module="anabranch.core.diskless.last_commits",
        old="                self._heard = change.runs[-1].object_id\n",
        new="                pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SET_BACK}[a standby-another's]",
    ),
    Mutant(
        name="tables-made-anew-under-brokers",
        rule="a broker does not create tables again that it has used and that are gone",
        module=POSTGRES_COORDINATOR,
        old='        self._known.check_mark(stored.get("mark", ""), f"coordinator {self._name}")\n',
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{SET_BACK}[made anew-its own]",
    ),
    Mutant(
        name="numbers-written-ahead",
        rule="after a failover, the greatest assigned number is known exactly",
        module=POSTGRES_TABLES,
        old="        self.skip_ids(last)\n        return list(",
        new="        self.skip_ids(last + 32)\n        return list(",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}/test_set_back.py"
        "::test_numbers_that_were_given_are_exactly_known_after_a_server_was_killed",
    ),
    Mutant(
        name="name-taken-is-a-failed-put",
        rule="a name taken by other bytes shows that the coordinator is an older copy",
        module="anabranch.core.diskless.broker",
        old="        if isinstance(result, ObjectTaken):",
        new="        if False:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/diskless/test_data_path.py"
        "::test_a_name_that_is_taken_by_other_bytes_shows_an_older_copy",
    ),
    Mutant(
        name="notes-not-read-again",
        rule="the notes of all brokers are compared again after a listener has ended",
        module="anabranch.server.diskless.shell",
        old="            self._start(self._check_again(self._stores))\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{OLDER_TESTS}::test_a_broker_that_heard_of_no_commit_finds_the_notes_of_others",
    ),
    Mutant(
        name="records-without-time-are-old",
        rule="the retention of records without a timestamp counts from their commit",
        module="anabranch.core.diskless.expired_runs",
        old="        newest_ms = max_timestamp if max_timestamp >= 0 else committed_ms\n",
        new="        newest_ms = max_timestamp\n",
        seed=NO_SCHEDULE,
        caught_by=f"{COORDINATOR_TESTS}/test_any_coordinator.py"
        "::test_retention_by_time_keeps_records_without_a_timestamp_from_their_commit_on[sqlite]",
    ),
    Mutant(
        name="any-store-will-do",
        rule="a store of another coordinator is refused, even if it is empty",
        module="anabranch.server.diskless.stores",
        old="            await claim_store(objects, coordinator, cluster_id, setting)\n",
        new="            from anabranch.stores.objects.store_check import check_store\n"
        "            await check_store(objects, cluster_id)\n",
        seed=NO_SCHEDULE,
        caught_by="tests/bad_input/test_bad_stores.py::test_a_store_that_is_not_the_coordinator_s",
    ),
    Mutant(
        name="prepared-counts-as-committed",
        rule="an object that is only prepared is not committed, whatever a broker noted",
        module="anabranch.core.diskless.commit",
        old="    return state in (ObjectState.PREPARED, ObjectState.REFUSED)\n",
        new="    return state is ObjectState.REFUSED\n",
        seed=NO_SCHEDULE,
        caught_by="tests/stores/coordinator/test_any_coordinator.py"
        "::test_what_was_committed_is_told_from_what_never_was[sqlite]",
    ),
    Mutant(
        name="own-change-out-of-order",
        rule="changes of this process and of other processes are reported in order",
        module="anabranch.stores.coordinator.sqlite",
        old="            if own.before == counter:\n",
        new="            if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/stores/coordinator/test_sqlite.py"
        "::test_own_changes_are_heard_without_reading_and_others_in_order[aoo]",
    ),
)
