"""`anabranch apply`: have the controller carry out a plan that was reviewed.

What: reads a plan file and hands exactly its moves over. Rule kept: nothing moves unless every
partition is where the plan found it. Not here: making plans (`plan.py`).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.carried import show
from anabranch.cli.cluster_command import (
    MOST_INT64,
    ask,
    bootstrap_option,
    json_option,
    text_of,
    timeout_option,
)

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.placement.plan_file import PlanFile
    from anabranch.core.wire.own_fields import PlanTold

USUAL_AT_ONCE = 20


@click.command("apply", epilog="Example: anabranch apply plan.json --most-at-once 10")
@click.argument("path", metavar="FILE",
                type=click.Path(exists=True, dir_okay=False, path_type=Path))  # fmt: skip
@bootstrap_option
@timeout_option
@click.option(
    "--most-at-once", type=click.IntRange(1, 10_000), default=USUAL_AT_ONCE, show_default=True,
    metavar="N", help="Maximum number of moves in progress.",
)  # fmt: skip
@click.option(
    "--throttle", "rate", type=click.IntRange(1, MOST_INT64), metavar="BYTES",
    help="Copy at most this many bytes a second at each broker, until the plan ends.",
)  # fmt: skip
@json_option
def command(
    path: Path, bootstrap: str, timeout_seconds: float, most_at_once: int, rate: int | None,
    as_json: bool,
) -> None:  # fmt: skip
    """Start a plan of `anabranch plan … --out FILE`; does not wait for its end."""
    plan = _read(path)

    async def work(cluster: Cluster) -> PlanTold:
        from anabranch.client.carried_plans import hand_over

        return await hand_over(cluster, plan, most_at_once=most_at_once, throttle=rate)

    show(ask(bootstrap, work, timeout_seconds=timeout_seconds), as_json=as_json)
    if not as_json:
        click.echo("`anabranch plan status` shows its progress.")


def _read(path: Path) -> PlanFile:
    from anabranch.core.placement.json_places import InputFault
    from anabranch.core.placement.plan_file import read_plan

    try:
        return read_plan(text_of(path))
    except InputFault as fault:
        raise click.ClickException(f"{path}: {fault}") from None
