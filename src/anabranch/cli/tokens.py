"""`anabranch tokens`: create, list, renew and expire delegation tokens, as kafka-delegation-tokens
does.

Rule kept: an HMAC, which is a password, is shown once, when its token is made; renew and expire
take the token's id, and ask the cluster for the HMAC. Not here: tokens of identity providers, and
of HTTP.
"""

from __future__ import annotations

from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import click

from anabranch.cli.cluster_command import (
    Milliseconds,
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    tell,
    timeout_option,
)
from anabranch.cli.name_option import naming_option

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.client.delegation_tokens import Token
    from anabranch.core.access.principal import Principal

LONGEST_MS = 2**63 - 1


class PrincipalText(click.ParamType[Any]):
    """TYPE:NAME."""

    name = "principal"

    def convert(self, value: Any, parameter: Any, context: Any) -> Principal:
        """The principal, or one line."""
        from anabranch.core.access.delegation_tokens import principal_of

        found = principal_of(str(value))
        if not (found.type and found.name):
            self.fail(f"{value!r} is no principal; write TYPE:NAME, such as User:alice")
        return found


token_option = naming_option("--id", "token_id", metavar="ID", required=True, stands_alone=True)


@click.group(cls=VerbGroup, epilog="Example: anabranch tokens create --renewer User:scheduler")
def command() -> None:
    """Create, list, renew and expire delegation tokens."""


@command.command(epilog="Example: anabranch tokens create --renewer User:scheduler --json")
@bootstrap_option
@timeout_option
@click.option(
    "--renewer", "renewers", multiple=True, type=PrincipalText(), metavar="TYPE:NAME",
    help="Who may renew and expire it beside its owner; may be given more than once.",
)  # fmt: skip
@click.option(
    "--owner", type=PrincipalText(), metavar="TYPE:NAME",
    help="In whose name its holder comes; needs CreateTokens on that user.  [default: you]",
)  # fmt: skip
@click.option(
    "--max-lifetime-ms", type=Milliseconds(1, LONGEST_MS), metavar="MS",
    help="How long it can be renewed.  [default: delegation.token.max.lifetime.ms]",
)  # fmt: skip
@json_option
def create(
    bootstrap: str, timeout_seconds: float, renewers: tuple[Principal, ...],
    owner: Principal | None, max_lifetime_ms: int | None, as_json: bool,
) -> None:  # fmt: skip
    """Create a token, and show its HMAC, which is its password."""
    from anabranch.client.delegation_tokens import SERVERS_CHOICE, create_token

    async def work(cluster: Cluster) -> Token:
        lifetime_ms = max_lifetime_ms or SERVERS_CHOICE
        return await create_token(cluster, renewers, owner=owner, max_lifetime_ms=lifetime_ms)

    made = ask(bootstrap, work, timeout_seconds=timeout_seconds)
    row = {**_row(made), "hmac": made.password}
    if as_json:
        print_json(row)
    else:
        print_table(["field", "value"], [[name, _text(each)] for name, each in row.items()])


@command.command("list", epilog="Example: anabranch tokens list --owner User:alice --json")
@bootstrap_option
@timeout_option
@click.option(
    "--owner", "owners", multiple=True, type=PrincipalText(), metavar="TYPE:NAME",
    help="Only of these owners; may be given more than once.",
)  # fmt: skip
@json_option
def list_all(
    bootstrap: str, timeout_seconds: float, owners: tuple[Principal, ...], as_json: bool
) -> None:
    """List the tokens that you may see, without their HMACs."""
    from anabranch.client.delegation_tokens import list_tokens

    async def work(cluster: Cluster) -> list[Token]:
        return await list_tokens(cluster, owners)

    rows = [_row(each) for each in ask(bootstrap, work, timeout_seconds=timeout_seconds)]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo("There are no tokens that you may see.")
    else:
        print_table(list(rows[0]), [[_text(each) for each in row.values()] for row in rows])


@command.command(epilog="Example: anabranch tokens renew 6ZPTpKfGSNCSAVP7eQ4wMA")
@token_option
@bootstrap_option
@timeout_option
@click.option(
    "--period-ms", type=Milliseconds(1, LONGEST_MS), metavar="MS",
    help="For how long it is good from now on.  [default: delegation.token.expiry.time.ms]",
)  # fmt: skip
@json_option
def renew(
    token_id: str, bootstrap: str, timeout_seconds: float, period_ms: int | None, as_json: bool
) -> None:
    """Let a token be good for longer, up to its maximum."""
    from anabranch.client.delegation_tokens import SERVERS_CHOICE, find_token, renew_token

    async def work(cluster: Cluster) -> int:
        token = await find_token(cluster, token_id)
        return await renew_token(cluster, token, period_ms or SERVERS_CHOICE)

    ends = _time(ask(bootstrap, work, timeout_seconds=timeout_seconds))
    sentence = f"Token {token_id} expires at {ends}."
    tell(sentence, as_json=as_json, token_id=token_id, expires=ends)


@command.command(epilog="Example: anabranch tokens expire 6ZPTpKfGSNCSAVP7eQ4wMA")
@token_option
@bootstrap_option
@timeout_option
@click.option(
    "--period-ms", type=Milliseconds(0, LONGEST_MS), metavar="MS",
    help="After how long it ends, up to its maximum.  [default: it is removed now]",
)  # fmt: skip
@json_option
def expire(
    token_id: str, bootstrap: str, timeout_seconds: float, period_ms: int | None, as_json: bool
) -> None:
    """Remove a token, or let it end later. Connections that are open go on until it would end."""
    from anabranch.client.delegation_tokens import AT_ONCE, expire_token, find_token

    async def work(cluster: Cluster) -> int:
        token = await find_token(cluster, token_id)
        return await expire_token(cluster, token, AT_ONCE if period_ms is None else period_ms)

    ends = _time(ask(bootstrap, work, timeout_seconds=timeout_seconds))
    removed = period_ms is None
    sentence = f"Token {token_id} {'is removed' if removed else f'expires at {ends}'}."
    tell(sentence, as_json=as_json, token_id=token_id, removed=removed, expires=ends)


def _row(token: Token) -> dict[str, Any]:
    return {
        "token_id": token.token_id, "owner": str(token.owner), "requester": str(token.requester),
        "renewers": [str(each) for each in token.renewers], "issued": _time(token.issue_ms),
        "expires": _time(token.expiry_ms), "max": _time(token.max_ms),
    }  # fmt: skip


def _text(value: Any) -> str:
    return ", ".join(value) if isinstance(value, list) else str(value)


def _time(moment_ms: int) -> str:
    """A time of day in UTC; one beyond what a calendar holds as its number."""
    try:
        found = datetime.fromtimestamp(moment_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return str(moment_ms)
    return found.isoformat(timespec="seconds").replace("+00:00", "Z")
