"""Plans of moves: one that is proposed, and the one that the cluster carries out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from anabranch.client.carried_plans import state_of
from anabranch.core.placement.plan_file import told_move

if TYPE_CHECKING:
    from anabranch.core.placement.move_plans import Plan
    from anabranch.core.wire.own_fields import PlanTold


def plan_view(cluster_id: str, made: Plan) -> dict[str, Any]:
    """A plan that was made for a cluster, and what it cannot do."""
    return {
        "cluster_id": cluster_id,
        "goal": made.goal,
        "sentence": made.sentence,
        "cordons": made.cordons,
        "moves": [told_move(each) for each in made.moves],
        "obstacles": [each._asdict() for each in made.obstacles],
    }


def carried_view(plan: PlanTold) -> dict[str, Any]:
    """A plan that was handed over: its state, and the moves that are not over."""
    return {
        "plan_id": plan.plan_id,
        "goal": plan.goal,
        "made_at_ms": plan.made_at_ms,
        "state": state_of(plan),
        "backwards": plan.backwards,
        "sentence": plan.sentence,
        "most_at_once": plan.most_at_once,
        "throttle": plan.throttle if plan.throttle > 0 else None,
        "waiting": plan.waiting,
        "under_way": plan.under_way,
        "done": plan.done,
        "gone": plan.gone,
        "cordons": plan.cordons,
        "moves": [
            {
                "topic": each.topic,
                "partition": each.partition,
                "from": each.before,
                "to": each.after,
                "state": each.sentence,
            }
            for each in plan.moves
        ],
    }
