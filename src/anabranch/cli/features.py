"""`anabranch cluster features` and `upgrade`: levels of what the cluster as a whole uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import click

from anabranch.cli.cluster_command import (
    MOST_INT16,
    ask,
    bootstrap_option,
    json_option,
    pairs,
    print_json,
    print_table,
    timeout_option,
)

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.features import Feature, Raise

LEVEL = re.compile("[0-9]{1,5}")


@click.command(epilog="Example: anabranch cluster features --json")
@bootstrap_option
@timeout_option
@json_option
def features(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the level of each feature, and the levels that the brokers support."""
    from anabranch.client.features import features_of
    from anabranch.client.views.features import feature_view

    found = ask(bootstrap, features_of, timeout_seconds=timeout_seconds)
    if as_json:
        print_json([feature_view(each) for each in found])
        return
    print_table(
        ("feature", "level", "all support up to", "held back by"),
        [
            (
                each.name,
                each.level,
                each.newest_common,
                ",".join(map(str, each.holding_back)) or "-",
            )
            for each in found
        ],
    )


@click.command(epilog="Example: anabranch cluster upgrade --dry-run")
@bootstrap_option
@timeout_option
@click.option(
    "--feature", "wanted", multiple=True, metavar="NAME=LEVEL",
    help="Only this feature, to this level; may be given more than once.",
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Check the upgrade without changing anything.")
@json_option
def upgrade(
    bootstrap: str, timeout_seconds: float, wanted: tuple[str, ...], dry_run: bool, as_json: bool
) -> None:
    """Raise features to the newest levels that all brokers support.

    Run it when all nodes run the new version. Afterwards, nodes of an older version cannot join,
    and most levels cannot be lowered.
    """
    levels = _levels(wanted)

    async def work(cluster: Cluster) -> tuple[list[Feature], list[Raise]]:
        from anabranch.client.features import features_of, raises
        from anabranch.client.features import upgrade as carry_out

        found = await features_of(cluster)
        steps = raises(found, levels)
        if steps:
            await carry_out(cluster, steps, validate_only=dry_run)
        return found, steps

    found, steps = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    held = [each for each in found if each.holding_back]
    if as_json:
        from anabranch.client.views.features import feature_view

        raised = [each._asdict() for each in steps]
        print_json(
            {"dry_run": dry_run, "raised": raised, "held_back": [feature_view(e) for e in held]}
        )
        return
    for step in steps:
        would = "would go" if dry_run else "went"
        click.echo(f"{step.name} {would} from level {step.before} to {step.after}")
    if not steps:
        click.echo("No feature can be raised.")
    for each in held:
        brokers = " and ".join(map(str, each.holding_back))
        click.echo(
            f"{each.name} could be at {each.newest}: install the newer version on broker {brokers}"
        )


def _levels(wanted: tuple[str, ...]) -> dict[str, int] | None:
    if not wanted:
        return None
    levels = {}
    for name, text in pairs(wanted, "--feature").items():
        if not LEVEL.fullmatch(text) or int(text) > MOST_INT16:
            raise click.UsageError(
                f"--feature {name}={text}: the level is a number of at most {MOST_INT16}."
            )
        levels[name] = int(text)
    return levels
