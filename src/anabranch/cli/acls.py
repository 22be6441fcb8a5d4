"""`anabranch acls`: list, add and remove access rules, with the meanings of kafka-acls.

A rule is made for each named resource, principal, host and operation. Not here: the convenience
flags `--producer` and `--consumer` of kafka-acls; name the operations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

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

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster
    from anabranch.core.access.acls import Acl

V = TypeVar("V", bound=Callable[..., Any])
CLUSTER = "kafka-cluster"
OPERATIONS = (
    "all", "read", "write", "create", "delete", "alter", "describe", "cluster-action",
    "describe-configs", "alter-configs", "idempotent-write", "create-tokens", "describe-tokens",
)  # fmt: skip
RESOURCE_OPTIONS = (
    click.option("--topic", "topics", multiple=True, metavar="NAME", help="A topic; * is all."),
    click.option("--group", "groups", multiple=True, metavar="NAME", help="A group; * is all."),
    click.option(
        "--transactional-id", "transactional_ids", multiple=True, metavar="ID",
        help="A transactional id; * is all.",
    ),
    click.option(
        "--delegation-token", "tokens", multiple=True, metavar="ID",
        help="A delegation token, to describe it; * is all.",
    ),
    click.option(
        "--user-principal", "users", multiple=True, metavar="TYPE:NAME",
        help="A user whose tokens are made or described; * is all.",
    ),
    click.option("--cluster", "of_cluster", is_flag=True, help="The cluster itself."),
)  # fmt: skip
RULE_OPTIONS = (
    click.option(
        "--allow-principal", "allowed", multiple=True, metavar="TYPE:NAME",
        help="Who is allowed, such as User:alice; User:* is everybody.",
    ),
    click.option(
        "--deny-principal", "denied", multiple=True, metavar="TYPE:NAME",
        help="Who is denied, whatever allows it.",
    ),
    click.option(
        "--allow-host", "allowed_hosts", multiple=True, metavar="ADDRESS",
        help="From where --allow-principal holds.  [default: *]",
    ),
    click.option(
        "--deny-host", "denied_hosts", multiple=True, metavar="ADDRESS",
        help="From where --deny-principal holds.  [default: *]",
    ),
    click.option(
        "--operation", "operations", multiple=True,
        type=click.Choice(OPERATIONS, case_sensitive=False),
        help="What the rules are about; may be given more than once.  [default: all]",
    ),
    click.option(
        "--resource-pattern-type", "pattern", type=click.Choice(["literal", "prefixed"]),
        default="literal", show_default=True, help="Whether names are whole or beginnings.",
    ),
)  # fmt: skip


controller_option = click.option(
    "--bootstrap-controller", "controllers", metavar="HOST:PORT",
    help="Ask at listeners of controllers instead of brokers (KIP-919).",
)  # fmt: skip


def _with(options: Sequence[Callable[[Any], Any]]) -> Callable[[V], V]:
    def added(verb: V) -> V:
        for option in reversed(options):
            verb = option(verb)
        return verb

    return added


@click.group(cls=VerbGroup, epilog="Example: anabranch acls list --topic orders")
def command() -> None:
    """List, add and remove access rules (ACLs)."""


@command.command("list", epilog="Example: anabranch acls list --topic orders --json")
@bootstrap_option
@controller_option
@timeout_option
@_with(RESOURCE_OPTIONS)
@click.option(
    "--resource-pattern-type", "pattern",
    type=click.Choice(["any", "match", "literal", "prefixed"]), default="any", show_default=True,
    help="Which rules of a name: with match, all that apply to it.",
)  # fmt: skip
@click.option("--principal", "principals", multiple=True, metavar="TYPE:NAME", help="Only theirs.")
@json_option
def list_rules(
    bootstrap: str, controllers: str | None, timeout_seconds: float,
    pattern: str, principals: tuple[str, ...], as_json: bool, **parts: Any,
) -> None:  # fmt: skip
    """List rules: all, or those of some resources and principals."""
    from anabranch.client.acls import PATTERNS, describe_acls
    from anabranch.core.access.acl_filter import AclFilter

    code = PATTERNS[pattern]
    filters = [AclFilter(kind, name, code) for kind, name in resources(parts)]

    async def find(cluster: Cluster) -> set[Acl]:
        wanted = filters or [AclFilter(pattern_type=code)]
        return {acl for each in wanted for acl in await describe_acls(cluster, each)}

    found = ask(
        controllers or bootstrap, find,
        timeout_seconds=timeout_seconds, at_controllers=controllers is not None,
    )  # fmt: skip
    shown = sorted(each for each in found if not principals or each.principal in principals)
    _show(shown, as_json=as_json, none="There are no such rules.")


@command.command(
    epilog="Example: anabranch acls add --allow-principal User:alice --operation read --topic t"
)
@bootstrap_option
@controller_option
@timeout_option
@_with(RESOURCE_OPTIONS)
@_with(RULE_OPTIONS)
@json_option
def add(
    bootstrap: str, controllers: str | None, timeout_seconds: float, as_json: bool, **parts: Any
) -> None:
    """Add rules; a rule that exists stays as it is."""
    from anabranch.client.acls import create_acls

    acls = rules(**parts)
    if not acls:
        raise click.UsageError("Name whom: --allow-principal or --deny-principal.")
    ask(
        controllers or bootstrap, lambda cluster: create_acls(cluster, acls),
        timeout_seconds=timeout_seconds, at_controllers=controllers is not None,
    )  # fmt: skip
    _show(acls, as_json=as_json, none="")


@command.command(
    epilog="Example: anabranch acls remove --allow-principal User:alice --operation read --topic t"
)
@bootstrap_option
@controller_option
@timeout_option
@_with(RESOURCE_OPTIONS)
@_with(RULE_OPTIONS)
@json_option
def remove(
    bootstrap: str, controllers: str | None, timeout_seconds: float, as_json: bool, **parts: Any
) -> None:
    """Remove rules: those named, or without a principal all of the named resources."""
    from anabranch.client.acls import PATTERNS, delete_acls
    from anabranch.core.access.acl_filter import AclFilter

    acls = rules(**parts)
    if acls:
        filters = [
            AclFilter(
                each.resource_type, each.resource_name, each.pattern_type, each.principal,
                each.host, each.operation, each.permission,
            )
            for each in acls
        ]  # fmt: skip
    elif parts["operations"]:
        raise click.UsageError("--operation needs --allow-principal or --deny-principal.")
    else:
        filters = [
            AclFilter(kind, name, PATTERNS[parts["pattern"]]) for kind, name in _named(parts)
        ]
    removed = ask(
        controllers or bootstrap, lambda cluster: delete_acls(cluster, filters),
        timeout_seconds=timeout_seconds, at_controllers=controllers is not None,
    )  # fmt: skip

    _show(removed, as_json=as_json, none="There are no such rules; nothing was removed.")


def resources(parts: dict[str, Any]) -> list[tuple[int, str]]:
    """Kafka's number and the name of each named resource."""
    from anabranch.client.acls import RESOURCES

    named = {
        "topic": parts["topics"], "group": parts["groups"], "user": parts["users"],
        "transactional-id": parts["transactional_ids"], "delegation-token": parts["tokens"],
    }  # fmt: skip
    found = [(RESOURCES[kind], name) for kind, names in named.items() for name in names]
    return [*found, (RESOURCES["cluster"], CLUSTER)] if parts["of_cluster"] else found


def _named(parts: dict[str, Any]) -> list[tuple[int, str]]:
    found = resources(parts)
    if not found:
        raise click.UsageError(
            "Name what: --topic, --group, --transactional-id, --cluster, --delegation-token or "
            "--user-principal."
        )
    return found


def rules(**parts: Any) -> list[Acl]:
    """The rules that flags name, none without a principal; raises a usage error."""
    from anabranch.client.acls import OPERATIONS as CODES
    from anabranch.client.acls import PATTERNS, PERMISSIONS, RESOURCES
    from anabranch.core.access.acls import Acl

    made = []
    for permission, who, hosts in (
        ("allow", parts["allowed"], parts["allowed_hosts"]),
        ("deny", parts["denied"], parts["denied_hosts"]),
    ):
        if hosts and not who:
            raise click.UsageError(f"--{permission}-host needs --{permission}-principal.")
        for principal in who:
            if ":" not in principal:
                raise click.UsageError(f"{principal!r} is no principal; write User:{principal}.")
            for kind, name in _named(parts):
                pattern = "literal" if kind == RESOURCES["cluster"] else parts["pattern"]
                made += [
                    Acl(
                        kind, PATTERNS[pattern], name, principal, host, CODES[operation],
                        PERMISSIONS[permission],
                    )
                    for host in hosts or ("*",)
                    for operation in parts["operations"] or ("all",)
                ]  # fmt: skip
    return made


def _show(acls: Sequence[Acl], *, as_json: bool, none: str) -> None:
    rows = [_row(acl) for acl in acls]
    if as_json:
        print_json(rows)
    elif not rows:
        click.echo(none)
    else:
        print_table(list(rows[0]), [list(row.values()) for row in rows])


def _row(acl: Acl) -> dict[str, str]:
    from anabranch.client.acls import OPERATIONS as CODES
    from anabranch.client.acls import PATTERNS, PERMISSIONS, RESOURCES

    return {
        "resource": _word(RESOURCES, acl.resource_type),
        "name": acl.resource_name,
        "pattern": _word(PATTERNS, acl.pattern_type),
        "principal": acl.principal,
        "host": acl.host,
        "operation": _word(CODES, acl.operation),
        "permission": _word(PERMISSIONS, acl.permission),
    }


def _word(words: Any, code: int) -> str:
    """Kafka's word of a number; a later version's number stays one."""
    return next((word for word, each in words.items() if each == code), str(code))
