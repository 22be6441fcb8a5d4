"""What the verbs that talk to a cluster share: options, the event loop, one-line faults."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from anabranch.client.cluster import Cluster

T = TypeVar("T")
DEFAULT_BOOTSTRAP = "127.0.0.1:9092"
WHOLE_SENTENCE = 1000
"""More letters than a sentence has."""

bootstrap_option = click.option(
    "--bootstrap-server", "bootstrap", default=DEFAULT_BOOTSTRAP, show_default=True,
    metavar="HOST:PORT", envvar="ANABRANCH_BOOTSTRAP_SERVER", show_envvar=True,
    help="Brokers to ask first, with commas between them.",
)  # fmt: skip
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for programs.")
timeout_option = click.option(
    "--timeout", "timeout_seconds", type=float, default=30.0, show_default=True, metavar="SECONDS",
    help="How long to try before giving up.",
)  # fmt: skip


class VerbGroup(click.Group):
    """Verbs of a verb; its help lists each with its whole first sentence, wrapped and not cut."""

    def format_commands(self, context: click.Context, formatter: click.HelpFormatter) -> None:
        """The list of verbs."""
        found = ((name, self.get_command(context, name)) for name in self.list_commands(context))
        rows = [(name, verb.get_short_help_str(WHOLE_SENTENCE)) for name, verb in found if verb]
        with formatter.section("Commands"):
            formatter.write_dl(rows)


def ask(
    bootstrap: str, work: Callable[[Cluster], Awaitable[T]], *, timeout_seconds: float = 30.0
) -> T:
    """Run `work` with a cluster's client; a refusal or a lost connection becomes one line."""
    from anabranch.client.cluster import Cluster
    from anabranch.client.connection import ConnectionLost
    from anabranch.core.errors import ApiError

    async def run() -> T:
        async with Cluster(bootstrap, deadline_seconds=timeout_seconds) as cluster:
            return await work(cluster)

    try:
        return asyncio.run(run())
    except ConnectionLost as fault:
        raise click.ClickException(
            f"{fault}. Is a node up there? Start one with `anabranch up`, or name another with "
            "--bootstrap-server."
        ) from None
    except ApiError as fault:
        raise click.ClickException(f"{fault.message} ({fault.code.name})") from None


def print_json(value: Any) -> None:
    """One document of JSON on standard output."""
    click.echo(json.dumps(value, ensure_ascii=False))


def print_table(headings: Sequence[str], rows: Sequence[Sequence[object]]) -> None:
    """A table for people; without borders where nobody looks, so that it can be cut and sorted."""
    if not sys.stdout.isatty():
        widths = [
            max(len(str(row[column])) for row in [headings, *rows])
            for column in range(len(headings))
        ]
        for row in [headings, *rows]:
            line = "  ".join(
                str(each).ljust(width) for each, width in zip(row, widths, strict=True)
            )
            click.echo(line.rstrip())
        return
    from rich.console import Console
    from rich.table import Table

    table = Table(*headings, header_style="bold")
    for row in rows:
        table.add_row(*(str(each) for each in row))
    Console().print(table)


def time_text(at_ms: int) -> str:
    """A time of the wall clock, in UTC, to the second."""
    return datetime.fromtimestamp(at_ms / 1000, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def pairs(texts: Sequence[str], what: str) -> dict[str, str]:
    """`key=value` texts as a mapping; a text without `=` is a usage error that names it."""
    found = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise click.UsageError(f"{what} {text!r} is not KEY=VALUE.")
        found[key.strip()] = value.strip()
    return found
