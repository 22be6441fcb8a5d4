"""Writes docs/reference/ from the code: settings, verbs, metrics, errors, APIs, ledger, mutants.

Nothing here is typed twice: a page is only what the tables of the code say, and a test fails when
a setting, verb, metric, error or skipped feature has no sentence.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import click

ROOT = Path(__file__).resolve().parents[1]
REFERENCE = ROOT / "docs" / "reference"
API_FOLDER = ROOT / "src" / "anabranch" / "core" / "api"


def cell(text: object) -> str:
    """Text that is safe inside a table of Markdown."""
    return " ".join(str(text).replace("|", "\\|").split())


def table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table of Markdown."""
    lines = ["| " + " | ".join(headings) + " |", "|" + " --- |" * len(headings)]
    lines += ["| " + " | ".join(cell(each) for each in row) + " |" for row in rows]
    return "\n".join(lines) + "\n"


def names_table(headings: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """A table whose first column has long names: they may wrap on a phone."""
    return f'<div class="names" markdown>\n\n{table(headings, rows)}\n</div>\n'


def page(title: str, introduction: str, *parts: str) -> str:
    """A page that says it is generated."""
    return "\n".join([f"# {title}", "", introduction, "", *parts])


def settings_of(kind: str) -> Mapping[str, Any]:
    """Every setting of brokers or of topics, by name."""
    catalogue = importlib.import_module("anabranch.core.settings.catalogue")
    tables = {"broker": catalogue.BROKER_SETTINGS, "topic": catalogue.TOPIC_SETTINGS}
    return tables[kind]


def is_public(setting: Any) -> bool:
    """Internal settings are accepted as Kafka accepts them, and documented by neither."""
    return not setting.internal


def setting_rows(level: str, settings: Mapping[str, Any]) -> Iterable[Sequence[object]]:
    """One row a public setting."""
    for name, setting in sorted(settings.items()):
        if not is_public(setting):
            continue
        default = "" if not setting.default else f"`{setting.default}`"
        own = "; *own*" if setting.ours else ""
        force = "" if setting.in_force else "; *accepted*"
        kind = f"{setting.type.name.lower()}, {setting.scope.value}, {setting.importance.value}"
        anchor = f"{level}-{name}"
        named = f'<a id="{anchor}"></a>[`{name}`](#{anchor})'
        yield named, default, f"{setting.sentence} ({kind}{own}{force})"


def settings_page() -> str:
    """Settings of brokers and topics."""
    headings = ("name", "default", "meaning (type, scope, importance)")
    parts = []
    for kind, title in (("broker", "Broker settings"), ("topic", "Topic settings")):
        parts += [f"## {title}", "", names_table(headings, setting_rows(kind, settings_of(kind)))]
    return page(
        "Settings",
        "This page lists every setting. Names, types, defaults and limits are those of Kafka 4.1, "
        "which does not define the settings marked *own*. A setting marked *accepted* is "
        "validated, stored and described, but has no effect yet.",
        *parts,
    )


def verbs() -> dict[str, click.Command]:
    """Every verb of the command line, `topics create` style where a verb has verbs of its own."""
    main = importlib.import_module("anabranch.cli.main")
    found: dict[str, click.Command] = {}

    def walk(prefix: str, command: click.Command) -> None:
        found[prefix] = command
        if isinstance(command, click.Group):
            context = click.Context(command)
            for name in command.list_commands(context):
                inner = command.get_command(context, name)
                if inner is not None:
                    walk(f"{prefix} {name}", inner)

    context = click.Context(main.main)
    for name in main.main.list_commands(context):
        command = main.main.get_command(context, name)
        if command is not None:
            walk(name, command)
    return found


def help_of(name: str, command: click.Command) -> str:
    """What `--help` prints."""
    shared = importlib.import_module("anabranch.cli.main").main.context_settings
    context = click.Context(command, info_name=f"anabranch {name}", max_content_width=90, **shared)
    return command.get_help(context)


def cli_page() -> str:
    """The verbs, each as its own help says it."""
    parts: list[str] = []
    for name, command in verbs().items():
        parts += [f"## anabranch {name}", "", "```text", help_of(name, command), "```", ""]
    return page("Command line", "This page contains the `--help` of every command.", *parts)


def metrics(place: str = "server.metrics") -> list[tuple[str, str, str]]:
    """Name, kind and sentence of every metric of a node, or of what another module exports."""
    module = importlib.import_module(f"anabranch.{place}")
    return sorted((each.name, each.kind, each.sentence) for each in module.METRICS)


def metrics_page() -> str:
    """The metrics."""
    tables = []
    for place in ("server.metrics", "core.mirror.exported"):
        rows = ((f"`{name}`", kind, sentence) for name, kind, sentence in metrics(place))
        tables.append(names_table(("name", "kind", "meaning"), rows))
    return page(
        "Metrics",
        "If `http.listener` is set, a node serves these metrics for Prometheus at `/metrics`.",
        tables[0],
        "",
        "## A running mirror",
        "",
        "`anabranch mirror run --metrics HOST:PORT` serves these:",
        "",
        tables[1],
    )


def errors_page() -> str:
    """The errors of the protocol."""
    errors = importlib.import_module("anabranch.core.errors")
    rows = (
        (int(code), f"`{code.name}`", "yes" if info.retriable else "no", info.sentence)
        for code, info in sorted(errors.ERRORS.items())
    )
    return page(
        "Errors",
        "This page lists Kafka's error codes, and the meaning of each in Anabranch.",
        table(("code", "name", "retriable", "meaning"), rows),
    )


def handlers() -> list[tuple[Any, str]]:
    """Every API key's handler and the docstring of its file."""
    found = []
    for path in sorted(API_FOLDER.glob("p[0-9][0-9]_*.py")):
        module = importlib.import_module(f"anabranch.core.api.{path.stem}")
        found.append((module.HANDLER, module.__doc__ or ""))
    return sorted(found, key=lambda each: each[0].api_key)


def versions_text(versions: range) -> str:
    """A range of versions for people; an empty one is no version."""
    if not versions:
        return "none"
    return f"{versions[0]}-{versions[-1]}" if len(versions) > 1 else str(versions[0])


def apis_page() -> str:
    """The API keys, with their versions and what is skipped."""
    rows = []
    parts = []
    for handler, docstring in handlers():
        listeners = [name for name in ("broker", "controller") if getattr(handler, name)]
        advertised = handler.versions if handler.advertised is None else handler.advertised
        rows.append(
            (
                handler.api_key,
                f"[{handler.name}](#{handler.name.lower()})",
                versions_text(handler.versions),
                versions_text(advertised),
                ", ".join(listeners),
            )
        )
        parts += [f"## {handler.name}", "", f"API key {handler.api_key}.", "", *prose(docstring)]
    summary = table(("key", "name", "served", "advertised", "listeners"), rows)
    return page(
        "API keys",
        "This page lists every request that a node answers. *Advertised* are the versions in the "
        "response to ApiVersions: for old clients, those of Produce begin at 0, as in Kafka.",
        summary,
        *parts,
    )


def prose(docstring: str) -> list[str]:
    """A docstring as Markdown: a heading at the start of a line becomes bold."""
    lines = []
    for line in docstring.strip().splitlines():
        for heading in ("KIP:", "Versions:", "Behaviour:", "Skipped:"):
            if line.startswith(heading):
                lines.append("")
                line = f"**{heading[:-1]}:**{line[len(heading) :]}"
        lines.append(line)
    return [*lines, ""]


def skipped() -> list[tuple[str, str]]:
    """API name and sentence of everything that Kafka does there and a node does not."""
    return [(handler.name, each) for handler, _ in handlers() for each in handler.skipped]


def ledger_page() -> str:
    """What is not answered or skipped, and which settings are not in force."""
    unserved = importlib.import_module("anabranch.core.api.unserved").UNSERVED
    accepted = []
    for kind in ("broker", "topic"):
        for name, setting in sorted(settings_of(kind).items()):
            if is_public(setting) and not setting.in_force:
                accepted.append((f"`{name}`", kind, setting.sentence))
    return page(
        "Skipped features",
        "This page lists the requests of Kafka 4.1 that a node does not answer, features that the "
        "answered ones lack, and settings that are accepted but have no effect. Tests keep these "
        "lists up to date.",
        "## Requests that are not answered",
        "",
        ", ".join(f"{name} ({key})" for key, name in unserved.items()) + ".",
        "",
        "## Features of answered requests",
        "",
        table(("request", "skipped feature"), skipped()),
        "## Settings without effect",
        "",
        names_table(("setting", "level", "meaning in Kafka"), accepted),
    )


def mutant_rows(room: Any) -> Iterable[Sequence[object]]:
    """One row a mutant: the rule it breaks, its name, and the check or the test that notices."""
    directed = importlib.import_module("tests.mutants.mutant").NO_SCHEDULE
    for mutant in room.MUTANTS:
        check = f"`{mutant.caught_by.rpartition('::')[2]}`"
        seed = "" if mutant.seed == directed else f", seed {mutant.seed}"
        yield mutant.rule, f"`{mutant.name}`", f"{check}{seed}"


def mutants_page() -> str:
    """The mutants, by subject."""
    subjects = importlib.import_module("tests.mutants.table").SUBJECTS
    count = sum(len(room.MUTANTS) for _, room in subjects)
    parts = []
    for title, room in subjects:
        headings = ("rule that it breaks", "mutant", "caught by")
        parts += [f"## {title}", "", room.__doc__ or "", "", table(headings, mutant_rows(room))]
    return page(
        "Mutants",
        f"Each of these {count} mutants reverts one decision of the production code, and a check "
        "must notice: [why](../concepts/simulation.md#how-mutants-prove-the-checks). With a seed, "
        "the simulator's schedule of that seed violates the named [check](simulator.md#checks), "
        "and is clean without the mutant. Without a seed, the named test fails.",
        *parts,
    )


PAGES: dict[str, Callable[[], str]] = {
    "settings.md": settings_page,
    "command-line.md": cli_page,
    "metrics.md": metrics_page,
    "errors.md": errors_page,
    "api-keys.md": apis_page,
    "ledger.md": ledger_page,
    "mutants.md": mutants_page,
}


def write(folder: Path = REFERENCE) -> None:
    """Write every page."""
    for name, make in PAGES.items():
        (folder / name).write_text(make(), encoding="utf-8")
        print(f"wrote {name}", file=sys.stderr)


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))  # mutants lie in tests/
    write()
