"""Shrinking: the smallest plan that still ends in the same violation.

What: faults are left out, then operations, clients, partitions and brokers, by halves first and one
by one at last (delta debugging), for as long as the violation of the same id remains. Rule kept:
a plan is drawn up front and a part left out changes no other draw; every accepted step was run.
Source: Zeller and Hildebrandt, Simplifying and Isolating Failure-Inducing Input (2002). Not here:
the search for a violation (campaign.py).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from anabranch.sim.plan import Plan

T = TypeVar("T")
MOST_RUNS = 250

Try = Callable[[Plan], str]
"""Runs a plan; the id of its violation, "" for none."""


@dataclass(slots=True)
class Shrunk:
    """The smallest plan found, and how many runs it took."""

    plan: Plan
    runs: int


class _Shrinker:
    def __init__(self, plan: Plan, violation: str, attempt: Try, most_runs: int) -> None:
        self.plan = plan
        self.violation = violation
        self.attempt = attempt
        self.runs_left = most_runs

    def still(self, plan: Plan) -> bool:
        """Whether that plan fails in the same way; if so it is the plan from now on."""
        if self.runs_left <= 0:
            return False
        self.runs_left -= 1
        if self.attempt(plan) != self.violation:
            return False
        self.plan = plan
        return True

    def part(self, items: Sequence[T], put: Callable[[tuple[T, ...]], Plan]) -> None:
        """Leave out as many items as can be left out."""
        left = tuple(items)
        if left and self.still(put(())):
            return
        size = len(left) // 2
        while size >= 1 and self.runs_left > 0:
            start = 0
            while start < len(left):
                fewer = left[:start] + left[start + size :]
                if self.still(put(fewer)):
                    left = fewer
                else:
                    start += size
            size //= 2


def shrink(plan: Plan, violation: str, attempt: Try, *, most_runs: int = MOST_RUNS) -> Shrunk:
    """The smallest plan found that fails as `plan` does."""
    work = _Shrinker(plan, violation, attempt, most_runs)
    work.part(plan.faults, lambda faults: replace(work.plan, faults=faults))
    work.part(plan.operations, lambda kept: replace(work.plan, operations=kept))
    work.part(plan.alterations, lambda kept: replace(work.plan, alterations=kept))
    work.part(plan.rights, lambda kept: replace(work.plan, rights=kept))
    work.part(plan.tokens, lambda kept: replace(work.plan, tokens=kept))
    if plan.wall_skews:
        work.still(replace(work.plan, wall_skews=()))
    work.part(plan.clients, lambda kept: replace(work.plan, clients=kept))
    _fewer_transactions(work)
    if len(plan.topics) > 1:
        for topic in plan.topics:
            if work.still(replace(work.plan, topics=(topic,))):
                break
    for number, topic in enumerate(work.plan.topics):
        _fewer_partitions(work, number, topic.partitions)
    while work.plan.brokers > 3 and work.still(replace(work.plan, brokers=work.plan.brokers - 1)):
        pass
    return Shrunk(work.plan, most_runs - work.runs_left)


def _fewer_transactions(work: _Shrinker) -> None:
    found = work.plan.transactions
    if found is None:
        return
    for name in ("deals", "readers", "loops"):

        def put(kept: tuple[Any, ...], name: str = name) -> Plan:
            assert work.plan.transactions is not None
            less: Any = {name: kept}
            return replace(work.plan, transactions=replace(work.plan.transactions, **less))

        work.part(getattr(found, name), put)


def _fewer_partitions(work: _Shrinker, number: int, most: int) -> None:
    for partitions in range(1, most):
        topics = list(work.plan.topics)
        topics[number] = replace(topics[number], partitions=partitions)
        if work.still(replace(work.plan, topics=tuple(topics))):
            return
