"""`anabranch users`: list, set and remove users that log in with SCRAM.

Rule kept: a password is typed, or read from a file or standard input; it is no argument, which
other processes could see. Not here: users of PLAIN, which are in the settings of nodes.
"""

from __future__ import annotations

import sys
from pathlib import Path

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    timeout_option,
)
from anabranch.cli.name_option import naming_option

MECHANISMS = ("SCRAM-SHA-256", "SCRAM-SHA-512")
mechanism_option = click.option(
    "--mechanism", "mechanisms", multiple=True, type=click.Choice(MECHANISMS),
    help="For which mechanism; may be given more than once.  [default: both]",
)  # fmt: skip
user_option = naming_option("--user", "name", metavar="NAME", required=True, stands_alone=True)


@click.group(cls=VerbGroup, epilog="Example: anabranch users list")
def command() -> None:
    """List, set and remove users that log in with SCRAM."""


@command.command("list", epilog="Example: anabranch users list --json")
@naming_option("--user", "names", multiple=True, metavar="[NAME…]", stands_alone=True)
@bootstrap_option
@timeout_option
@json_option
def list_all(names: tuple[str, ...], bootstrap: str, timeout_seconds: float, as_json: bool) -> None:
    """List users, all or those named, with their mechanisms."""
    from anabranch.client.users import list_users

    found = ask(
        bootstrap, lambda cluster: list_users(cluster, names), timeout_seconds=timeout_seconds
    )
    rows = [
        {"user": user, "mechanism": mechanism, "iterations": iterations}
        for user, credentials in sorted(found.items())
        for mechanism, iterations in credentials.items()
    ]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("There are no users with SCRAM credentials.")
    else:
        print_table(list(rows[0]), [[str(each) for each in row.values()] for row in rows])


@command.command("set", epilog="Example: anabranch users set alice --password-file alice.txt")
@user_option
@bootstrap_option
@timeout_option
@mechanism_option
@click.option(
    "--iterations", type=click.IntRange(4096, 16384), default=8192, show_default=True,
    help="How often the password is hashed.",
)  # fmt: skip
@click.option(
    "--password-file", metavar="FILE",
    help="The file with the password as its first line, - for standard input. Without it the "
        "password is asked for.",
)  # fmt: skip
@json_option
def set_one(
    name: str, bootstrap: str, timeout_seconds: float, mechanisms: tuple[str, ...],
    iterations: int, password_file: str | None, as_json: bool,
) -> None:  # fmt: skip
    """Set the password of a user, who may be new."""
    from anabranch.client.cluster import Cluster
    from anabranch.client.users import set_password

    password = _password(password_file)

    wanted = list(mechanisms or MECHANISMS)

    async def work(cluster: Cluster) -> None:
        for each in wanted:
            await set_password(cluster, name, each, password, iterations)

    ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if as_json:
        print_json({"user": name, "set": wanted, "iterations": iterations})
    else:
        click.echo(f"User {name} logs in with {', '.join(wanted)}.")


@command.command("remove", epilog="Example: anabranch users remove alice")
@user_option
@bootstrap_option
@timeout_option
@mechanism_option
@json_option
def remove_one(
    name: str, bootstrap: str, timeout_seconds: float, mechanisms: tuple[str, ...], as_json: bool
) -> None:
    """Remove the credentials of a user. Connections that are open go on."""
    from anabranch.client.cluster import Cluster
    from anabranch.client.users import list_users, remove_user

    async def work(cluster: Cluster) -> list[str]:
        known = list((await list_users(cluster, [name]))[name])
        gone = [each for each in known if each in (mechanisms or MECHANISMS)]
        if gone:
            await remove_user(cluster, name, gone)
        return gone

    gone = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    if as_json:
        print_json({"user": name, "removed": gone})
    elif gone:
        click.echo(f"User {name} no longer logs in with {', '.join(gone)}.")
    else:
        click.echo("Nothing to remove.")


def _password(file: str | None) -> str:
    if file is None:
        typed: str = click.prompt("Password", hide_input=True, confirmation_prompt=True)
        return typed
    try:
        text = sys.stdin.readline() if file == "-" else Path(file).read_text().partition("\n")[0]
    except (OSError, UnicodeDecodeError) as fault:
        why = getattr(fault, "strerror", None) or "it is not text"
        raise click.ClickException(f"{file} cannot be read: {why}") from None
    password = text.rstrip("\r\n")
    if not password:
        raise click.ClickException(f"{file} has no password in its first line")
    return password
