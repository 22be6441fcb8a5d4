"""Broken rules of transactions that schedules of the simulator catch.

`seed` is of a schedule with transactions (`transaction_plan.py`). Not here: those that a test of
the one decision catches (`mutant_table.py`).
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

ROOM = "anabranch.core.coordination.transactions"
VERIFYING = "anabranch.core.broker.verifying"
PRODUCERS = "anabranch.core.log.producers"
UNDECIDED = "anabranch.core.groups.undecided"

SCHEDULED = (
    Mutant(
        name="verification-skipped",
        rule="the coordinator is asked before the first batch of a transaction",
        module=VERIFYING,
        old="if producers.is_open(producer_id, epoch):",
        new="if True:",
        seed=131,
        caught_by="stable-held",
    ),
    Mutant(
        name="zombie-ends-a-transaction",
        rule="only the producer of the present epoch ends a transaction",
        module=f"{ROOM}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    if before.state in DECIDED",
        new="    if before.state in DECIDED",
        seed=147,
        caught_by="zombie",
    ),
    Mutant(
        name="late-transaction-is-not-fenced",
        rule="a transaction that is aborted for its timeout raises the epoch",
        module=f"{ROOM}.transaction",
        old="become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))\n",
        new="become(PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch)\n",
        seed=131,
        caught_by="aborted-read",
    ),
    Mutant(
        name="partition-without-a-marker",
        rule="a transaction is complete when each partition has its marker",
        module=f"{ROOM}.markers",
        old="                if code in HAS_NO_NEED:\n",
        new="                if True:\n",
        seed=1000000139,
        caught_by="stable-held",
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
        rule="the last stable offset waits until all have the marker",
        module=PRODUCERS,
        old="firsts = [first for first, _ in self.unreplicated]",
        new="firsts = []",
        seed=115,
        caught_by="beyond-stable",
    ),
    Mutant(
        name="aborted-before-the-fetch-not-told",
        rule="a reader is told of aborted transactions that began before where it reads",
        module="anabranch.core.log.lookup",
        old="if entry.last_offset >= first and entry.first_offset < upto:",
        new="if entry.first_offset >= first and entry.first_offset < upto:",
        seed=115,
        caught_by="aborted-read",
    ),
    Mutant(
        name="commit-answered-before-it-is-logged",
        rule="a commit is answered when its record is committed",
        module=f"{ROOM}.coordinator",
        old="            shard.change(transactional_id, after, now_ms, then)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        new="            shard.change(transactional_id, after, now_ms, then)\n"
        "            goes_on = completed(after, now_ms)\n"
        "            answer.give(Decision(ErrorCode.NONE, goes_on.producer_id,"
        " goes_on.producer_epoch))\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        seed=147,
        caught_by="lost-write",
    ),
    Mutant(
        name="aborted-offsets-count",
        rule="offsets of a transaction that was aborted are forgotten",
        module=UNDECIDED,
        old="            if committed and offset is not None and written > stands:",
        new="            if offset is not None and written > stands:",
        seed=267,
        caught_by="group-lost",
    ),
    Mutant(
        name="empty-batch-stays-in-a-transaction",
        rule="a batch that compaction leaves without a producer is of no transaction",
        module="anabranch.core.log.compaction",
        old="attributes = header.attributes & ~(TRANSACTIONAL_BIT | CONTROL_BIT)",
        new="attributes = header.attributes",
        seed=20475,
        caught_by="beyond-stable",
    ),
)
