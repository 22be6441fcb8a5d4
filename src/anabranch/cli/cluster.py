"""`anabranch cluster`: the nodes of a cluster and what they keep."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.running import (
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    timeout_option,
)

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster


@click.group(epilog="Example: anabranch cluster describe --bootstrap-server 127.0.0.1:9092")
def command() -> None:
    """Describe the nodes of a cluster."""


@command.command("id", epilog="Example: anabranch cluster id")
@bootstrap_option
@timeout_option
def cluster_id(bootstrap: str, timeout_seconds: float) -> None:
    """Print the cluster's id."""

    async def work(cluster: Cluster) -> str:
        return cluster.cluster_id

    click.echo(ask(bootstrap, work, timeout_seconds=timeout_seconds))


@command.command(epilog="Example: anabranch cluster describe --json")
@bootstrap_option
@timeout_option
@json_option
def describe(bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """Show the brokers, the controller, and what the brokers keep on their disks."""

    async def work(cluster: Cluster) -> dict[str, Any]:
        from anabranch.client.admin import describe_cluster

        found = await describe_cluster(cluster)
        return {
            "cluster_id": found.cluster_id,
            "controller_id": found.controller_id,
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
        "partitions": len(sizes),
        "size_bytes": sum(sizes),
    }
