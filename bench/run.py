"""Anabranch beside Apache Kafka: the same client, the same machine, in turn.

    make bench                                    every row, five rounds; ROWS="three one-at" some
    scripts/bench --row produce-1k-1mb --rounds 9
    scripts/bench --page                          write the last figures into the documentation
    scripts/bench --crowd                         the rows of groups, compaction and connections
    scripts/bench --placement                     replica lists, plans, missing replicas, moves
    scripts/bench --spark --rounds 3              the DataFrame source and sink; adds Spark
    scripts/bench --mirror --rounds 1             beside MirrorMaker 2; adds Spark
    scripts/bench --three --rounds 2              three brokers beside three: some 15 minutes
    scripts/bench --row three-wiped --part 5      a fifth of the work
    scripts/bench --quick --row fan-out           a tenth of the work: for writing rows, not figures
    scripts/bench --server anabranch --row cold-start     one server alone, no ratio

Each row runs one warm-up round and then `--rounds` rounds; in each round both servers do the same
work, and who begins alternates. Printed are median [lowest-highest] of both and of their ratio.
"""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import signal
import subprocess
import sys
from contextlib import ExitStack
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from crowd_rows import CROWD_ROWS
from memory import fill_free_memory
from mirror_rows import MIRROR_ROWS
from page import update_page
from placement_rows import PLACEMENT_ROWS
from profiles import print_profiles
from report import Rounds, print_row, write_json
from rich.console import Console
from row import Row
from rows import ROWS
from scale import QUICK, Scale
from servers import SERVERS, WORK, Anabranch, Kafka, Server
from spark_rows import SPARK_ROWS
from three_rows import THREE_ROWS

ROOT = Path(__file__).resolve().parents[1]
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
    parser.add_argument("--spark", action="store_true", help="only the rows of spark_rows.py")
    parser.add_argument("--mirror", action="store_true", help="only the rows of mirror_rows.py")
    parser.add_argument("--three", action="store_true", help="only the rows of three_rows.py")
    parser.add_argument(
        "--placement", action="store_true", help="only the rows of placement_rows.py"
    )
    parser.add_argument(
        "--part", type=int, default=1, metavar="N", help="an N-th of the work of each row"
    )
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
    options.row = options.row or []
    begins = tuple(os.environ.get("ROWS", "").split())
    if begins:
        begun = [name for name in names if name.startswith(begins)]
        if not begun:
            parser.error(f"no row begins with any of ROWS={' '.join(begins)}: {', '.join(names)}")
        options.row += begun
    for is_wanted, rows in (
        (options.crowd, CROWD_ROWS),
        (options.placement, PLACEMENT_ROWS),
        (options.three, THREE_ROWS),
        (options.spark, SPARK_ROWS),
        (options.mirror, MIRROR_ROWS),
    ):
        options.row += [row.name for row in rows] if is_wanted else []
    Scale.divisor = options.part
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


def chosen_rows(options: argparse.Namespace) -> list[Row]:
    """The rows to run: without Spark in .venv those of Spark only when they are asked for."""
    if options.row:
        return [row for row in ROWS if row.name in options.row]
    has_spark = find_spec("pyspark") is not None
    return [row for row in ROWS if has_spark or row not in [*SPARK_ROWS, *MIRROR_ROWS]]


def fetch_peers(chosen: list[Row], servers: list[str] | None) -> None:
    """The jars that the peers of these rows need, through Maven, once."""
    kinds = [
        kind
        for row in chosen
        for name, kind in row.servers.items()
        if not servers or name in servers
    ]
    if any(issubclass(getattr(kind, "node", kind), Kafka) for kind in kinds):
        fetch_jars()
    if any(row in SPARK_ROWS for row in chosen):
        fetch_jars("spark")
    if any(row in MIRROR_ROWS for row in chosen):
        fetch_jars("mirror")


def fetch_jars(*which: str) -> None:
    """Run scripts/kafka-jars. Raises SystemExit."""
    if subprocess.run([ROOT / "scripts" / "kafka-jars", *which], check=False).returncode:
        raise SystemExit("no jars of the peer; `--server anabranch` measures without them")


def order(names: list[str], number: int) -> list[str]:
    """Who goes first alternates from round to round."""
    return names if number % 2 == 0 else names[::-1]


def run_shared(row: Row, servers: dict[str, Server], rounds: int, console: Console) -> Rounds:
    """A row on long-running servers: prepare, one warm-up round, then the rounds."""
    taken: Rounds = {name: [] for name in servers}
    for server in servers.values():
        if row.prepare:
            row.prepare(server)
    for number in range(-1 if row.warm_up else 0, rounds):
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
    for number in range(-1 if row.warm_up else 0, rounds):
        for name in order(names, number):
            with ExitStack() as stack:
                server = row.servers[name](row.settings)
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


def run(options: argparse.Namespace, console: Console) -> list[str]:
    """Every chosen row; the names of those that failed, which do not stop the others."""
    chosen = chosen_rows(options)
    fetch_peers(chosen, options.server)
    results: dict[str, tuple[Row, Rounds]] = {}
    failed: list[str] = []
    with ExitStack() as stack:
        shared = Shared(stack)
        for row in chosen:
            names = [name for name in row.servers if name in (options.server or row.servers)]
            if not names:
                continue
            try:
                taken = run_row(row, names, shared, options.rounds, console)
            except Interrupted:
                raise
            except (SystemExit, Exception) as failure:
                console.print(f"{row.name} failed: {failure}", markup=False)
                shared.stop()
                failed.append(row.name)
                continue
            results[row.name] = row, taken
            print_row(console, row, taken)
            write_json(options.json, machine(), results)
    return failed


def run_row(
    row: Row, names: list[str], shared: Shared, most_rounds: int, console: Console
) -> Rounds:
    """One row, on servers that run already where it can."""
    rounds = min(most_rounds, row.rounds_at_most)
    if row.fresh:
        shared.stop()
        return run_fresh(row, names, rounds, console)
    return run_shared(row, shared.of(row, names), rounds, console)


class Shared:
    """The servers that run now: kept while the next row wants the same ones."""

    def __init__(self, stack: ExitStack) -> None:
        self._stack = stack
        self._running: dict[str, Server] = {}
        self._kind: tuple[object, ...] = ()

    def of(self, row: Row, names: list[str]) -> dict[str, Server]:
        """One running server of each of the row's kinds."""
        kind = (row.servers, row.settings)
        if kind != self._kind or not all(each.is_alive for each in self._running.values()):
            self.stop()
            for name in names:
                server = row.servers[name](row.settings)
                self._stack.callback(server.stop)
                server.start()
                server.settle()
                self._running[name] = server
            self._kind = kind
        return self._running

    def stop(self) -> None:
        """End them and remove their folders."""
        self._stack.close()
        self._running = {}
        self._kind = ()


class Interrupted(SystemExit):
    """Ctrl-C or SIGTERM."""


def interrupted(_signal: int, _frame: object) -> None:
    """Ctrl-C and SIGTERM unwind, so that both servers end and their folders go."""
    raise Interrupted("interrupted")


def main() -> None:
    """Run, print, write."""
    options = arguments()
    if options.page:
        written = update_page(PAGE, options.json, ROWS)
        print(f"{os.path.relpath(PAGE)}: {', '.join(written) or 'no table has all its rows'}")
        return
    if not sys.platform.startswith("linux"):
        raise SystemExit("the benchmark reads /proc: it needs Linux")
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    Anabranch.profile = options.profile
    console = Console(soft_wrap=True)
    try:
        failed = run(options, console)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    if options.profile:
        print_profiles(options.profile)
    console.print(f"figures: {os.path.relpath(options.json)}")
    if failed:
        raise SystemExit(f"failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
