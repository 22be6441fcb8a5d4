"""`anabranch cluster roll`: restart the nodes one after the other, without a client noticing."""

from __future__ import annotations

import asyncio
import json
import shlex
from typing import TYPE_CHECKING

import click

from anabranch.cli.cluster_command import (
    MOST_INT32,
    Seconds,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    waiting_told,
)
from anabranch.cli.completion_names import complete_brokers
from anabranch.cli.name_option import naming_option

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.rolling_restart import Node, Plan, Restart


@click.command(
    epilog="Example: anabranch cluster roll --restart-command 'ssh {host} systemctl restart "
    "anabranch'"
)
@bootstrap_option
@click.option(
    "--dir", "folder", metavar="DIR",
    help="The folder of a running `anabranch up --brokers N`, which then restarts its nodes.",
)  # fmt: skip
@click.option(
    "--restart-command", "template", metavar="COMMAND",
    help="Command that restarts a node; {id}, {host}, {port} and {rack} are replaced.",
)  # fmt: skip
@naming_option(
    "--broker", "chosen", type=click.IntRange(0, MOST_INT32), multiple=True, metavar="ID",
    help="Only this node; may be given more than once.", shell_complete=complete_brokers,
)  # fmt: skip
@click.option("--dry-run", is_flag=True, help="Show the order and any objections.")
@click.option(
    "--unavailable-allow", is_flag=True,
    help="Continue even if some partitions cannot be written or read while a broker is down.",
)  # fmt: skip
@click.option(
    "--wait", "wait_seconds", type=Seconds(0), default=300.0, show_default=True, metavar="SECONDS",
    help="Time limit for a node to return, and for a broker to rejoin its ISRs.",
)  # fmt: skip
@json_option
def command(
    bootstrap: str,
    folder: str | None,
    template: str | None,
    chosen: tuple[int, ...],
    dry_run: bool,
    unavailable_allow: bool,
    wait_seconds: float,
    as_json: bool,
) -> None:
    """Restart the nodes one after the other.

    Each broker hands over its leaderships before it stops. The next one is restarted when all
    replicas of the previous one are in sync again. Nodes that are only controllers follow, and the
    active controller is last. The command does not start while a replica is out of sync. --dry-run
    exits with code 1 if there are objections.
    """
    restart = None if dry_run else _restarter(folder, template)

    async def work(cluster: Cluster) -> None:
        from anabranch.client.rolling_restart import look, roll

        plan = await look(cluster, chosen)
        if restart is None:
            _show(plan, as_json=as_json)
            if plan.obstacles or (plan.risks and not unavailable_allow):
                raise click.exceptions.Exit(1)
            return
        if plan.obstacles or (plan.risks and not unavailable_allow):
            raise click.ClickException(_refusal(plan))
        tell = _tell_json if as_json else _tell_text
        async with waiting_told("the nodes"):
            await roll(cluster, plan, restart, tell, wait_seconds=wait_seconds)

    ask(bootstrap, work, tells_itself=True)


def _restarter(folder: str | None, template: str | None) -> Restart:
    if (folder is None) == (template is None):
        raise click.UsageError(
            "say how to restart nodes: --dir DIR of `anabranch up`, or --restart-command"
        )
    if folder is not None:
        from anabranch.cli.supervision import ask_restart, check_supervised

        check_supervised(folder)
        where = folder

        async def by_supervisor(node: Node) -> None:
            await asyncio.to_thread(ask_restart, where, node.node_id)

        return by_supervisor
    assert template is not None
    words = _words(template)

    async def by_command(node: Node) -> None:
        filled = [_filled(word, node) for word in words]
        process = await asyncio.create_subprocess_exec(*filled)
        if code := await process.wait():
            raise click.ClickException(f"{shlex.join(filled)} ended with exit code {code}")

    return by_command


def _words(template: str) -> list[str]:
    from anabranch.client.rolling_restart import Node

    try:
        words = shlex.split(template)
        for word in words:
            _filled(word, Node(0, "", 0))
    except (ValueError, LookupError, AttributeError, TypeError):
        raise click.UsageError(
            f"--restart-command {template!r} cannot be read; it may name {{id}}, {{host}}, "
            "{port} and {rack}"
        ) from None
    if not words:
        raise click.UsageError("--restart-command is empty")
    return words


def _filled(word: str, node: Node) -> str:
    return word.format(id=node.node_id, host=node.host, port=node.port, rack=node.rack or "")


def _refusal(plan: Plan) -> str:
    what = "nothing was restarted: with one broker less, clients would notice:"
    how = "fix that" + ("" if plan.obstacles else ", or accept it with --unavailable-allow")
    return "\n  ".join([what, *plan.obstacles, *plan.risks, how])


def _show(plan: Plan, *, as_json: bool) -> None:
    if as_json:
        order = [each.node_id for each in plan.order]
        print_json({**plan._asdict(), "order": order})
        return
    for number, each in enumerate(plan.order, 1):
        last = ", the active controller" if each.node_id == plan.controller_id else ""
        rack = f", rack {each.rack}" if each.rack else ""
        click.echo(f"{number}. {each.name} at {each.host}:{each.port}{rack}{last}")
    against = [*plan.obstacles, *plan.risks]
    for sentence in against:
        click.echo(f"objection: {sentence}")
    if not against:
        click.echo("There are no objections.")


def _tell_json(event: str, node: Node, seconds: float) -> None:
    told = {"event": event, "id": node.node_id}
    click.echo(json.dumps(told | ({"seconds": round(seconds, 3)} if event == "back" else {})))


def _tell_text(event: str, node: Node, seconds: float) -> None:
    if event == "back":
        where = "back in every ISR" if node.is_broker else "back"
        click.echo(f"{node.name} is {where} after {seconds:.1f} s")
    else:
        click.echo(f"{node.name} is restarted")
