"""Anabranch beside Apache Kafka: the same client, the same machine, in turn.

    make bench                                    every row, five rounds
    scripts/bench --row produce-1k-1mb --rounds 9
    scripts/bench --page                          write the last figures into the documentation
    scripts/bench --crowd                         the rows of groups, compaction and connections
    scripts/bench --quick --row fan-out           a tenth of the work: for writing rows, not figures
    scripts/bench --server anabranch --row cold-start     one server alone, no ratio

Each row runs one warm-up round and then `--rounds` rounds; in each round both servers do the same
work, and who begins alternates. Printed are median [lowest-highest] of both and of their ratio.
"""

from __future__ import annotations

import argparse
import os
import platform
import pstats
import shutil
import signal
import subprocess
import sys
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from crowd_rows import CROWD_ROWS
from memory import fill_free_memory
from page import update_page
from report import Rounds, print_row, write_json
from rich.console import Console
from row import Row
from rows import ROWS
from scale import QUICK, Scale
from servers import SERVERS, WORK, Anabranch, Server

ROOT = Path(__file__).resolve().parents[1]
PROFILE_LINES = 40
PAGE = ROOT / "docs" / "operate" / "performance.md"
RESULTS = ROOT / ".cache" / "bench-results.json"


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    names = [row.name for row in ROWS]
    parser.add_argument("--row", action="append", choices=names, help="only this row (repeatable)")
    parser.add_argument("--crowd", action="store_true", help="only the rows of crowd_rows.py")
    parser.add_argument("--quick", action="store_true", help="a tenth of the work, one round")
    parser.add_argument("--rounds", type=int, default=5, help="rounds after the warm-up")
    parser.add_argument(
        "--server", action="append", choices=list(SERVERS), help="only this server (repeatable)"
    )
    parser.add_argument(
        "--profile", type=Path, help="profile Anabranch into this file, and print what took longest"
    )
    parser.add_argument(
        "--page", action="store_true", help="measure nothing: put the figures into the docs"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="where the figures go")
    options = parser.parse_args()
    if options.crowd:
        options.row = [*(options.row or []), *(row.name for row in CROWD_ROWS)]
    if options.quick:
        options.rounds = 1
        Scale.divisor = QUICK
    return options


def machine() -> dict[str, Any]:
    """What the figures depend on."""
    return {
        "processors": os.cpu_count(),
        "memory_bytes": os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES"),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def fetch_peer() -> None:
    """Kafka's jars, through Maven, once."""
    if subprocess.run([ROOT / "scripts" / "kafka-jars"], check=False).returncode:
        raise SystemExit("no jars of Apache Kafka; `--server anabranch` measures without them")


def order(names: list[str], number: int) -> list[str]:
    """Who goes first alternates from round to round."""
    return names if number % 2 == 0 else names[::-1]


def run_shared(row: Row, servers: dict[str, Server], rounds: int, console: Console) -> Rounds:
    """A row on long-running servers: prepare, one warm-up round, then the rounds."""
    taken: Rounds = {name: [] for name in servers}
    for server in servers.values():
        if row.prepare:
            row.prepare(server)
    for number in range(-1, rounds):
        for name in order(list(servers), number):
            if row.written_bytes:
                fill_free_memory(WORK)
            sample = row.measure(servers[name])
            note(console, row, name, number, sample.figures)
            if number >= 0:
                taken[name].append(sample.figures)
    return taken


def run_fresh(row: Row, names: list[str], rounds: int, console: Console) -> Rounds:
    """A row that starts a server in a new folder each time; the first round only warms caches."""
    taken: Rounds = {name: [] for name in names}
    for number in range(-1, rounds):
        for name in order(names, number):
            with ExitStack() as stack:
                server = SERVERS[name](row.settings)
                stack.callback(server.stop)
                sample = row.measure(server)
            note(console, row, name, number, sample.figures)
            if number >= 0:
                taken[name].append(sample.figures)
    return taken


def note(console: Console, row: Row, name: str, number: int, figures: dict[str, float]) -> None:
    """One line a measurement, so that a long run is not silent."""
    when = "warm-up" if number < 0 else f"round {number + 1}"
    text = ", ".join(f"{value:.3g} {metric}" for metric, value in figures.items())
    console.print(f"  {row.name} {when} {name}: {text}", style="dim", highlight=False)


def run(options: argparse.Namespace, console: Console) -> dict[str, tuple[Row, Rounds]]:
    """Every chosen row."""
    names = options.server or list(SERVERS)
    chosen = [row for row in ROWS if not options.row or row.name in options.row]
    results: dict[str, tuple[Row, Rounds]] = {}
    with ExitStack() as stack:
        shared: dict[str, Server] = {}
        for row in chosen:
            rounds = min(options.rounds, row.rounds_at_most)
            if row.fresh:
                taken = run_fresh(row, names, rounds, console)
            elif row.settings:
                stack.close()  # two servers at a time
                shared.clear()
                with ExitStack() as own:
                    servers = start_shared(names, own, row.settings)
                    taken = run_shared(row, servers, rounds, console)
            else:
                if not shared:
                    shared.update(start_shared(names, stack))
                taken = run_shared(row, shared, rounds, console)
            results[row.name] = row, taken
            print_row(console, row, taken)
            write_json(options.json, machine(), results)
    return results


def start_shared(
    names: list[str], stack: ExitStack, settings: Mapping[str, str] | None = None
) -> dict[str, Server]:
    """One running server of each kind, stopped with the stack."""
    servers = {}
    for name in names:
        server = SERVERS[name](settings)
        stack.callback(server.stop)
        server.start()
        servers[name] = server
    return servers


def interrupted(_signal: int, _frame: object) -> None:
    """Ctrl-C and SIGTERM unwind, so that both servers end and their folders go."""
    raise SystemExit("interrupted")


def main() -> None:
    """Run, print, write."""
    options = arguments()
    if options.page:
        written = update_page(PAGE, options.json, ROWS)
        print(f"{os.path.relpath(PAGE)}: {', '.join(written) or 'no table has all its rows'}")
        return
    if not sys.platform.startswith("linux"):
        raise SystemExit("the benchmark reads /proc: it needs Linux")
    if "kafka" in (options.server or SERVERS):
        fetch_peer()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    Anabranch.profile = options.profile
    console = Console(soft_wrap=True)
    try:
        run(options, console)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    if options.profile:
        pstats.Stats(str(options.profile)).sort_stats("tottime").print_stats(PROFILE_LINES)
    console.print(f"figures: {os.path.relpath(options.json)}")


if __name__ == "__main__":
    main()
