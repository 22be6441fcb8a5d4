"""`anabranch plan`: what would have to move for a goal, and why; nothing moves by it.

What: one verb a goal, printed with reasons, with obstacles and what these would take, and written
to a file that `anabranch apply` hands to the controller. Rule kept: making a plan changes nothing.
Not here: goals (`core/placement/move_plans.py`), carrying plans out (`carried.py`).
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli import carried
from anabranch.cli.cluster_command import (
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    timeout_option,
)
from anabranch.cli.completion_names import complete_brokers, complete_topics
from anabranch.cli.name_option import naming_option
from anabranch.core.sentences import named, number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.plans import View
    from anabranch.core.placement.layout import Layout
    from anabranch.core.placement.move_plans import Plan

F = TypeVar("F", bound=Callable[..., Any])
SHOWN_MOVES = 50
"""Moves that are printed; a file and --json have all."""


@click.group(cls=VerbGroup, epilog="Example: anabranch plan drain --broker 3 --out plan.json")
def command() -> None:
    """Plan moves of replicas, with a reason for each, and control plans in progress."""


carried.register(command)


def _goal_options(function: F) -> F:
    for option in (
        json_option,
        click.option(
            "--out", "path", metavar="FILE", type=click.Path(dir_okay=False, path_type=Path),
            help="Write the plan to a file for `anabranch apply`.",
        ),
        timeout_option,
        bootstrap_option,
    ):  # fmt: skip
        function = option(function)
    return function


def _broker_option(sentence: str) -> Callable[[F], F]:
    return naming_option(
        "--broker", "broker_ids", type=click.IntRange(0), multiple=True, required=True,
        metavar="ID", help=sentence, shell_complete=complete_brokers,
    )  # fmt: skip


@command.command("drain", epilog="Example: anabranch plan drain --broker 3 --out plan.json")
@_goal_options
@_broker_option("The broker to empty; may be given more than once.")
def drain(broker_ids: tuple[int, ...], **shared: Any) -> None:
    """Move all replicas off brokers, so that they can be removed."""
    from anabranch.core.placement import move_plans

    _make(lambda layout: move_plans.drain(layout, broker_ids), **shared)


@command.command("add", epilog="Example: anabranch plan add --broker 4 --out plan.json")
@_goal_options
@_broker_option("The new broker; may be given more than once.")
def add(broker_ids: tuple[int, ...], **shared: Any) -> None:
    """Move a fair share of the replicas to new brokers."""
    from anabranch.core.placement import move_plans

    _make(lambda layout: move_plans.fill(layout, broker_ids), **shared)


@command.command("racks", epilog="Example: anabranch plan racks --out plan.json")
@_goal_options
def racks(**shared: Any) -> None:
    """Move replicas that share a rack to racks without a replica."""
    from anabranch.core.placement import move_plans

    _make(move_plans.mend_racks, **shared)


@command.command(
    "factor", epilog="Example: anabranch plan factor --topic flights --replication-factor 3"
)
@_goal_options
@naming_option(
    "--topic", required=True, metavar="NAME", help="The topic.",
    shell_complete=complete_topics,
)  # fmt: skip
@click.option(
    "--replication-factor", "factor", type=click.IntRange(1, 32767), required=True, metavar="N",
    help="Replicas of each partition.",
)  # fmt: skip
def factor(topic: str, factor: int, **shared: Any) -> None:
    """Change the replication factor of a topic."""
    from anabranch.core.placement import move_plans

    _make(lambda layout: move_plans.change_factor(layout, topic, factor), **shared)


@command.command("observers", epilog="Example: anabranch plan observers --topic flights")
@_goal_options
@naming_option(
    "--topic", required=True, metavar="NAME", help="The topic.",
    shell_complete=complete_topics,
)  # fmt: skip
def observers(topic: str, **shared: Any) -> None:
    """Make a topic satisfy its placement constraints by promoting observers and moving replicas.

    New observers need no plan: the controller adds them once the replicas satisfy the constraints.
    """
    from anabranch.client.constraints import constraints_of
    from anabranch.core.placement.constraint_plan import meet

    constraints, watching = ask(
        shared["bootstrap"],
        lambda cluster: constraints_of(cluster, topic),
        timeout_seconds=shared["timeout_seconds"],
    )
    _make(lambda layout: meet(layout, topic, constraints, watching), **shared)


def _make(
    goal: Callable[[Layout], Plan],
    bootstrap: str,
    timeout_seconds: float,
    path: Path | None,
    as_json: bool,
) -> None:
    """Make a plan of what is there, show it, write it down."""
    from anabranch.client.plans import look, plan
    from anabranch.core.controller.moves.plans import MOST_MOVES

    async def work(cluster: Cluster) -> tuple[View, Plan]:
        view = await look(cluster)
        return view, plan(view, goal)

    view, made = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if path is not None and not made.moves and path.exists():
        raise click.ClickException(
            f"{path} is an earlier plan, and there is nothing to plan now: remove it. "
            f"{made.sentence}."
        )
    if path is not None and made.moves:
        _write(path, view.cluster_id, made._replace(moves=made.moves[:MOST_MOVES]))
    if as_json:
        from anabranch.client.views.plans import plan_view

        print_json(plan_view(view.cluster_id, made))
    else:
        _print(made)
        _print_what_next(made, path, MOST_MOVES)
    if made.obstacles and not made.moves:
        raise click.exceptions.Exit(1)


def _print_what_next(made: Plan, path: Path | None, most_moves: int) -> None:
    if path is not None and made.moves:
        click.echo(f"Nothing has moved. Review {path}, then: anabranch apply {path}")
        if len(made.moves) > most_moves:
            click.echo(
                f"It holds the first {number_of(most_moves, 'move')}: when they are done, plan "
                "again."
            )
    elif made.moves:
        click.echo("Nothing has moved. --out FILE writes the plan to a file for `anabranch apply`.")
    elif path is not None:
        click.echo(f"{path} was not written: there is nothing to apply.")


def _write(path: Path, cluster_id: str, made: Plan) -> None:
    from anabranch.core.placement.plan_file import PlanFile, write_plan

    file = PlanFile(cluster_id, made.goal, int(time.time() * 1000), made.moves)
    try:
        path.write_text(write_plan(file), "utf-8")
    except OSError as fault:
        raise click.ClickException(f"{path}: {fault.strerror or fault}") from None


def _print(made: Plan) -> None:
    click.echo(f"{made.sentence}.")
    if made.cordons:
        click.echo(
            f"Applied, it cordons {named(made.cordons, 'broker')} first: no new replicas go there."
        )
    for each in made.moves[:SHOWN_MOVES]:
        was, will = (", ".join(map(str, row)) for row in (each.before, each.after))
        click.echo(f"  {each.place}: {was} -> {will}  ({each.sentence})")
    if len(made.moves) > SHOWN_MOVES:
        click.echo(f"  … and {len(made.moves) - SHOWN_MOVES} more; --json and --out list all")
    for obstacle in made.obstacles[:SHOWN_MOVES]:
        click.echo(f"Obstacle: {obstacle.what}: {obstacle.why}. Needed: {obstacle.needs}.")
    if len(made.obstacles) > SHOWN_MOVES:
        click.echo(
            f"  … and {number_of(len(made.obstacles) - SHOWN_MOVES, 'more obstacle')}; see --json"
        )
