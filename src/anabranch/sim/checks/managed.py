"""What must hold of a diskless partition's replicas after each batch of metadata records.

What: replicas are distinct brokers and never none; all of them are the ISR, and nothing else is
kept of them; the leader is one of them; leader and partition epochs never go back, and a change of
leader raises the leader epoch. Source: document 003. Not here: whether the racks have what they
want at rest (`placement`).
"""

from __future__ import annotations

from anabranch.sim.checks.model import Key, Model, Partition
from anabranch.sim.checks.violation import Violation


def check_managed(model: Model, key: Key, before: Partition | None, now: Partition) -> None:
    """Raise a Violation where a partition's new state cannot be."""
    replicas = now.replicas
    wrong = ""
    if not replicas or len(set(replicas)) != len(replicas) or min(replicas) < 0:
        wrong = "Its replicas are not one or more brokers, each once."
    elif sorted(now.isr) != sorted(replicas):
        wrong = "Its ISR is not all of its replicas."
    elif now.elr or now.last_known or now.observers:
        wrong = "It has what only a partition with copies has."
    elif now.leader >= 0 and now.leader not in replicas:
        wrong = "Its leader is none of its replicas."
    elif before is not None and now is not before:
        wrong = _went_wrong(before, now)
    if wrong:
        told = {"partition": model.place(key), "state": tuple(now)}
        raise Violation("R1", wrong, told)


def _went_wrong(before: Partition, now: Partition) -> str:
    if now.leader_epoch < before.leader_epoch or now.partition_epoch < before.partition_epoch:
        return "An epoch went back."
    if now.leader != before.leader and now.leader_epoch == before.leader_epoch:
        return "Another leader has the same leader epoch."
    return ""
