"""Why a partition's replicas are where they are (`client/explanations.py` finds out)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from anabranch.client.explanations import Explained
    from anabranch.core.placement.explanation import ExplainedReplica


def explanation_view(found: Explained) -> dict[str, Any]:
    """A partition, its replicas, the brokers that have none, moves and decisions."""
    return {
        "partition": str(found.place),
        "leader": found.state.leader,
        "no_leader": found.no_leader,
        "waits_for": [*found.waits_for],
        "isr": [*found.state.isr],
        "observers": [*found.state.observers],
        "here": [
            {**each._asdict(), "state": replica_state(found, each)}
            for each in found.explanation.here
        ],
        "not_there": [
            {
                "broker_id": each.broker_id,
                "rack": each.rack,
                "sentence": each.sentence,
                "it_would_take": [
                    {
                        "change": str(change.kind),
                        "broker_id": change.broker_id,
                        "replicas": change.replicas,
                        "sentence": change.sentence,
                    }
                    for change in each.changes
                ],
            }
            for each in found.explanation.not_there
        ],
        "moves": found.moves,
        "reasons": [told._asdict() for told in found.said],
    }


def replica_state(found: Explained, here: ExplainedReplica) -> str:
    """What a replica is now."""
    if here.broker_id in found.adding:
        return "coming"
    if here.broker_id in found.removing:
        return "leaving"
    if here.broker_id == found.state.leader:
        return "leader"
    if here.broker_id in found.state.isr:
        return "in sync"
    return "eligible" if here.broker_id in found.state.eligible else "behind"
