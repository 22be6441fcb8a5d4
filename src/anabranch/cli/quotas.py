"""`anabranch quotas`: list, set and remove client quotas, with the keys of kafka-configs."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    pairs,
    print_json,
    print_table,
    timeout_option,
)

if TYPE_CHECKING:
    from anabranch.client.quotas import EntityQuotas

V = TypeVar("V", bound=Callable[..., Any])
ENTITY_OPTIONS = (
    click.option("--user", metavar="NAME", help="A user, without the type of its principal."),
    click.option("--user-default", is_flag=True, help="Users that have no quota of their own."),
    click.option("--client-id", metavar="ID", help="A client id."),
    click.option(
        "--client-id-default", is_flag=True, help="Client ids that have no quota of their own."
    ),
    click.option("--ip", metavar="ADDRESS", help="The address that clients connect from."),
    click.option("--ip-default", is_flag=True, help="Addresses that have no quota of their own."),
)


def _with_entity(verb: V) -> V:
    for option in reversed(ENTITY_OPTIONS):
        verb = option(verb)
    return verb


@click.group(cls=VerbGroup, epilog="Example: anabranch quotas list --user alice")
def command() -> None:
    """List, set and remove quotas of users, clients and addresses."""


@command.command("list", epilog="Example: anabranch quotas list --client-id loader --json")
@bootstrap_option
@timeout_option
@_with_entity
@json_option
def list_quotas(bootstrap: str, timeout_seconds: float, as_json: bool, **parts: Any) -> None:
    """List quotas: all, or those of entities that have the named parts."""
    from anabranch.client.quotas import describe_quotas

    wanted = entity_of(**parts)
    found = ask(
        bootstrap, lambda cluster: describe_quotas(cluster, wanted), timeout_seconds=timeout_seconds
    )
    _show(found, as_json=as_json)


@command.command(
    "set", epilog="Example: anabranch quotas set --user alice producer_byte_rate=1048576"
)
@bootstrap_option
@timeout_option
@_with_entity
@click.argument("settings", nargs=-1, required=True, metavar="KEY=LIMIT…")
@json_option
def set_quotas(
    bootstrap: str, timeout_seconds: float, settings: tuple[str, ...], as_json: bool, **parts: Any
) -> None:
    """Set limits a second: producer_byte_rate, consumer_byte_rate, request_percentage,
    controller_mutation_rate; of addresses connection_creation_rate."""
    values: dict[str, float | None] = {}
    for key, value in pairs(settings, "The quota").items():
        try:
            values[key] = float(value)
        except ValueError:
            raise click.UsageError(f"{key}={value}: {value!r} is no number.") from None
    _refuse_unknown(values)
    _alter(bootstrap, timeout_seconds, parts, values, as_json=as_json)


@command.command(epilog="Example: anabranch quotas remove --user alice producer_byte_rate")
@bootstrap_option
@timeout_option
@_with_entity
@click.argument("keys", nargs=-1, required=True, metavar="KEY…")
@json_option
def remove(
    bootstrap: str, timeout_seconds: float, keys: tuple[str, ...], as_json: bool, **parts: Any
) -> None:
    """Remove limits; one that is not set stays so."""
    _refuse_unknown(keys)
    _alter(bootstrap, timeout_seconds, parts, dict.fromkeys(keys), as_json=as_json)


def _refuse_unknown(keys: Iterable[str]) -> None:
    from anabranch.core.quotas.entities import CLIENT_KEYS, IP_KEYS

    known = (*CLIENT_KEYS, *IP_KEYS)
    for key in keys:
        if key not in known:
            raise click.UsageError(f"There is no quota {key!r}; there are {', '.join(known)}.")


def _alter(
    bootstrap: str, timeout_seconds: float, parts: dict[str, Any],
    values: dict[str, float | None], *, as_json: bool,
) -> None:  # fmt: skip
    from anabranch.client.quotas import EntityQuotas, alter_quotas

    entity = entity_of(**parts)
    if not entity:
        raise click.UsageError("Name whom: --user, --client-id, --ip, or a default of these.")
    ask(
        bootstrap, lambda cluster: alter_quotas(cluster, entity, values),
        timeout_seconds=timeout_seconds,
    )  # fmt: skip
    kept = {key: value for key, value in values.items() if value is not None}
    if as_json:
        removed = [key for key, value in values.items() if value is None]
        print_json({"entity": entity, "set": kept, "removed": removed})
    elif kept:
        _show([EntityQuotas(entity, kept)], as_json=False)
    else:
        click.echo(f"Removed {', '.join(values)} of {_words(entity)}.")


def entity_of(**parts: Any) -> dict[str, str | None]:
    """The entity that flags name; raises a usage error."""
    entity: dict[str, str | None] = {}
    for kind in ("user", "client-id", "ip"):
        name, is_default = (parts[key] for key in _flags(kind))
        if name is not None and is_default:
            raise click.UsageError(f"Give --{kind} or --{kind}-default, not both.")
        if name is not None or is_default:
            entity[kind] = name
    return entity


def _flags(kind: str) -> tuple[str, str]:
    flag = kind.replace("-", "_")
    return flag, f"{flag}_default"


def _words(entity: dict[str, str | None]) -> str:
    return ", ".join(f"{kind} {name or '(default)'}" for kind, name in entity.items())


def _show(found: Sequence[EntityQuotas], *, as_json: bool) -> None:
    if as_json:
        print_json([{"entity": each.entity, "values": each.values} for each in found])
    elif not found:
        click.echo("There are no such quotas.")
    else:
        print_table(
            ["entity", "key", "limit"],
            [
                [_words(each.entity), key, f"{value:.15g}"]
                for each in found
                for key, value in each.values.items()
            ],
        )
