"""Broken rules of a log: retention, recovery, leader epochs, indexes."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

COMPACTED_TESTS = "tests/core/replication/test_compacted_logs.py"
COMPOSITE = "anabranch.core.partition.composite"
COMPOSITE_TESTS = "tests/core/partition/test_composite.py"
REMOTE_TAIL = "anabranch.core.remote.tail"
REMOTE_TAIL_TESTS = "tests/core/remote/test_tail.py"
LOCAL_START_TESTS = "tests/core/log/test_local_start.py"
HISTORIES_TESTS = "tests/core/log/test_histories.py"
RECOVERY = "anabranch.core.log.recovery"

MUTANTS = (
    Mutant(
        name="wrong-index-made-by-who-may-not-wait",
        rule="an index that is wrong is made again in a thread while clients are served",
        module="anabranch.core.log.reader",
        old="    if not blocking:\n        have_indexes(log, segment)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_lost_offsets.py::test_who_may_not_wait_reads_no_segment_whole",
    ),
    Mutant(
        name="far-begin-is-skipped",
        rule="a log whose first segment begins behind its start is read from that segment on",
        module="anabranch.core.log.log",
        old="self.segments[max(0, self.segment_index(offset)) :]",
        new="self.segments[self.segment_index(offset) :]",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_accepted_batches.py::test_what_is_accepted_is_read_again[True]",
    ),
    Mutant(
        name="far-records-at-near-offsets",
        rule="a record of a large batch has its own offset",
        module="anabranch.core.wire.records",
        old="distance = known[further] if further < _SHORT else _varint_bytes(further)",
        new="distance = known[further % _SHORT]",
        seed=NO_SCHEDULE,
        caught_by="tests/core/wire/test_batch.py::test_records_far_into_a_batch_are_read_back"
        "[0-0-None]",
    ),
    Mutant(
        name="expiry-above-the-high-watermark",
        rule="retention deletes only what is committed",
        module="anabranch.core.log.truncation",
        old="if end_offset > high_watermark or (segment is log.active and segment.size == 0):",
        new="if segment is log.active and segment.size == 0:",
        seed=1000000027,
        caught_by="L1",
    ),
    Mutant(
        name="recovery-forgets-epochs",
        rule="recovery keeps the known leader epochs where the batches agree",
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
        rule="batches override an epoch table that is older than the log",
        module="anabranch.core.log.epochs",
        old="if epoch < 0 or epoch == self.epoch_of(offset):",
        new="if epoch <= self.latest:",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}::test_a_table_older_than_the_log_gives_way_to_the_batches",
    ),
    Mutant(
        name="aborted-in-one-part-alone",
        rule="a transaction in the older part of a log may be aborted in the newer one",
        module=COMPOSITE,
        old="list(dict.fromkeys((*older, *found)))",
        new="list(older)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPOSITE_TESTS}::test_an_older_part_elsewhere_changes_no_answer[2]",
    ),
    Mutant(
        name="epoch-of-the-older-part-unknown",
        rule="the older part of a log knows the leader epochs that ended before the local one",
        module=COMPOSITE,
        old="if log.start_offset < log.local_start_offset and epoch < log.epochs.earliest:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPOSITE_TESTS}::test_an_older_part_elsewhere_changes_no_answer[2]",
    ),
    Mutant(
        name="time-is-searched-on-the-disk-alone",
        rule="a search by time begins in the older part of a log",
        module=COMPOSITE,
        old="            if found is not None and found.offset < log.local_start_offset:",
        new="            if found is None:",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPOSITE_TESTS}::test_an_older_part_elsewhere_changes_no_answer[1]",
    ),
    Mutant(
        name="remote-read-past-its-limit",
        rule="a remote read ends before what its reader may not see",
        module=REMOTE_TAIL,
        old="if header.last_offset >= upto:",
        new="if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{REMOTE_TAIL_TESTS}::test_a_read_ends_before_its_limit",
    ),
    Mutant(
        name="remote-segment-of-another-history",
        rule="a remote segment answers only for offsets of epochs that the log has",
        module=REMOTE_TAIL,
        old="if entry.epoch <= earliest and entry.start_offset < lineage.known_from:",
        new="if entry.start_offset < lineage.known_from:",
        seed=NO_SCHEDULE,
        caught_by=f"{REMOTE_TAIL_TESTS}"
        "::test_a_log_that_began_in_the_middle_takes_the_epochs_of_what_was_copied",
    ),
    Mutant(
        name="harmed-object-is-asked-for-at-once",
        rule="a remote object that cannot be read is refused for a moment before it is read again",
        module="anabranch.core.remote.cache",
        old="        if self._now_ms() < until_ms:",
        new="        if False:",
        seed=NO_SCHEDULE,
        caught_by=f"{REMOTE_TAIL_TESTS}"
        "::test_a_harmed_segment_is_refused_for_a_moment_and_takes_nothing_offline[missing]",
    ),
    Mutant(
        name="start-of-a-copy-from-the-middle-forgotten",
        rule="a copy that begins in the middle of a log has noted where the log begins",
        module="anabranch.core.log.logs",
        old="        if log is not None and is_known and key not in self._log_starts:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOCAL_START_TESTS}"
        "::test_the_first_segments_go_when_a_checkpoint_has_where_the_log_begins",
    ),
    Mutant(
        name="start-that-was-never-noted-counts-as-noted",
        rule="local segments stay until some checkpoint has the start of the log, be it 0",
        module="anabranch.core.log.state",
        old="        self.noted_start_offset = NOT_NOTED\n",
        new="        self.noted_start_offset = 0\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOCAL_START_TESTS}"
        "::test_the_first_segments_go_when_a_checkpoint_has_where_the_log_begins",
    ),
    Mutant(
        name="log-start-that-no-file-tells",
        rule="local segments go only when a checkpoint has the start of the whole log",
        module="anabranch.core.log.truncation",
        old="is_noted = log.noted_start_offset >= min(log.start_offset, end_offset)",
        new="is_noted = True",
        seed=NO_SCHEDULE,
        caught_by=f"{LOCAL_START_TESTS}::test_segments_stay_until_a_checkpoint_has_the_log_start",
    ),
    Mutant(
        name="local-retention-raises-the-log-start",
        rule="what another store holds can be read after it left the local disk",
        module="anabranch.core.log.truncation",
        old="        _raise_local_start(log, log.segments[len(doomed)].base_offset)",
        new="        raise_start(log, log.segments[len(doomed)].base_offset)",
        seed=NO_SCHEDULE,
        caught_by=f"{LOCAL_START_TESTS}::test_what_is_dropped_is_still_of_the_log",
    ),
    Mutant(
        name="deleted-batches-override-the-table",
        rule="batches before a log's start say nothing against an epoch table that was cut there",
        module="anabranch.core.log.epochs",
        old="if offset < self.entries[0][1] <= log_start_offset:",
        new="if offset == self.entries[0][1] <= log_start_offset:",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}"
        "::test_what_lies_before_the_log_s_start_does_not_contradict_a_table_that_was_cut_there",
    ),
    Mutant(
        name="later-batch-takes-the-gap-at-the-start",
        rule="the gap at a log's start goes to the epoch of the deleted batch before it",
        module=RECOVERY,
        old="is_first = position == 0 and segment is log.segments[0] and ",
        new="is_first = ",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}"
        "::test_a_lost_table_gives_a_gap_at_the_log_s_start_to_the_batch_before_it",
    ),
    Mutant(
        name="gap-at-the-start-has-no-epoch",
        rule="a gap that compaction left at a log's start belongs to the epoch of the next batch",
        module="anabranch.core.log.appends",
        old="assign(header.leader_epoch, log_start if is_first else offset)",
        new="assign(header.leader_epoch, offset)",
        seed=NO_SCHEDULE,
        caught_by=f"{COMPACTED_TESTS}"
        "::test_an_old_leader_is_told_of_it_where_the_begin_of_the_epoch_was_deleted[True-False]",
    ),
    Mutant(
        name="rebuilt-table-begins-behind-a-gap",
        rule="a rebuilt epoch table gives a gap at the log's start to the epoch behind it",
        module=RECOVERY,
        old="        if not has_table:\n            log.epochs.reach_back(log.local_start_offset)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}"
        "::test_a_lost_table_gives_a_gap_at_the_log_s_start_to_the_epoch_behind_it",
    ),
    Mutant(
        name="hole-taken-for-compaction",
        rule="a hole between segments that were never synced is the log's end",
        module=RECOVERY,
        old="compacted_upto or left_out >= FAR_OFFSETS:",
        new="compacted_upto or log.config.compacted:",
        seed=NO_SCHEDULE,
        caught_by=f"{HISTORIES_TESTS}"
        "::test_epochs_end_where_they_ended_and_every_reader_comes_to_the_end",
    ),
    Mutant(
        name="holes-are-looked-for-in-any-size",
        rule="the search for holes is bounded in bytes, too",
        module="anabranch.core.log.holes",
        old="if not left or left_bytes <= 0:",
        new="if not left:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_holes.py::test_of_large_batches_fewer_are_looked_at",
    ),
    Mutant(
        name="torn-time-index-read-as-empty",
        rule="an index file that ends within an entry is torn, even if it ends in zeros",
        module="anabranch.core.log.indexes",
        old="        if len(encoded) % TIME_ENTRY_BYTES:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_indexes.py::test_a_torn_time_index_is_refused[2]",
    ),
    Mutant(
        name="marker-goes-before-the-snapshot",
        rule="a marker stays while a snapshot of producers says that its transaction is open",
        module="anabranch.core.log.compacted_transactions",
        old="        is_open = producer_id in self._open\n",
        new="        is_open = False\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_compacted_transactions.py"
        "::test_compaction_changes_nothing_that_recovery_finds[79]",
    ),
    Mutant(
        name="pass-over-a-log-that-was-cut",
        rule="compaction replaces no segment that was truncated and closed again since it was read",
        module="anabranch.core.log.cleaner",
        old=" or log.cuts != before.cuts:",
        new=" or log.active in before.segments:",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_cleaner.py::test_what_comes_to_a_log_under_a_pass_stays",
    ),
    Mutant(
        name="cut-between-swap-and-clearing-up",
        rule="a log that is cut keeps nothing in place that compaction has replaced",
        module="anabranch.core.log.truncation",
        old="    if log.replaced:\n        log.files.sync_dir",
        new="    if False:\n        log.files.sync_dir",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_cleaner.py"
        "::test_a_log_that_is_cut_and_filled_under_a_pass_keeps_what_it_is_filled_with[3--1]",
    ),
    Mutant(
        name="clean-point-above-the-end",
        rule="a log that was cut under a pass does not count as clean up to where that has read",
        module="anabranch.core.log.cleaner",
        old="        if log.cuts != before.cuts:\n",
        new="        if False:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_cleaner.py"
        "::test_a_log_that_is_cut_and_filled_under_a_pass_keeps_what_it_is_filled_with",
    ),
)
