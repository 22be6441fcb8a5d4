"""`anabranch security check`: what is open on a node, before it runs."""

from __future__ import annotations

import click

from anabranch.cli.cluster_command import VerbGroup, json_option, print_json
from anabranch.cli.serve import configured


@click.group(cls=VerbGroup, epilog="Example: anabranch security check server.properties")
def command() -> None:
    """Say what the settings of a node leave open."""


@command.command(epilog="Example: anabranch security check server.properties")
@click.argument("properties_file", metavar="CONFIG", type=click.Path(dir_okay=False))
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="A setting that overrides the file's; may be given more than once.",
)  # fmt: skip
@json_option
def check(properties_file: str, settings: tuple[str, ...], as_json: bool) -> None:
    """List what is open by a node's settings and files, each with its remedy; exit code 1 if
    something is."""
    from anabranch.server.security_check import check as found_open

    found = found_open(configured(properties_file, settings), properties_file)
    if as_json:
        print_json({"open": found})
    elif found:
        click.echo("\n".join(f"- {each}" for each in found))
    else:
        click.echo("Nothing is open that this command looks at.")
    raise SystemExit(1 if found else 0)
