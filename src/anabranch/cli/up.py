"""`anabranch up`: a cluster with nothing to configure, kept serving until Ctrl-C.

One broker runs in this process; several run as processes of their own under this one, which starts
a node again that ends by itself. Rules kept: nothing is written into a folder that holds other
things; a start that fails leaves no new folder behind; Ctrl-C and SIGTERM end it in order at any
moment.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import click

from anabranch.cli.cluster_command import print_failure
from anabranch.cli.own_folder import no_leftovers, refuse_foreign, refuse_listed
from anabranch.cli.serve import configured, shorthand
from anabranch.core.sentences import named, number_of

if TYPE_CHECKING:
    from anabranch.cli.local_brokers import LocalBroker, LocalBrokers
    from anabranch.server.node import Node

DEFAULT_FOLDER = "anabranch-data"
DEFAULT_PORT = 9092
LOG_FILE = "broker-1.log"
"""As several brokers have theirs."""


@click.command(epilog="Example: anabranch up --brokers 3 --racks a,b,c --dir ./data --port 9092")
@click.option(
    "--dir", "folder", default=DEFAULT_FOLDER, show_default=True, metavar="DIR",
    help="The folder for the nodes' data; created if missing.",
)  # fmt: skip
@click.option(
    "--port", type=click.IntRange(0, 65_535), default=DEFAULT_PORT, show_default=True, metavar="N",
    help="Client port of the first broker on 127.0.0.1; the others get the next ones; 0 chooses "
        "free ports.",
)  # fmt: skip
@click.option(
    "--brokers", type=click.IntRange(1, 100), default=1, show_default=True, metavar="N",
    help="Number of nodes, each a broker and a controller.",
)  # fmt: skip
@click.option(
    "--racks", metavar="A,B,…", help="Racks, assigned to the brokers in turn.", default=""
)
@click.option(
    "--set",
    "settings",
    multiple=True,
    metavar="KEY=VALUE",
    help="Another setting; may be given more than once.",
)
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print one line of JSON when the cluster is ready, then one for every event.",
)  # fmt: skip
def command(
    folder: str, port: int, brokers: int, racks: str, settings: tuple[str, ...], as_json: bool
) -> None:
    """Start a cluster on this machine without configuration."""
    with _until_interrupted():
        _run(folder, port, brokers, racks, settings, as_json=as_json)


def _run(
    folder: str, port: int, brokers: int, racks: str, settings: tuple[str, ...], *, as_json: bool
) -> None:
    names = [each.strip() for each in racks.split(",")] if racks else []
    if not all(names):
        raise click.ClickException(f"--racks {racks}: a rack name is empty; write a,b,c")
    if len(names) > brokers:
        raise click.ClickException(
            f"--racks {racks} names {number_of(len(names), 'rack')} for "
            f"{number_of(brokers, 'broker')}; name fewer racks, or start more with --brokers"
        )
    refuse_listed(folder)
    refuse_foreign(Path(folder))
    _refuse_another_layout(Path(folder), brokers)
    if brokers > 1:
        _refuse_unfit(port, brokers, settings)
        if others := left_out(Path(folder), brokers):
            click.echo(
                f"Not started: {named(others, 'broker')} of {folder}. Partitions that have no "
                f"other replicas are unavailable. Start all with --brokers {others[-1]}.",
                err=True,
            )
        with no_leftovers(Path(folder)) as keep:
            _run_several(folder, port, brokers, names, settings, keep, as_json=as_json)
        return
    from anabranch.cli.local_brokers import wait_free
    from anabranch.server import logs
    from anabranch.server.main import run

    logs.configure("warning")
    from anabranch.server.one_machine import diskless_settings

    rack = [f"broker.rack={names[0]}"] if names else []
    configured(None, [*shorthand(folder, port), *rack, *settings])  # before anything is made
    if not any(each.partition("=")[0].strip() == "listeners" for each in settings):
        wait_free(port)
    say = say_json if as_json else say_text
    with no_leftovers(Path(folder)) as keep:
        own = [f"{name}={text}" for name, text in diskless_settings(folder).items()]
        config = configured(None, [*shorthand(folder, port), *own, *rack, *settings])
        logs.keep(os.path.join(folder, LOG_FILE))

        def ready(node: Node) -> None:
            keep()
            say(node)

        tell_failure = print_failure if as_json else None
        raise SystemExit(run(config, on_ready=ready, tell_failure=tell_failure))


def _refuse_another_layout(folder: Path, brokers: int) -> None:
    """One node lies in the folder itself, of several each in a folder in it: what one has written,
    the others would not find."""
    if brokers > 1 and (folder / "meta.properties").exists():
        raise click.ClickException(
            f"{folder} contains the data of a single node; use another --dir for "
            f"{number_of(brokers, 'broker')}"
        )
    if brokers == 1 and (folder / "broker-1" / "meta.properties").exists():
        raise click.ClickException(
            f"{folder} contains the data of several brokers; use --brokers as before, or another "
            "--dir"
        )


def left_out(folder: Path, brokers: int) -> list[int]:
    """Brokers with data in the folder beyond the first `brokers`."""
    names = (each.parent.name for each in folder.glob("broker-*/meta.properties"))
    numbers = (name.removeprefix("broker-") for name in names)
    return sorted(int(each) for each in numbers if each.isdecimal() and int(each) > brokers)


def _refuse_unfit(port: int, brokers: int, settings: tuple[str, ...]) -> None:
    """What can only be said of one node, or reaches beyond the last port."""
    if port and port + brokers - 1 > 65_535:
        raise click.ClickException(
            f"--port {port} leaves too few ports below 65536 for {number_of(brokers, 'broker')}; "
            "use a lower one"
        )
    for setting in settings:
        name = setting.partition("=")[0].strip()
        if name in ("node.id", "broker.id", "listeners", "log.dirs", "log.dir", "process.roles"):
            raise click.ClickException(
                f"--set {name}=… cannot be the same for {number_of(brokers, 'broker')}; run "
                "`anabranch serve` for each"
            )
    configured(None, settings)


def _run_several(
    folder: str, port: int, brokers: int, racks: list[str], settings: tuple[str, ...],
    keep: Callable[[], None], *, as_json: bool,
) -> None:  # fmt: skip
    from anabranch.cli.local_brokers import LocalBrokers
    from anabranch.cli.supervision import Requests
    from anabranch.cli.supervisor import Supervisor

    requests = Requests(folder)
    cluster = LocalBrokers(folder, brokers=brokers, port=port, racks=racks, settings=settings)
    tell = tell_json if as_json else tell_text
    closing = contextlib.closing
    with closing(requests), closing(cluster):
        cluster.start()
        keep()
        say_cluster(cluster, as_json=as_json)
        Supervisor(cluster, requests, tell).run()


@contextlib.contextmanager
def _until_interrupted() -> Iterator[None]:
    """SIGTERM ends the block as Ctrl-C does, in order."""

    def stop(_signal: int, _frame: object) -> None:
        raise KeyboardInterrupt

    before = {each: signal.signal(each, stop) for each in (signal.SIGTERM, signal.SIGINT)}
    try:
        with contextlib.suppress(KeyboardInterrupt):
            yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def tell_json(event: str, node: LocalBroker, code: int | None) -> None:
    """One line for programs about a node."""
    line = {"event": event, "id": node.node_id, "pid": node.pid}
    click.echo(json.dumps(line | ({} if code is None else {"exit_code": code})))


def tell_text(event: str, node: LocalBroker, code: int | None) -> None:
    """One line for people about a node."""
    if event == "ready":
        click.echo(f"broker {node.node_id} is ready again, pid {node.pid}")
        return
    if event == "restarts":
        click.echo(f"broker {node.node_id} is being restarted, as requested")
        return
    if event == "failed":
        click.echo(f"broker {node.node_id} could not start; its log is {node.output}")
        return
    assert code is not None
    how = f"was killed by signal {-code}" if code < 0 else f"ended with exit code {code}"
    click.echo(f"broker {node.node_id} {how}; its log is {node.output}; restarting it")


def say_cluster(cluster: LocalBrokers, *, as_json: bool) -> None:
    """Where clients find the cluster, and a line a node."""
    if as_json:
        brokers = [
            {"id": node.node_id, "pid": node.pid, "rack": node.rack, "port": node.port}
            | ({"http": node.http} if node.http else {})
            for node in cluster.nodes
        ]
        click.echo(json.dumps({"bootstrap_servers": cluster.bootstrap, "brokers": brokers}))
        return
    for node in cluster.nodes:
        rack = f", rack {node.rack}" if node.rack else ""
        page = f", metrics at http://{node.http}/metrics" if node.http else ""
        click.echo(
            f"broker {node.node_id} serves at {node.bootstrap}{rack}{page}, pid {node.pid}, "
            f"data in {node.log_dir}"
        )
    click.echo(f"bootstrap.servers={cluster.bootstrap}")
    click.echo("Stop them with Ctrl-C.")


def say_json(node: Node) -> None:
    """One line for programs."""
    broker = {
        "id": node.config.node_id,
        "pid": os.getpid(),
        "rack": node.config.rack,
        "port": int(node.bootstrap_servers.rsplit(":", 1)[1]),
        **({"http": node.http_address} if node.http_address else {}),
    }
    click.echo(json.dumps({"bootstrap_servers": node.bootstrap_servers, "brokers": [broker]}))


def say_text(node: Node) -> None:
    """Where clients find it, and how to stop it."""
    folders = ", ".join(node.config.log_dirs)
    log = os.path.join(node.config.log_dirs[0], LOG_FILE)
    click.echo(f"Node {node.config.node_id} serves, data in {folders}, log in {log}.")
    if node.http_address:
        click.echo(f"Metrics at http://{node.http_address}/metrics.")
    click.echo(f"bootstrap.servers={node.bootstrap_servers}")
    click.echo("Stop it with Ctrl-C.")
