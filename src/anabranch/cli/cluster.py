"""`anabranch cluster`: the nodes of a cluster and what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    tell,
    time_text,
    timeout_option,
)
from anabranch.cli.completion_names import complete_brokers
from anabranch.cli.features import features, upgrade
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

    async def work(cluster: Cluster) -> dict[str, Any]:
        from anabranch.client.admin import describe_cluster
        from anabranch.client.overview import controller_of

        found = await describe_cluster(cluster)
        return {
            "cluster_id": found.cluster_id,
            "controller_id": (await controller_of(cluster)).controller_id,
            "brokers": [await _broker(cluster, each) for each in found.brokers],
        }

    described = ask(bootstrap, work, timeout_seconds=timeout_seconds)
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
                "fenced" if each["fenced"] else "serves",
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


async def _broker(cluster: Cluster, broker: Any) -> dict[str, Any]:
    from anabranch.client.admin import describe_log_dirs

    folders = []
    if not broker.is_fenced:
        folders = await describe_log_dirs(cluster, broker.broker_id)
    sizes = [
        partition.partition_size
        for folder in folders
        for topic in folder.topics
        for partition in topic.partitions
    ]
    return {
        "id": broker.broker_id,
        "host": broker.host,
        "port": broker.port,
        "rack": broker.rack,
        "fenced": broker.is_fenced,
        "log_dirs": [folder.log_dir for folder in folders],
        "offline_log_dirs": [folder.log_dir for folder in folders if folder.error_code],
        "partitions": len(sizes),
        "size_bytes": sum(sizes),
    }


@command.command(epilog="Example: anabranch cluster unregister 4")
@click.argument(
    "broker_id", type=click.IntRange(0, (1 << 31) - 1), metavar="NODE",
    shell_complete=complete_brokers,
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


broker_option = click.option(
    "--broker", "broker_id", type=click.IntRange(0), required=True, metavar="ID",
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
def status(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the active controller, partitions with problems, and recent decisions."""
    from anabranch.client.overview import overview

    found = ask(bootstrap, overview, timeout_seconds=timeout_seconds)
    told = _status(found)
    if as_json:
        print_json(told)
        return
    click.echo(
        f"cluster {found.cluster_id}, active controller {found.controlling.controller_id} "
        f"in epoch {found.controlling.epoch}"
    )
    counts = {**told, "full_folders": len(told["full_folders"])}
    rows = [(key.replace("_", " "), counts[key]) for key in COUNTED]
    print_table(("what", "count"), rows)
    for sentence in _remedies(told, found):
        click.echo(sentence)
    if told["reasons"]:
        decided = [(each["at"], each["reason"]) for each in told["reasons"]]
        print_table(("decided", "why"), decided)


NEWEST = 10
"""Decisions that the status shows."""


COUNTED = (
    "brokers", "fenced_brokers", "topics", "partitions", "unavailable", "under_min_isr",
    "at_min_isr", "under_replicated", "missing_replicas", "moving", "moves_held_up",
    "rack_violations", "not_led_by_preferred", "full_folders",
)  # fmt: skip


def _status(found: Overview) -> dict[str, Any]:
    """Everything as one flat object."""
    from anabranch.client.partitions import Illness

    return {
        "cluster_id": found.cluster_id,
        "controller_id": found.controlling.controller_id,
        "controller_epoch": found.controlling.epoch,
        "metadata_offset": found.controlling.metadata_offset,
        "brokers": len(found.brokers),
        "fenced_brokers": sum(each.is_fenced for each in found.brokers),
        "topics": found.topics,
        "partitions": found.partitions,
        "unavailable": found.ill[Illness.UNAVAILABLE],
        "unavailable_wait_for": sorted({each for row in found.leaderless.values() for each in row}),
        "under_min_isr": found.ill[Illness.UNDER_MIN_ISR],
        "at_min_isr": found.ill[Illness.AT_MIN_ISR],
        "under_replicated": found.ill[Illness.UNDER_REPLICATED],
        "missing_replicas": found.missing,
        "moving": found.moving,
        "moves_held_up": len(found.held_up),
        "rack_violations": found.ill[Illness.RACK_VIOLATION],
        "not_led_by_preferred": found.not_preferred,
        "full_folders": [
            {"broker": broker_id, "folder": path}
            for broker_id, paths in sorted(found.full.items())
            for path in paths
        ],
        "reasons": [
            {"at": time_text(each.at_ms), "code": each.code, "reason": each.sentence}
            for each in found.controlling.reasons.newest(NEWEST)
        ],
    }


def _remedies(told: dict[str, Any], found: Overview) -> list[str]:
    """What to look at next, the worst first; nothing for a healthy cluster."""
    said = []
    if told["unavailable"]:
        said.append(_leaderless(told, found))
    elif told["under_min_isr"]:
        said.append(
            "acks=all is refused for some partitions: `anabranch topics describe "
            "--under-min-isr-partitions` names them."
        )
    elif told["under_replicated"]:
        said.append("`anabranch topics describe --under-replicated-partitions` lists those behind.")
    said += [
        f"Broker {each['broker']} has no space in {each['folder']}: other brokers lead its "
        "partitions; free space there, or shorten retention."
        for each in told["full_folders"]
    ]
    if told["missing_replicas"]:
        said.append(
            "Some partitions have missing replicas, which the next broker that joins gets: list "
            "them with `anabranch topics describe --missing-replicas`."
        )
    if found.held_up:
        said.append(_held_up(found))
    if told["rack_violations"]:
        said.append(
            "`anabranch topics describe --rack-violations` lists partitions in fewer racks than "
            "possible; `anabranch plan racks` proposes moves."
        )
    if told["fenced_brokers"]:
        said.append("A fenced broker is down or starting: see `anabranch cluster brokers`.")
    if told["not_led_by_preferred"] and not told["under_replicated"]:
        said.append(
            "`anabranch partitions elect-leaders --all-topic-partitions` returns leaders to "
            "preferred replicas."
        )
    return said


def _leaderless(told: dict[str, Any], found: Overview) -> str:
    """Whom partitions without a leader wait for, and what names and explains them."""
    from anabranch.core.controller.partitions.record_holders import awaited

    first = next(iter(found.leaderless))
    down = told["unavailable_wait_for"]
    waits = f" and wait for {awaited(down)}" if down else ""
    return (
        f"{len(found.leaderless)} partition(s), {first} first, have no leader{waits}: `anabranch "
        f"topics describe --unavailable-partitions` lists them, `anabranch explain {first}` "
        "explains one."
    )


def _held_up(found: Overview) -> str:
    """Whom moves wait for in vain, and what helps."""
    places = list(found.held_up)
    down = sorted({each for row in found.held_up.values() for each in row})
    return (
        f"{len(places)} partition(s), {places[0]} first, wait for replicas on broker(s) "
        f"{', '.join(map(str, down))}, which are down: start them; where they will not come back, "
        f"`anabranch explain {places[0]}` says how a move is taken back."
    )


@command.command(epilog="Example: anabranch cluster brokers")
@bootstrap_option
@timeout_option
@json_option
def brokers(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the leaderships, replicas and out-of-sync replicas of each broker."""
    from anabranch.client.overview import overview

    found = ask(bootstrap, overview, timeout_seconds=timeout_seconds)
    active = found.controlling.controller_id
    if as_json:
        print_json([_broker_counts(each, found) for each in found.brokers])
        return
    print_table(
        ("broker", "address", "rack", "state", "controller", "leaders", "preferred", "replicas",
         "behind", "observers", "under-replicated"),
        [
            (each.broker_id, f"{each.host}:{each.port}", each.rack or "-",
             _state(each, found),
             "active" if each.broker_id == active else "-",
             each.leaders, each.preferred, each.replicas, each.behind, each.observers,
             each.under_replicated)
            for each in found.brokers
        ],
    )  # fmt: skip
    for each in found.brokers:
        if why := _why_away(each, found):
            click.echo(why)


def _state(each: BrokerCounts, found: Overview) -> str:
    """Whether it serves, whether it is given anything new, and whether it has room."""
    state = "fenced" if each.is_fenced else "serves"
    if each.is_cordoned:
        state = f"{state}, cordoned"
    return f"{state}, disk full" if each.broker_id in found.full else state


def _why_away(each: BrokerCounts, found: Overview) -> str | None:
    """What the controller said of a broker that is fenced."""
    told = found.controlling.reasons.of_broker(each.broker_id) if each.is_fenced else None
    return None if told is None else f"{time_text(told.at_ms)}  {told.sentence}"


def _broker_counts(each: BrokerCounts, found: Overview) -> dict[str, Any]:
    return {
        "id": each.broker_id,
        "host": each.host,
        "port": each.port,
        "rack": each.rack,
        "fenced": each.is_fenced,
        "cordoned": each.is_cordoned,
        "full_log_dirs": list(found.full.get(each.broker_id, ())),
        "active_controller": each.broker_id == found.controlling.controller_id,
        "leaders": each.leaders,
        "preferred_leaders": each.preferred,
        "replicas": each.replicas,
        "replicas_behind": each.behind,
        "observers": each.observers,
        "under_replicated": each.under_replicated,
        "reason": _why_away(each, found),
    }
