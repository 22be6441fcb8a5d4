"""`anabranch configs`: describe and alter the settings of topics and brokers."""

from __future__ import annotations

from collections.abc import Callable
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, TypeVar

import click

from anabranch.cli.cluster_command import (
    VerbGroup,
    ask,
    bootstrap_option,
    json_option,
    print_json,
    print_table,
    setting_pairs,
    tell,
    timeout_option,
)
from anabranch.cli.completion_names import complete_brokers, complete_topics
from anabranch.cli.name_option import naming_option
from anabranch.cli.replica_placement import placement_of, placement_option
from anabranch.core.sentences import number_of

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster

V = TypeVar("V", bound=Callable[..., Any])
DEFAULT_SOURCE = 5
STATIC_SOURCE = 4

type_option = click.option(
    "--entity-type", "kind", type=click.Choice(["topics", "brokers"]),
    help="Whether the settings belong to a topic or a broker.",
)  # fmt: skip
name_option = click.option(
    "--entity-name", "name", metavar="NAME", help="The topic, or the id of the broker."
)
default_option = click.option(
    "--entity-default", is_flag=True, help="The cluster-wide defaults of all brokers."
)
short_options = (
    naming_option(
        "--topic", metavar="NAME", help="Short for --entity-type topics --entity-name NAME.",
        shell_complete=complete_topics,
    ),
    click.option(
        "--broker", metavar="ID", help="Short for --entity-type brokers --entity-name ID.",
        shell_complete=complete_brokers,
    ),
)  # fmt: skip


def entity_options(verb: V) -> V:
    """Whose settings a verb is about; it gets them as keywords for `resource_of`."""
    for option in (*reversed(short_options), default_option, name_option, type_option):
        verb = option(verb)
    return verb


@click.group(
    cls=VerbGroup,
    epilog="Example: anabranch configs describe --entity-type topics --entity-name t",
)
def command() -> None:
    """Describe and alter the settings of topics and brokers."""


@command.command(epilog="Example: anabranch configs describe --entity-type brokers --entity-name 1")
@bootstrap_option
@timeout_option
@entity_options
@click.option(
    "--all", "everything", is_flag=True, help="Include settings that have their default value."
)
@click.option("--documentation", is_flag=True, help="Show the meaning of each setting.")
@json_option
def describe(
    bootstrap: str, timeout_seconds: float, everything: bool, documentation: bool, as_json: bool,
    **entity: Any,
) -> None:  # fmt: skip
    """Show the settings of a topic or a broker, and the source of each."""
    from anabranch.client.admin import describe_configs

    resource, target = resource_of(*entity_of(**entity))
    found = ask(
        bootstrap,
        lambda cluster: describe_configs(cluster, resource, target, documentation=documentation),
        timeout_seconds=timeout_seconds,
    )
    shown = [
        each
        for each in sorted(found, key=lambda each: each.name)
        if everything or each.config_source not in (DEFAULT_SOURCE, STATIC_SOURCE)
    ]
    from anabranch.client.views.configs import SOURCES, setting_view

    if as_json:
        print_json([setting_view(each, documentation=documentation) for each in shown])
        return
    if not shown:
        click.echo("Nothing was changed; --all shows every setting with its default.")
        return
    headings = ["setting", "value", "from", *(["meaning"] if documentation else [])]
    print_table(
        headings,
        [
            [
                each.name,
                shown_value(each),
                SOURCES.get(each.config_source, each.config_source),
                *([each.documentation or ""] if documentation else []),
            ]
            for each in shown
        ],
    )


def shown_value(entry: Any) -> str:
    """A value for people: a password is never shown, an unset value is a dash."""
    if entry.is_sensitive:
        return "(hidden)"
    return "-" if entry.value is None else str(entry.value)


def entity_of(
    kind: str | None, name: str | None, entity_default: bool, topic: str | None, broker: str | None
) -> tuple[str, str | None, bool]:
    """The kind, the name and whether it is the default, of either form. Raises UsageError."""
    if topic is None and broker is None:
        if kind is None:
            raise click.UsageError("Give --topic NAME, --broker ID or --entity-type.")
        return kind, name, entity_default
    if kind is not None or name is not None or entity_default or None not in (topic, broker):
        raise click.UsageError(
            "Name one thing: --topic NAME, --broker ID, or --entity-type with --entity-name."
        )
    return ("brokers", broker, False) if topic is None else ("topics", topic, False)


def resource_of(kind: str, name: str | None, default: bool) -> tuple[Any, str]:
    """The resource that the flags name; raises a usage error when they do not name one."""
    from anabranch.client.admin import ResourceKind

    if kind == "topics":
        if default or not name:
            raise click.UsageError("A topic's settings need --entity-name.")
        return ResourceKind.TOPIC, name
    if default == (name is not None):
        raise click.UsageError("Give --entity-name with a broker's id, or --entity-default.")
    return ResourceKind.BROKER, name or ""


@command.command(
    epilog="Example: anabranch configs alter --entity-type topics --entity-name t "
    "--add-config retention.ms=60000 --delete-config segment.ms"
)
@bootstrap_option
@timeout_option
@entity_options
@click.option(
    "--add-config", "added", multiple=True, metavar="KEY=VALUE[,…]",
    help="Set these; put a value with commas in brackets: cleanup.policy=[compact,delete]. "
        "Durations may have a unit: retention.ms=7d.",
)  # fmt: skip
@click.option(
    "--add-config-file", "file", type=click.Path(exists=True, dir_okay=False), metavar="FILE",
    help="Set what this properties file names: passwords are no arguments then.",
)  # fmt: skip
@click.option(
    "--delete-config", "deleted", multiple=True, metavar="KEY[,…]",
    help="Reset these to their defaults.",
)  # fmt: skip
@placement_option
@json_option
def alter(
    bootstrap: str, timeout_seconds: float,
    added: tuple[str, ...], file: str | None, deleted: tuple[str, ...], placement: str | None,
    as_json: bool, **entity: Any,
) -> None:  # fmt: skip
    """Change settings of a topic or a broker; other settings stay."""
    from anabranch.client.admin import ConfigOperation, alter_configs, describe_configs

    kind, name, is_default = entity_of(**entity)
    resource, target = resource_of(kind, name, is_default)
    changes = setting_pairs(
        [part for text in added for part in split_outside_brackets(text)], "--add-config"
    )
    operations = [
        (ConfigOperation.SET, key, value.removeprefix("[").removesuffix("]"))
        for key, value in changes.items()
    ]
    if file is not None:
        operations += [(ConfigOperation.SET, *each) for each in _pairs_of(file)]
    dropped = [key.strip() for text in deleted for key in text.split(",") if key.strip()]
    if kind == "topics":
        _refuse_unknown(dropped, kind)
    if placement is not None:
        if kind != "topics":
            raise click.UsageError("--replica-placement is a topic's: use --entity-type topics.")
        text = placement_of(placement)
        operations.append((ConfigOperation.SET, "confluent.placement.constraints", text))
    if not operations and not dropped:
        raise click.UsageError(
            "Nothing to change: give --add-config, --add-config-file or --delete-config."
        )
    all_operations = [*operations, *((ConfigOperation.DELETE, key, None) for key in dropped)]

    async def work(cluster: Cluster) -> None:
        strange = _unknown(dropped, kind)
        if strange:
            stored = {each.name for each in await describe_configs(cluster, resource, target)}
            _refuse_unknown([each for each in strange if each not in stored], kind)
        await alter_configs(cluster, resource, target, all_operations)

    ask(bootstrap, work, timeout_seconds=timeout_seconds)
    for key in _unknown([key for _, key, _ in operations], kind):
        what = f"Brokers have no setting {key!r} that this version knows: it is kept, and does"
        click.echo(f"{what} nothing. --delete-config removes it.{_meant(key, kind)}", err=True)
    tell(
        f"{number_of(len(all_operations), 'setting')} of {kind[:-1]} {target or 'defaults'} "
        "changed.",
        as_json=as_json,
        entity_type=kind,
        entity_name=target or None,
        changed={key: _shown(kind, key, value) for _, key, value in all_operations},
    )


def _pairs_of(file: str) -> list[tuple[str, str]]:
    import javaproperties

    try:
        with open(file, encoding="utf-8") as text:
            return sorted(javaproperties.load(text).items())
    except OSError as fault:
        raise click.ClickException(f"{file}: {fault.strerror}.") from None
    except (UnicodeDecodeError, javaproperties.InvalidUEscapeError):
        raise click.ClickException(f"{file} is no properties file in UTF-8.") from None


def _shown(kind: str, name: str, value: str | None) -> str | None:
    """A value, unless it is a password of a broker's."""
    from anabranch.core.settings.validation import Resource, is_sensitive

    if value is None or kind != "brokers" or not is_sensitive(Resource.BROKER, name):
        return value
    return "(hidden)"


def _refuse_unknown(names: list[str], kind: str) -> None:
    """A node takes back what never was, as Kafka's does; here it is a slip in a name."""
    for name in _unknown(names, kind):
        sentence = f"--delete-config: {kind} have no setting {name!r}."
        raise click.UsageError(sentence + _meant(name, kind))


def _unknown(names: list[str], kind: str) -> list[str]:
    """Those of the names that are no settings."""
    from anabranch.core.settings.validation import Resource, setting_of

    resource = Resource.TOPIC if kind == "topics" else Resource.BROKER
    return [each for each in names if setting_of(resource, each) is None]


def _meant(name: str, kind: str) -> str:
    from anabranch.core.settings.catalogue import BROKER_SETTINGS, TOPIC_SETTINGS

    known = TOPIC_SETTINGS if kind == "topics" else BROKER_SETTINGS
    near = get_close_matches(name, known, n=1)
    return f" Did you mean {near[0]}?" if near else ""


def split_outside_brackets(text: str) -> list[str]:
    """`a=1,b=[x,y]` as ['a=1', 'b=[x,y]']. Raises a usage error for a bracket without its pair."""
    parts, depth = [""], 0
    for character in text:
        depth += (character == "[") - (character == "]")
        if character == "," and depth == 0:
            parts.append("")
        else:
            parts[-1] += character
    if depth:
        raise click.UsageError(f"--add-config {text!r} has a bracket without its pair.")
    return [part for part in parts if part]
