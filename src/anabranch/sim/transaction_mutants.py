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

SCHEDULED: tuple[Mutant, ...] = ()
