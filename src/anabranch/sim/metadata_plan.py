"""What a schedule does to the metadata log, drawn beside its plan.

What: how soon nodes write snapshots of their copies, and faults of the metadata log: a controller
whose log begins later, disks of copies that fail or fill up. Rule kept: all of it is drawn from a
stream of its own, so that the rest of a seed's plan is the same with it and without it. Not here:
carrying it out (`metadata_faults.py`).
"""

from __future__ import annotations

from dataclasses import replace
from random import Random

from anabranch.sim.plan import FAULTS, Plan, draw_fault
from anabranch.sim.plan_parts import Fault

FEW_BYTES = "metadata.log.max.record.bytes.between.snapshots"


def with_metadata_faults(plan: Plan) -> Plan:
    """The plan with what happens to the metadata log."""
    random = Random(f"{plan.seed}/metadata")
    config = {**dict(plan.config), FEW_BYTES: str(random.choice((1_500, 4_000, 20_000_000)))}
    count = random.choice((0, 0, 0, 2, 4, 6))
    drawn = tuple(draw_fault(random, FAULTS["metadata"]) for _ in range(count))
    return replace(
        plan,
        config=tuple(sorted(config.items())),
        faults=tuple(sorted((*plan.faults, *drawn), key=_begins)),
    )


def _begins(fault: Fault) -> int:
    return fault.at_us
