"""`anabranch cluster`: the nodes of a cluster and what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from anabranch.cli.cluster_command import (
    MOST_INT32,
    VerbGroup,
    alarming,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    printable,
    tell,
    timeout_option,
    watch_option,
)
from anabranch.cli.completion_names import complete_brokers
from anabranch.cli.features import features, upgrade
from anabranch.cli.name_option import naming_option
from anabranch.cli.roll import command as roll

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.overview import BrokerCounts, Overview


@click.group(
    cls=VerbGroup,
    epilog="Example: anabranch cluster describe --bootstrap-server 127.0.0.1:9092",
)
def command() -> None:
    """Show the nodes and the status of a cluster; restart and upgrade it."""


command.add_command(roll, "roll")
command.add_command(features, "features")
command.add_command(upgrade, "upgrade")


@command.command("id", epilog="Example: anabranch cluster id")
@bootstrap_option
@timeout_option
@json_option
def cluster_id(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Print the cluster's id."""

    async def work(cluster: Cluster) -> str:
        return cluster.cluster_id

    found = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    tell(found, as_json=as_json, cluster_id=found)


@command.command(epilog="Example: anabranch cluster describe --json")
@bootstrap_option
@timeout_option
@json_option
def describe(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the brokers, the controller, and the size of the brokers' folders."""
    from anabranch.client.views.cluster import cluster_view

    described = ask(bootstrap, cluster_view, timeout_seconds=timeout_seconds)
    if as_json:
        print_json(described)
        return
    click.echo(f"cluster {described['cluster_id']}, controller {described['controller_id']}")
    print_table(
        ("broker", "address", "rack", "state", "partitions", "bytes"),
        [
            (
                each["id"],
                f"{each['host']}:{each['port']}",
                each["rack"] or "-",
                alarming("fenced", when=True) if each["fenced"] else "serves",
                each["partitions"],
                f"{each['size_bytes']:,}",
            )
            for each in described["brokers"]
        ],
    )
    for each in described["brokers"]:
        for folder in each["offline_log_dirs"]:
            click.echo(
                f"Broker {each['id']} cannot use {folder}: see its log for the cause, repair the "
                "folder and restart the broker."
            )


@command.command(epilog="Example: anabranch cluster unregister 4")
@naming_option(
    "--broker", "broker_id", type=click.IntRange(0, MOST_INT32), required=True, metavar="NODE",
    stands_alone=True, shell_complete=complete_brokers,
)  # fmt: skip
@click.option("--force", is_flag=True, help="Unregister the broker even if it is alive.")
@bootstrap_option
@timeout_option
@json_option
def unregister(
    broker_id: int, force: bool, bootstrap: str, timeout_seconds: float, as_json: bool
) -> None:
    """Remove a node that will not return, as broker and as controller.

    Replica lists keep its id. A running node is refused: stop it first.
    """

    async def work(cluster: Cluster) -> None:
        from anabranch.client.admin import describe_cluster, unregister_broker
        from anabranch.client.rolling_restart import controller_runs

        brokers = (await describe_cluster(cluster)).brokers
        is_up = any(each.broker_id == broker_id and not each.is_fenced for each in brokers)
        if is_up and not force:
            raise click.ClickException(
                f"broker {broker_id} is running: stop it first, or unregister it with --force"
            )
        is_broker = any(each.broker_id == broker_id for each in brokers)
        if not is_broker and await controller_runs(cluster, broker_id):
            raise click.ClickException(
                f"controller {broker_id} is running, and would register again: stop it first"
            )
        await unregister_broker(cluster, broker_id)

    ask(bootstrap, work, timeout_seconds=timeout_seconds)
    tell(f"node {broker_id} is unregistered", as_json=as_json, id=broker_id, unregistered=True)


broker_option = naming_option(
    "--broker", "broker_id", type=click.IntRange(0, MOST_INT32), required=True, metavar="ID",
    help="The broker; it may be down.", shell_complete=complete_brokers,
)  # fmt: skip


@command.command(epilog="Example: anabranch cluster cordon --broker 3")
@bootstrap_option
@timeout_option
@broker_option
@json_option
def cordon(broker_id: int, bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Place no new replicas on a broker; existing ones stay (cordoned.log.dirs, KIP-1066)."""
    from anabranch.client import admin

    ask(
        bootstrap,
        lambda cluster: admin.cordon(cluster, broker_id),
        timeout_seconds=timeout_seconds,
    )
    tell(
        f"broker {broker_id} is cordoned: it gets no new replicas, and existing ones stay; "
        f"`anabranch plan drain --broker {broker_id}` says what would have to move",
        as_json=as_json,
        id=broker_id,
        cordoned=True,
    )


@command.command(epilog="Example: anabranch cluster uncordon --broker 3")
@bootstrap_option
@timeout_option
@broker_option
@json_option
def uncordon(broker_id: int, bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Allow new replicas on a broker again."""
    from anabranch.client import admin

    ask(
        bootstrap,
        lambda cluster: admin.cordon(cluster, broker_id, closed=False),
        timeout_seconds=timeout_seconds,
    )
    sentence = f"broker {broker_id} can get new replicas again"
    tell(sentence, as_json=as_json, id=broker_id, cordoned=False)


@command.command(epilog="Example: anabranch cluster status --json")
@bootstrap_option
@timeout_option
@json_option
@watch_option
def status(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the active controller, partitions with problems, and recent decisions."""
    from anabranch.client.overview import overview
    from anabranch.client.views.cluster import remedies, status_view

    found = ask(bootstrap, overview, timeout_seconds=timeout_seconds)
    told = status_view(found)
    if as_json:
        print_json(told)
        return
    click.echo(
        f"cluster {found.cluster_id}, active controller {found.controlling.controller_id} "
        f"in epoch {found.controlling.epoch}"
    )
    counts = {**told, "full_folders": len(told["full_folders"])}
    rows = [
        (
            key.replace("_", " "),
            alarming(counts[key], when=bool(counts[key]) and key in ALARMING),
        )
        for key in COUNTED
    ]
    print_table(("what", "count"), rows)
    for sentence in remedies(told, found):
        click.echo(printable(sentence))
    if told["reasons"]:
        decided = [(each["at"], each["reason"]) for each in told["reasons"]]
        print_table(("decided", "why"), decided)


COUNTED = (
    "brokers", "fenced_brokers", "topics", "partitions", "unavailable", "under_min_isr",
    "at_min_isr", "under_replicated", "missing_replicas", "moving", "moves_held_up",
    "rack_violations", "not_led_by_preferred", "full_folders",
)  # fmt: skip
ALARMING = frozenset(
    {"fenced_brokers", "unavailable", "under_min_isr", "under_replicated", "full_folders"}
)
"""Counts that are red on a terminal unless they are 0."""


@command.command(epilog="Example: anabranch cluster brokers")
@bootstrap_option
@timeout_option
@json_option
@watch_option
def brokers(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the leaderships, replicas and out-of-sync replicas of each broker."""
    from anabranch.client.overview import overview
    from anabranch.client.views.cluster import broker_view, why_away

    found = ask(bootstrap, overview, timeout_seconds=timeout_seconds)
    active = found.controlling.controller_id
    if as_json:
        print_json([broker_view(each, found) for each in found.brokers])
        return
    print_table(
        ("broker", "address", "rack", "state", "controller", "leaders", "preferred", "replicas",
         "behind", "observers", "under-replicated"),
        [
            (each.broker_id, f"{each.host}:{each.port}", each.rack or "-",
             alarming(_state(each, found), when=each.is_fenced or each.broker_id in found.full),
             "active" if each.broker_id == active else "-",
             each.leaders, each.preferred, each.replicas,
             alarming(each.behind, when=each.behind > 0), each.observers,
             alarming(each.under_replicated, when=each.under_replicated > 0))
            for each in found.brokers
        ],
    )  # fmt: skip
    for each in found.brokers:
        if why := why_away(each, found):
            click.echo(why)


def _state(each: BrokerCounts, found: Overview) -> str:
    """Whether it serves, whether it is given anything new, and whether it has room."""
    state = "fenced" if each.is_fenced else "serves"
    if each.is_cordoned:
        state = f"{state}, cordoned"
    return f"{state}, disk full" if each.broker_id in found.full else state
