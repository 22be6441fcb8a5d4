"""Broken rules of transactions that schedules of the simulator catch.

`seed` is of a schedule with transactions (`transaction_plan.py`). Not here: those that a test of
the one decision catches (`mutant_table.py`).
"""

from __future__ import annotations

from anabranch.sim.mutants import Mutant

ROOM = "anabranch.core.coordination.transactions"
VERIFYING = "anabranch.core.broker.verifying"
PRODUCERS = "anabranch.core.log.producers"
OFFSETS = "anabranch.core.groups.offsets"

SCHEDULED = (
    Mutant(
        name="verification-skipped",
        rule="the coordinator is asked before the first batch of a transaction",
        module=VERIFYING,
        old="if producers.is_open(producer_id, epoch):",
        new="if True:",
        seed=240,
        caught_by="stable-held",
    ),
    Mutant(
        name="every-partition-is-verified",
        rule="a partition is verified when it takes part in the transaction under way (KIP-890)",
        module=f"{ROOM}.rules",
        old="ErrorCode.NONE if partition in before.partitions else ErrorCode.TRANSACTION_ABORTABLE",
        new="ErrorCode.NONE",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="late-batch-after-a-marker",
        rule="what a coordinator said before a marker begins no transaction behind it",
        module=VERIFYING,
        old="if code is ErrorCode.NONE and self.is_overtaken:",
        new="if False:",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="zombie-not-fenced",
        rule="a producer of an older epoch is refused",
        module=f"{ROOM}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    return before\n",
        new="    return before\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="zombie-ends-a-transaction",
        rule="only the producer of the present epoch ends a transaction",
        module=f"{ROOM}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    if before.state in DECIDED",
        new="    if before.state in DECIDED",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="next-process-has-the-same-epoch",
        rule="each process that begins to use an id raises its epoch",
        module=f"{ROOM}.transaction",
        old="        producer_epoch=before.producer_epoch + 1\n    )\n",
        new="        producer_epoch=before.producer_epoch\n    )\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="late-transaction-is-not-fenced",
        rule="a transaction that is aborted for its timeout raises the epoch",
        module=f"{ROOM}.transaction",
        old="become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))\n",
        new="become(PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch)\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="late-transaction-goes-on",
        rule="a transaction that outlives its timeout is aborted",
        module=f"{ROOM}.transaction",
        old="        return self.state is ONGOING and self.started_ms + self.timeout_ms < now_ms\n",
        new="        return False\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="transaction-under-way-expires",
        rule="an id with a transaction under way is not forgotten",
        module=f"{ROOM}.transaction",
        old="self.state in IDLE and self.updated_ms <= now_ms - expiration_ms",
        new="self.updated_ms <= now_ms - expiration_ms // 5",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="commit-answered-before-it-is-logged",
        rule="a commit is answered when all in-sync replicas have it",
        module=f"{ROOM}.coordinator",
        old="        else:\n"
        "            shard.change(transactional_id, after, now_ms, then)\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        new="        else:\n"
        "            goes_on = completed(after, now_ms)\n"
        "            shard.change(transactional_id, after, now_ms, then)\n"
        "            answer.give(Decision(ErrorCode.NONE, *goes_on[:2]))\n"
        "        return shard, answer\n"
        "\n"
        "    def abort(",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="markers-before-the-decision-is-committed",
        rule="no marker is sent before the decision is committed",
        module=f"{ROOM}.coordinator",
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
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="decisions-carried-out-before-they-are-committed",
        rule="a new coordinator carries out what it read once that is committed",
        module=f"{ROOM}.coordinator",
        old="        shard.when_committed(loader.read_to, ready, now_ms)\n",
        new="        ready(now_ms)\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="decision-of-the-past-is-left-alone",
        rule="a new coordinator carries out what the one before it decided",
        module=f"{ROOM}.coordinator",
        old="                if each.state in DECIDED:\n",
        new="                if False:\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="partition-without-a-marker",
        rule="a transaction is complete when each partition has its marker",
        module=f"{ROOM}.markers",
        old="                if code in HAS_NO_NEED:\n",
        new="                if True:\n",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="partition-without-a-leader-is-left-out",
        rule="a partition that has no leader gets its marker when it has one",
        module=f"{ROOM}.markers",
        old="                sending.waiting.add(place)\n            else:\n                queue",
        new="                sending.left.discard(place)\n            else:\n                queue",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="late-marker-ends-the-next-transaction",
        rule="a marker that raises the epoch is written once",
        module="anabranch.core.api.p27_write_txn_markers",
        old="if raises_epoch and producers.has_marker(producer_id, epoch):",
        new="if False:",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="marker-of-a-deposed-coordinator",
        rule="a marker of an older coordinator epoch is refused",
        module=PRODUCERS,
        old="if producer is not None and coordinator_epoch < producer.coordinator_epoch:",
        new="if False:",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="marker-of-an-older-epoch",
        rule="a marker of an epoch that a newer one has fenced is refused",
        module=PRODUCERS,
        old="        self.check_epoch(producer_id, epoch)\n"
        "        producer = self.producers.get(producer_id)\n"
        "        if producer is not None and coordinator_epoch",
        new="        producer = self.producers.get(producer_id)\n"
        "        if producer is not None and coordinator_epoch",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="epoch-not-raised-at-the-end",
        rule="each end of a transaction raises the producer's epoch (KIP-890)",
        module=f"{ROOM}.transaction",
        old="    if client_version < BUMPS_EPOCHS:\n"
        "        return after\n"
        "    return after._replace",
        new="    if client_version < BUMPS_EPOCHS + 1:\n"
        "        return after\n"
        "    return after._replace",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="open-transaction-forgotten-at-a-restart",
        rule="the last stable offset stops at transactions that were open before a restart",
        module="anabranch.core.log.producer_snapshot",
        old="if transaction_first_offset >= 0:",
        new="if False:",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="ended-transaction-forgotten-at-a-restart",
        rule="a restart keeps the last stable offset before markers that not all have",
        module="anabranch.core.broker.hosting.logs",
        old="        log.recall_unreplicated(replica.high_watermark)\n",
        new="",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="marker-counts-before-it-is-replicated",
        rule="the last stable offset waits until all have the marker",
        module=PRODUCERS,
        old="firsts = [first for first, _ in self.unreplicated]",
        new="firsts = []",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="stable-offset-forgets-at-a-cut",
        rule="a cut leaves the last stable offset before markers that not all have",
        module="anabranch.core.log.producer_replay",
        old="if one[1] < log.end_offset)",
        new="if False)",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="aborted-list-lost-at-a-cut",
        rule="a cut keeps the aborted transactions before it",
        module="anabranch.core.log.shortening",
        old="[one for one in ranges or [] if one.last_offset < end_offset]",
        new="[]",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="aborted-before-the-fetch-not-told",
        rule="a reader is told of aborted transactions that began before where it reads",
        module="anabranch.core.log.lookup",
        old="if entry.last_offset >= first and entry.first_offset < upto:",
        new="if entry.first_offset >= first and entry.first_offset < upto:",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="offsets-before-the-marker",
        rule="offsets of a transaction count once its marker is committed",
        module=OFFSETS,
        old="        shard.write_batches([marker], now_ms, effect)",
        new="        shard.write_batches([marker], now_ms, lambda _: None)\n        effect(now_ms)",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="offsets-of-an-aborted-transaction-count",
        rule="offsets of an aborted transaction are forgotten",
        module=OFFSETS,
        old="            if committed:\n                group = _named(",
        new="            if True:\n                group = _named(",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="undecided-offsets-stay-behind",
        rule="a coordinator of a group that moved knows the offsets of open transactions",
        module="anabranch.core.groups.coordinator",
        old="        shard.undecided = loader.undecided\n",
        new="",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="undecided-offsets-told-as-stable",
        rule="a reader that wants stable offsets waits for what is undecided (KIP-447)",
        module="anabranch.core.api.p09_offset_fetch",
        old="shard.undecided.of(group_id) if request.body.require_stable else ()",
        new="()",
        seed=0,
        caught_by="",
    ),
    Mutant(
        name="zombie-member-commits",
        rule="a transaction commits offsets of a member in its generation only",
        module=OFFSETS,
        old="if generation_id < 0 and (group.state is EMPTY or not is_named):",
        new="if group.state is EMPTY or generation_id < group.generation_id:",
        seed=0,
        caught_by="",
    ),
)
