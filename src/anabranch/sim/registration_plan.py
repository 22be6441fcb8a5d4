"""What a schedule does around the registration of brokers, drawn beside its plan.

What: faults of the family `registration`, for some schedules. Rule kept: they are drawn from a
stream of their own, so that the rest of a seed's plan is the same with them and without them;
brokers get the folders that a fault of folders asks for. Not here: carrying it out
(`registration_faults.py`).
"""

from __future__ import annotations

from dataclasses import replace
from operator import attrgetter
from random import Random

from anabranch.sim.plan import FAULTS, Plan, draw_fault

SHARE = 0.35
"""How many schedules have such faults."""
FOLDERS_FAIL = "folders-fail"
"""The kind that asks for more than one log folder."""


def with_registration_faults(plan: Plan) -> Plan:
    """The plan with what happens to registrations."""
    random = Random(f"{plan.seed}/registration")
    if random.random() >= SHARE:
        return plan
    count = random.choice((1, 2, 3))
    drawn = [draw_fault(random, FAULTS["registration"]) for _ in range(count)]
    least = 2 if any(fault.kind == FOLDERS_FAIL for fault in drawn) else 1
    faults = sorted((*plan.faults, *drawn), key=attrgetter("at_us"))
    return replace(plan, folders=max(plan.folders, least), faults=tuple(faults))
