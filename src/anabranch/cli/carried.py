"""`anabranch plan status`, `pause`, `resume`, `cancel`, `roll-back`: plans that are carried out.

What: verbs of the group in `plan.py` about the plan that `anabranch apply` handed over, and how
such a plan is shown. Rule kept: a plan that stopped says why, and what helps.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anabranch.cli.cluster_command import (
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    timeout_option,
)
from anabranch.core.sentences import named, number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.wire.own_fields import PlanTold

STOPPED = "stopped"
REMEDY = (
    "Resolve that, then run: anabranch plan resume; or end the plan: anabranch plan cancel, or "
    "anabranch plan roll-back"
)
NO_PLAN = "No plan has been applied to this cluster."


def register(group: click.Group) -> None:
    """Add the verbs to the group of plans."""
    for name, sentence in {
        "pause": "Finish moves in progress, and start no others.",
        "resume": "Continue a plan that was paused or has stopped.",
        "cancel": "Cancel moves in progress; completed moves stay.",
        "roll-back": "Move all replicas of the plan back.",
    }.items():
        group.add_command(_verb(name, sentence))
    group.add_command(status)


def _verb(name: str, sentence: str) -> click.Command:
    def run(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
        from anabranch.client.carried_plans import steer

        async def work(cluster: Cluster) -> PlanTold:
            return await steer(cluster, name)

        show(ask(bootstrap, work, timeout_seconds=timeout_seconds), as_json=as_json)

    for option in (json_option, timeout_option, bootstrap_option):
        run = option(run)
    return click.command(name, help=sentence, epilog=f"Example: anabranch plan {name}")(run)


@click.command("status", epilog="Example: anabranch plan status")
@bootstrap_option
@timeout_option
@json_option
def status(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the newest plan: moves that are complete and in progress, and why it stopped."""
    from anabranch.client.carried_plans import fares

    told = ask(bootstrap, fares, timeout_seconds=timeout_seconds)
    if told is not None:
        show(told, as_json=as_json)
    elif as_json:
        print_json(None)
    else:
        click.echo(NO_PLAN)


def show(plan: PlanTold, *, as_json: bool) -> None:
    """Print the status of a plan."""
    from anabranch.client.carried_plans import state_of

    if as_json:
        from anabranch.client.views.plans import carried_view

        print_json(carried_view(plan))
        return
    total = plan.waiting + plan.under_way + plan.done + plan.gone
    there, at_start = ("back", "moved still") if plan.backwards else ("done", "waiting")
    first, second = (plan.waiting, plan.done) if plan.backwards else (plan.done, plan.waiting)
    gone = f", {plan.gone} gone because their topics were deleted" if plan.gone else ""
    click.echo(f"Plan {plan.plan_id} to {plan.goal}: {state_of(plan)} ({plan.sentence}).")
    click.echo(
        f"{number_of(total, 'move')}: {first} {there}, {plan.under_way} under way, {second} "
        f"{at_start}{gone}; "
        f"at most {plan.most_at_once} at once"
        + (f", {plan.throttle:,} bytes a second." if plan.throttle > 0 else ".")
    )
    if plan.cordons:
        click.echo(f"It cordoned {named(plan.cordons, 'broker')}: no new replicas go there.")
    if plan.moves:
        rows = [
            (f"{each.topic}-{each.partition}", _ids(each.before), _ids(each.after), each.sentence)
            for each in plan.moves
        ]
        print_table(("partition", "from", "to", "state"), rows)
    if state_of(plan) == STOPPED:
        click.echo(f"{REMEDY}.")


def _ids(row: list[int]) -> str:
    return ",".join(map(str, row))
