"""`anabranch serve`: one node in the foreground, configured as Kafka's are."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import click
import msgspec

from anabranch.cli.cluster_command import in_milliseconds, print_failure

if TYPE_CHECKING:
    from anabranch.core.wire.metadata_records import UserScramCredentialRecord
    from anabranch.server.config import NodeConfig


@click.command(epilog="Example: anabranch serve --config server.properties --set num.partitions=6")
@click.option(
    "--config", "properties_file", type=click.Path(dir_okay=False), metavar="FILE",
    help="A Kafka-style server.properties.",
)  # fmt: skip
@click.option(
    "--set", "settings", multiple=True, metavar="KEY=VALUE",
    help="A setting that overrides the file's; may be given more than once.",
)  # fmt: skip
@click.option("--dir", "folder", metavar="DIR", help="The folder for the node's data (log.dirs).")
@click.option(
    "--port", type=int, metavar="N", help="Client port on 127.0.0.1; 0 chooses a free one."
)
@click.option(
    "--log-level", type=click.Choice(["debug", "info", "warning", "error"]), default="info",
    show_default=True, help="The lowest level to log to standard error.",
)  # fmt: skip
@click.option(
    "--log-format", type=click.Choice(["text", "json"]), default="text", show_default=True,
    help="Format of log lines: key=value text or JSON.",
)  # fmt: skip
@click.option(
    "--json", "as_json", is_flag=True,
    help="Print JSON for programs: log lines, and the reason if the node fails.",
)  # fmt: skip
@click.option(
    "--add-scram", "users", multiple=True, metavar="USER",
    help='A user of a new cluster, as SCRAM-SHA-256=[name=alice,password=…], or @FILE with one a '
        "line, so that other processes cannot see it. No effect on a cluster that exists.",
)  # fmt: skip
@click.option(
    "--stop-with-stdin", is_flag=True, hidden=True,
    help="Stop cleanly when standard input ends, because the process that started this one has "
        "ended.",
)  # fmt: skip
def command(
    properties_file: str | None,
    settings: tuple[str, ...],
    folder: str | None,
    port: int | None,
    log_level: str,
    log_format: str,
    as_json: bool,
    users: tuple[str, ...],
    stop_with_stdin: bool,
) -> None:
    """Run a node until SIGTERM or Ctrl-C.

    A combined node (broker and controller) needs only a folder. A new folder needs no format step.
    """
    from anabranch.server import logs
    from anabranch.server.main import run

    logs.configure(log_level, "json" if as_json else log_format)
    config = configured(properties_file, [*settings, *shorthand(folder, port)])
    if users:
        config = msgspec.structs.replace(config, first_users=first_users(users))
    tell_failure = print_failure if as_json else None
    raise SystemExit(run(config, stop_with_stdin=stop_with_stdin, tell_failure=tell_failure))


def first_users(texts: Sequence[str]) -> tuple[UserScramCredentialRecord, ...]:
    """The users that `--add-scram` names; what is wrong with one becomes one line."""
    import secrets

    from anabranch.core.access.scram_server import SALT_BYTES
    from anabranch.core.access.scram_text import ScramTextFault, read_user

    found: dict[tuple[int, str], UserScramCredentialRecord] = {}
    try:
        for text in texts:
            lines = Path(text[1:]).read_text().splitlines() if text.startswith("@") else [text]
            for line in filter(str.strip, lines):
                record = read_user(line, secrets.token_bytes(SALT_BYTES))
                if (record.mechanism, record.name) in found:
                    raise ScramTextFault(f"user {record.name} is there twice")
                found[record.mechanism, record.name] = record
    except (ScramTextFault, OSError, UnicodeDecodeError) as fault:
        raise click.ClickException(f"--add-scram: {fault}") from None
    return tuple(found.values())


def configured(properties_file: str | None, settings: Sequence[str]) -> NodeConfig:
    """The configuration of a node; what is wrong with it becomes one line. A duration with its
    unit, such as 1h, is taken where a setting takes milliseconds."""
    from anabranch.server.config import ConfigError, load_config

    try:
        return load_config(properties_file, list(map(_in_milliseconds, settings)))
    except ConfigError as fault:
        raise click.ClickException(str(fault)) from None


def _in_milliseconds(setting: str) -> str:
    key, equals, value = setting.partition("=")
    return f"{key}{equals}{in_milliseconds(key.strip(), value.strip())}" if equals else setting


def shorthand(folder: str | None, port: int | None) -> list[str]:
    """`--dir` and `--port` as settings."""
    found = []
    if folder is not None:
        found.append(f"log.dirs={folder}")
    if port is not None:
        found.append(f"listeners=PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0")
    return found
