"""`anabranch topics migrate`: have a classic topic become diskless, and see how far it is.

Not here: what a plan may be refused for (the controller says it), phases (`core/diskless`).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

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
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster

PLAN, EXECUTE, STATUS, CANCEL = "plan", "execute", "status", "cancel"
STEPS = (
    "1. preparing: leaders close and copy segments until at most 1 MiB of each partition is left; "
    "new transactions wait.",
    "2. sealing: no records are taken while the rest is copied, usually for about a second; after "
    "30 s they are taken again.",
    "3. diskless: new records go to object storage; local files are deleted; one replica in each "
    "rack. There is no way back.",
)
SAID = {
    "classic": "is classic",
    "preparing": "is preparing to become diskless",
    "sealing": "is being sealed, and takes no records for a moment",
    "diskless": "is diskless",
}


@click.command(epilog="Example: anabranch topics migrate --topic flights --plan")
@bootstrap_option
@timeout_option
@naming_option(
    "--topic", required=True, metavar="NAME", help="The topic's name.",
    shell_complete=complete_topics,
)  # fmt: skip
@click.option("--plan", is_flag=True, help="Check the topic and show what would follow.")
@click.option("--execute", is_flag=True, help="Have the topic become diskless.")
@click.option("--status", is_flag=True, help="Show how far it is (the default).")
@click.option("--cancel", is_flag=True, help="Keep the topic classic.")
@json_option
def migrate(
    bootstrap: str, timeout_seconds: float, topic: str, as_json: bool, **verbs: bool
) -> None:
    """Have a classic topic with a remote log become diskless, while clients use it."""
    verb = _only(verbs)

    async def work(cluster: Cluster) -> dict[str, Any]:
        from anabranch.client.views import migration

        before = await migration.migration_view(cluster, topic)
        if verb == PLAN and before["phase"] == "classic":
            await migration.check_migration(cluster, topic)
        elif verb == EXECUTE and before["phase"] != "diskless":
            await migration.begin_migration(cluster, topic)
        elif verb == CANCEL and before["phase"] != "classic":
            await migration.cancel_migration(cluster, topic)
        else:
            return before
        return before if verb == PLAN else await migration.migration_view(cluster, topic)

    told = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if as_json:
        print_json(told)
    else:
        _print(told, verb)


def _only(verbs: Mapping[str, bool]) -> str:
    """The verb that was given. Raises UsageError for two of them: the last must not win silently,
    as one of them cannot be undone."""
    given = [verb for verb, is_given in verbs.items() if is_given]
    if len(given) > 1:
        raise click.UsageError("Give only one of --plan, --execute, --status and --cancel.")
    return given[0] if given else STATUS


def _print(told: dict[str, Any], verb: str) -> None:
    click.echo(f"Topic {told['topic']} {SAID[told['phase']]}.")
    if told["phase"] == "diskless":
        return
    parts = told["partitions"]
    rows = [
        (each["partition"], each["leader"], "yes" if each["in_sync"] else "no",
         _known(each["records_to_copy"]), _known(each["local_bytes"]))
        for each in parts
    ]  # fmt: skip
    print_table(("partition", "leader", "in sync", "records to copy", "local bytes"), rows)
    total = sum(each["records_to_copy"] or 0 for each in parts)
    size = sum(each["local_bytes"] or 0 for each in parts)
    click.echo(
        f"{number_of(total, 'record')} to copy, of {number_of(len(parts), 'partition')} with "
        f"{number_of(size, 'byte')} on their leaders' disks."
    )
    for each in parts if told["phase"] != "classic" else ():
        if each["waits_for"]:
            click.echo(f"Partition {each['partition']} waits: {each['waits_for']}.")
    if verb == PLAN:
        for step in STEPS:
            click.echo(step)


def _known(number: int | None) -> str:
    return "unknown" if number is None else str(number)
