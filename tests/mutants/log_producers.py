"""Broken rules of a log's producers and transactions: sequences, expiry, the last stable offset."""

from __future__ import annotations

from tests.mutants.mutant import NO_SCHEDULE, Mutant

DROPPED = "tests/core/replication/test_dropped_transactions.py"
FORGETTING_TESTS = "tests/core/log/test_forgetting_producers.py"
LOG_ANY_ORDER = "tests/core/log/test_transactions_any_order.py"
PRODUCERS = "anabranch.core.log.producers"
SHORTENED = (
    "tests/core/log/test_producers_of_a_shortened_log.py"
    "::test_a_power_cut_takes_nothing_that_is_known_of_producers"
)
UNREPLICATED_TESTS = "tests/core/log/test_unreplicated.py"
SNAPSHOTS = "anabranch.core.log.producer_snapshot"

MUTANTS = (
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
        name="open-transaction-forgotten-at-a-restart",
        rule="the last stable offset stops at transactions that were open before a restart",
        module="anabranch.core.log.producer_snapshot",
        old="if transaction_first_offset >= 0:",
        new="if False:",
        seed=123,
        caught_by="beyond-stable",
    ),
    Mutant(
        name="marker-counts-before-it-is-replicated",
        rule="the last stable offset waits until all replicas have the marker",
        module=PRODUCERS,
        old="firsts = [first for first, _ in self.unreplicated]",
        new="firsts = []",
        seed=115,
        caught_by="beyond-stable",
    ),
    Mutant(
        name="aborted-before-the-fetch-not-told",
        rule="a reader is told of aborted transactions that began before its fetch offset",
        module="anabranch.core.log.lookup",
        old="if entry.last_offset >= first and entry.first_offset < upto:",
        new="if entry.first_offset >= first and entry.first_offset < upto:",
        seed=115,
        caught_by="aborted-read",
    ),
    Mutant(
        name="cut-keeps-the-producers-of-its-tail",
        rule="truncation forgets producers and transactions of the dropped records",
        module="anabranch.core.log.truncation",
        old="    log.producers = state_after_cut(log)\n    decided",
        new="    decided",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wcw]",
    ),
    Mutant(
        name="dropped-log-keeps-its-transactions",
        rule="a log that starts over has no open transaction",
        module="anabranch.core.log.truncation",
        old="    log.producers = ProducerStates(log.producers.now_ms)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by=f"{DROPPED}::test_what_is_dropped_leaves_nothing_behind[wca]",
    ),
    Mutant(
        name="dropped-log-keeps-its-snapshots",
        rule="a log that starts over keeps no snapshot of producers for the next process",
        module="anabranch.core.log.truncation",
        old="    _drop_snapshots(log, lambda _taken: True)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_producers_of_a_cut_log.py"
        "::test_a_log_that_starts_over_knows_no_producer_also_after_a_restart[False]",
    ),
    Mutant(
        name="fenced-epoch-held-up",
        rule="a batch of a fenced producer epoch is not held up",
        module=PRODUCERS,
        old="        if producer.epoch > epoch:\n            return True\n",
        new="        if producer.epoch > epoch:\n            return False\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/api/test_sequence_gaps.py::test_what_a_newer_epoch_has_fenced_does_not_wait",
    ),
    Mutant(
        name="producers-expire-by-their-records",
        rule="a producer expires by when it last wrote, not by its records' timestamps",
        module=PRODUCERS,
        old="and now_ms - producer.last_written_ms >= expiration_ms",
        new="and now_ms - producer.last_timestamp >= expiration_ms",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="who-ended-a-transaction-expires-at-a-restart",
        rule="a restart finds markers that not all replicas have, also of producers that expired",
        module="anabranch.core.log.recovery",
        old="producer_id_expiration_ms, keeps_ended=True)",
        new="producer_id_expiration_ms)",
        seed=NO_SCHEDULE,
        caught_by=f"{UNREPLICATED_TESTS}"
        "::test_a_marker_is_found_also_where_its_producer_has_expired",
    ),
    Mutant(
        name="who-ended-a-transaction-expires-before-all-have-its-marker",
        rule="a producer that ended a transaction does not expire before all replicas have the end",
        module=PRODUCERS,
        old="keeps_ended = keeps_ended or bool(self.unreplicated)",
        new="keeps_ended = keeps_ended or False",
        seed=NO_SCHEDULE,
        caught_by=f"{UNREPLICATED_TESTS}"
        "::test_a_marker_is_found_also_where_its_producer_has_expired",
    ),
    Mutant(
        name="restart-forgets-when-producers-wrote",
        rule="a snapshot contains when a producer last wrote",
        module="anabranch.core.log.producer_snapshot",
        old="_entry(producer, last, producer.last_written_ms)",
        new="_entry(producer, last, producer.last_timestamp)",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="retries-known-by-record-time",
        rule="a producer that wrote recently may retry, whatever timestamps its records have",
        module=SNAPSHOTS,
        old="newest_ms = max((each.last_written_ms for each in states), default=0)",
        new="newest_ms = max((each.last_timestamp for each in states), default=0)",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="snapshot-has-one-batch-of-each",
        rule="a snapshot contains all batches that a producer may send again",
        module=SNAPSHOTS,
        old="            entries += _in_flight(producer)\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_producer_is_forgotten_by_when_it_wrote",
    ),
    Mutant(
        name="snapshot-within-a-segment-outlives-a-cut",
        rule="a cut takes the snapshots of producers behind it",
        module="anabranch.core.log.truncation",
        old="    _drop_snapshots(log, lambda taken: taken > end_offset)\n",
        new="",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_producers_of_a_cut_log.py"
        "::test_the_batches_of_each_producer_are_known",
    ),
    Mutant(
        name="cut-counts-as-writing",
        rule="a cut does not change when a producer wrote",
        module="anabranch.core.log.producer_replay",
        old="            producer.last_written_ms = other.last_written_ms\n",
        new="            pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_cut_does_not_begin_the_time_again",
    ),
    Mutant(
        name="compacted-log-trusts-when-it-was-read",
        rule="a compacted log that is read again goes by the records' time",
        module="anabranch.core.log.producer_replay",
        old="    if log.config.compacted and producer is not None:\n",
        new="    if False:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{FORGETTING_TESTS}::test_a_compacted_log_that_is_read_again_goes_by_its_records",
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
        name="aborted-list-lost-at-a-cut",
        rule="truncation keeps the aborted transactions before the cut",
        module="anabranch.core.log.truncation",
        old="[each for each in aborted_ranges(log, segment) if each.last_offset < end_offset]",
        new="[]",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}"
        "::test_a_reader_sees_what_was_committed_and_stops_at_what_is_open[1]",
    ),
    Mutant(
        name="index-of-what-was-cut",
        rule="an index on disk does not count for a segment that is still written to",
        module="anabranch.core.log.lookup",
        old="    if held is not None or segment is log.active:\n",
        new="    if held is not None:\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_an_index_on_the_disk_is_not_of_what_was_cut",
    ),
    Mutant(
        name="missing-index-says-that-nothing-was-aborted",
        rule="truncation rebuilds a missing index before it uses it",
        module="anabranch.core.log.truncation",
        old="in aborted_ranges(log, segment)",
        new="in log.aborted.get(segment.base_offset, ())",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[15]",
    ),
    Mutant(
        name="older-index-left-by-a-full-disk",
        rule="an index that a full disk keeps from being replaced is removed",
        module="anabranch.core.log.segment_roll",
        old="            forget_beside(log, segment)\n",
        new="            return\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[48]",
    ),
    Mutant(
        name="older-list-of-the-aborted-left-by-a-full-disk",
        rule="a list of aborted transactions that a full disk keeps from being replaced is removed",
        module="anabranch.core.log.side_files",
        old="        log.files.remove(segment.stem + TRANSACTIONS)\n        return\n",
        new="        return\n",
        seed=NO_SCHEDULE,
        caught_by=f"{LOG_ANY_ORDER}::test_the_same_where_some_indexes_cannot_be_written[211]",
    ),
    Mutant(
        name="stable-offset-forgets-at-a-cut",
        rule="truncation keeps the last stable offset before markers that not all replicas have",
        module="anabranch.core.log.producer_replay",
        old="if one[1] < log.end_offset)",
        new="if False)",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_transactions_any_order.py"
        "::test_a_reader_sees_what_was_committed_and_stops_at_what_is_open[53]",
    ),
    Mutant(
        name="ended-transaction-forgotten-at-a-restart",
        rule="a restart keeps the last stable offset before markers that not all replicas have",
        module="anabranch.core.log.unreplicated",
        old="        producers.unreplicated = deque(_ended_from(log, high_watermark))\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_transactions_any_order.py"
        "::test_a_reader_sees_what_was_committed_and_stops_at_what_is_open[1]",
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
    Mutant(
        name="each-clean-stop-leaves-a-snapshot",
        rule="clean stops leave few snapshots of producers where no segment begins",
        module="anabranch.core.log.side_files",
        old="    if begins and len(strays) <= STRAYS_KEPT:\n",
        new="    if True:\n",
        seed=NO_SCHEDULE,
        caught_by="tests/core/log/test_stray_snapshots.py"
        "::test_a_month_of_clean_restarts_leaves_few_snapshots_beside_those_of_segments",
    ),
    Mutant(
        name="snapshot-of-a-new-start-waits-for-a-round",
        rule="what a log knows of producers is stored before the segments go that tell it",
        module="anabranch.core.log.truncation",
        old="elif any(end_offset == offset for end_offset, _ in log.unsynced_segments):",
        new="elif False:",
        seed=NO_SCHEDULE,
        caught_by=f"{SHORTENED}[1-False-False]",
    ),
    Mutant(
        name="snapshot-that-a-full-disk-refused-is-not-made-up-for",
        rule="a segment is removed only when a stored snapshot has the state of its producers",
        module="anabranch.core.log.truncation",
        old="log.files.write_atomic(path, encode_snapshot(state_at(log, offset)), sync=True)",
        new="pass",
        seed=NO_SCHEDULE,
        caught_by=f"{SHORTENED}[3-True-False]",
    ),
    Mutant(
        name="snapshot-goes-before-its-segment-is-gone",
        rule="a segment that a power cut brings back still has its snapshot of producers",
        module="anabranch.core.log.truncation",
        old="        sync_names(log)  # one that came back needs its snapshot\n",
        new="        pass\n",
        seed=NO_SCHEDULE,
        caught_by=f"{SHORTENED}[6-False-False]",
    ),
)
