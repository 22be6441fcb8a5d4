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
        name="zombie-ends-a-transaction",
        rule="only the producer of the present epoch ends a transaction",
        module=f"{ROOM}.rules",
        old="    if before.producer_epoch != producer.epoch:\n"
        "        raise ApiError(ErrorCode.PRODUCER_FENCED)\n"
        "    if before.state in DECIDED",
        new="    if before.state in DECIDED",
        seed=104,
        caught_by="zombie",
    ),
    Mutant(
        name="late-transaction-is-not-fenced",
        rule="a transaction that is aborted for its timeout raises the epoch",
        module=f"{ROOM}.transaction",
        old="become(PREPARE_EPOCH_FENCE, producer_epoch=_raised(before))\n",
        new="become(PREPARE_EPOCH_FENCE, producer_epoch=before.producer_epoch)\n",
        seed=104,
        caught_by="aborted-read",
    ),
)
