"""`anabranch placement`: how the cluster places the replicas of a diskless topic.

What: for each partition the racks that should have a replica and those that have one, the state of
its placement and why it is so. Not here: partitions of classic topics (`explain`, `plan racks`).
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
from anabranch.cli.completion_names import complete_topics
from anabranch.cli.name_option import naming_option

if TYPE_CHECKING:
    from anabranch.core.wire.own_fields import DisklessTopic, PlacedPartition

HEADS = ("partition", "assigned racks", "coverage", "state", "drift", "exceptions")


@click.command("placement", epilog="Example: anabranch placement clicks")
@naming_option(
    "--topic", required=True, metavar="TOPIC", stands_alone=True, shell_complete=complete_topics
)
@bootstrap_option
@timeout_option
@json_option
def command(topic: str, bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the racks in which the partitions of a diskless topic have, and should have,
    replicas."""
    from anabranch.client.placements import placed
    from anabranch.core.api.diskless_view import as_json as told

    found: DisklessTopic = ask(
        bootstrap, lambda cluster: placed(cluster, topic), timeout_seconds=timeout_seconds
    )
    if as_json:
        print_json(told(found))
    else:
        _print(found)


def _print(found: DisklessTopic) -> None:
    racks = ", ".join(found.target_racks) or "none"
    click.echo(
        f"{found.name}: diskless, effective replication factor {found.effective_rf}, "
        f"target racks {racks}; moves copy no records"
    )
    print_table(HEADS, [_row(each) for each in found.partitions])
    for each in found.partitions:
        for sentence in each.sentences:
            click.echo(f"{found.name}-{each.partition_index}: {sentence}")


def _row(each: PlacedPartition) -> tuple[object, ...]:
    return (
        each.partition_index,
        ",".join(each.assigned_racks) or "-",
        f"{each.rack_coverage}%",
        each.placement_state,
        "yes" if each.has_drifted else "no",
        ",".join(each.exceptions) or "none",
    )
