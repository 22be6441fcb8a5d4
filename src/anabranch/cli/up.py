"""`anabranch up`: a node with nothing to configure, kept serving until Ctrl-C."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import click

from anabranch.cli.serve import configured, shorthand

if TYPE_CHECKING:
    from anabranch.server.node import Node

DEFAULT_FOLDER = "anabranch-data"
DEFAULT_PORT = 9092


@click.command(epilog="Example: anabranch up --dir ./data --port 9092")
@click.option(
    "--dir", "folder", default=DEFAULT_FOLDER, show_default=True, metavar="DIR",
    help="Where the node keeps its data; made when it is not there.",
)  # fmt: skip
@click.option(
    "--port", type=int, default=DEFAULT_PORT, show_default=True, metavar="N",
    help="Port of 127.0.0.1 for clients; 0: a free one.",
)  # fmt: skip
@click.option("--set", "settings", multiple=True, metavar="KEY=VALUE", help="Any other setting.")
@click.option(
    "--json", "as_json", is_flag=True, help="Print one line of JSON when the node is ready."
)
def command(folder: str, port: int, settings: tuple[str, ...], as_json: bool) -> None:
    """Run a node with nothing to configure."""
    from anabranch.server import logs
    from anabranch.server.main import run

    logs.configure("warning")
    config = configured(None, [*shorthand(folder, port), *settings])
    raise SystemExit(run(config, on_ready=say_json if as_json else say_text))


def say_json(node: Node) -> None:
    """One line for programs."""
    broker = {
        "id": node.config.node_id,
        "pid": os.getpid(),
        "rack": node.config.rack,
        "port": int(node.bootstrap_servers.rsplit(":", 1)[1]),
    }
    click.echo(json.dumps({"bootstrap_servers": node.bootstrap_servers, "brokers": [broker]}))


def say_text(node: Node) -> None:
    """Where clients find it, and how to stop it."""
    folders = ", ".join(node.config.log_dirs)
    click.echo(f"Node {node.config.node_id} serves, data in {folders}.")
    click.echo(f"bootstrap.servers={node.bootstrap_servers}")
    click.echo("Stop it with Ctrl-C.")
