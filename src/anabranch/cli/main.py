"""The command `anabranch`: a group whose verbs are loaded only when they are used.

Each verb is one module of this package with a click command (or group) named `command`, so that
`anabranch version` does not pay for the server, nor `anabranch serve` for the tables of the tools.

The rule it keeps: no traceback reaches a user. A fault ends as one line on standard error and an
exit code that is not 0; the variable `ANABRANCH_TRACEBACK=1` shows the whole story of a bug.
"""

from __future__ import annotations

import importlib
import os
from typing import Any

import click

from anabranch import __version__
from anabranch.cli.cluster_command import (
    TRACEBACK_VARIABLE,
    SuggestingGroup,
    error_json,
    escaped,
    print_json,
)

VERBS = {
    "serve": "Run a node until SIGTERM or Ctrl-C.",
    "up": "Start a cluster on this machine without configuration.",
    "demo": "Run three brokers, send 336,776 real records, and kill a broker during writes.",
    "topics": "Create, list, describe, alter and delete topics.",
    "partitions": "Elect leaders, and move replicas between brokers.",
    "plan": "Plan moves of replicas, with reasons; control plans under way.",
    "apply": "Carry out a plan that was reviewed.",
    "placement": "Show how the cluster places the replicas of a diskless topic.",
    "explain": "Explain why a partition's replicas are where they are.",
    "configs": "Describe and alter the settings of topics and brokers.",
    "users": "List, set and remove users that log in with SCRAM.",
    "tokens": "Create, list, renew and expire delegation tokens.",
    "security": "Say what the settings of a node leave open.",
    "acls": "List, add and remove access rules (ACLs).",
    "quotas": "List, set and remove quotas of users, clients and addresses.",
    "produce": "Write records from standard input or a file.",
    "consume": "Read records of a topic.",
    "groups": "List, describe and delete consumer groups; reset their offsets.",
    "transactions": "List and describe transactions; find and abort hanging ones.",
    "cluster": "Show the nodes and the status of a cluster; restart and upgrade it.",
    "rehearse": "Simulate the loss of a broker, a rack or a data centre.",
    "spark": "Run Spark jobs: tables of topics, comparison of replicas, tiering, compaction.",
    "mirror": "Mirror a cluster to another one; show how far behind it is.",
    "log": "Dump and verify the segments of a log.",
    "diskless": "Verify the objects of diskless topics; restore a lost coordinator.",
    "remote": "List and verify remote segments; restore and export what is known of them.",
    "metadata": "Dump the metadata log; restore a lost metadata store.",
    "sim": "Run a simulated cluster through random faults.",
    "completion": "Print a script for shell completion of commands and options.",
    "version": "Print the version.",
}
"""Verb -> the line of `anabranch --help`; the module of the same name holds the command."""

SECTIONS = {
    "Run": ("serve", "up", "demo"),
    "Topics and records": ("topics", "configs", "produce", "consume", "groups", "transactions"),
    "Replicas": ("partitions", "plan", "apply", "placement", "explain"),
    "Cluster": ("cluster", "log", "remote", "diskless", "metadata"),
    "Security": ("users", "tokens", "security", "acls", "quotas"),
    "Spark and mirrors": ("spark", "mirror"),
    "Rehearse": ("rehearse", "sim"),
    "This command": ("completion", "version"),
}
"""Heading -> the verbs that help lists below it."""

AS_JSON = "anabranch.as_json"


class Verbs(SuggestingGroup):
    """A group that imports the module of a verb when the verb is asked for."""

    def list_commands(self, _context: click.Context) -> list[str]:
        """The verbs in the order in which people meet them."""
        return list(VERBS)

    def get_command(self, _context: click.Context, name: str) -> click.Command | None:
        """The click command of a verb, or None for a name that is no verb."""
        if name not in VERBS:
            return None
        command: click.Command = importlib.import_module(f"anabranch.cli.{name}").command
        return command

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """The verbs by what they are for, without importing any of them."""
        listed = {verb for verbs in SECTIONS.values() for verb in verbs}
        others = tuple(verb for verb in VERBS if verb not in listed)
        for heading, verbs in {**SECTIONS, **({"Others": others} if others else {})}.items():
            with formatter.section(heading):
                formatter.write_dl([(verb, VERBS[verb]) for verb in verbs])

    def parse_args(self, context: click.Context, words: list[str]) -> list[str]:
        """Note whether JSON is asked for: faults are told in it too, those of usage included."""
        context.meta[AS_JSON] = "--json" in words
        return super().parse_args(context, words)

    def invoke(self, context: click.Context) -> Any:
        """Run a verb; whatever goes wrong becomes one line, or one object of JSON."""
        try:
            return self._invoke(context)
        except click.ClickException as fault:
            if not context.meta[AS_JSON]:
                raise escaped(fault) from fault.__cause__
            try:
                print_json(error_json(fault))
            except BrokenPipeError:
                raise
            except OSError:  # a full disk, say: then it is told on standard error
                raise fault from None
            raise click.exceptions.Exit(fault.exit_code) from None

    def _invoke(self, context: click.Context) -> Any:
        try:
            return super().invoke(context)
        except (click.ClickException, click.exceptions.Exit, click.Abort, BrokenPipeError):
            raise
        except Exception as fault:
            if os.environ.get(TRACEBACK_VARIABLE):
                raise
            raise click.ClickException(sentence_of(fault)) from fault


def sentence_of(fault: Exception) -> str:
    """One line for people: what happened, and for what looks like a bug how to see more."""
    from anabranch.core.errors import ApiError, StorageFault

    unwritable = fault if isinstance(fault, UnicodeEncodeError) else fault.__cause__
    if isinstance(unwritable, UnicodeEncodeError):  # an argument of other bytes has surrogates
        return f"{unwritable.object!r} is not text in UTF-8."
    text = str(fault) or type(fault).__name__
    if isinstance(fault, (ApiError, StorageFault, OSError)):
        return text
    return f"{type(fault).__name__}: {text} (set {TRACEBACK_VARIABLE}=1 to see where)"


@click.command(
    cls=Verbs,
    context_settings={"help_option_names": ["-h", "--help"]},
    epilog="Example: anabranch up",
)
@click.version_option(__version__, message="anabranch %(version)s")
def main() -> None:
    """A replicated, partitioned log that speaks the Kafka protocol."""


if __name__ == "__main__":
    main()
