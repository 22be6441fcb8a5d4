"""`make compat`: start both, run each row against both, print one table.

ROWS names rows, or how names begin: `make compat ROWS="topics configs-broker"`; so do arguments of
`scripts/compat`. A run of everything writes the page in the documentation; every run writes JSON.
"""

from __future__ import annotations

import argparse
import importlib
import os
import platform
import re
import shutil
import signal
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from bench.servers import ROOT, SERVERS, START_SECONDS
from rich.console import Console
from rich.table import Table

from compat import report
from compat.clients import versions
from compat.families import FAMILIES
from compat.families.topics import TOPICS
from compat.java import ToolDriver, fetch_jars
from compat.peer import Peer
from compat.row import ROWS, Failed, Row, Seen, chosen

WORK = ROOT / ".cache" / "compat" / str(os.getpid())
RESULTS = ROOT / ".cache" / "compat-results.json"
PAGE = ROOT / "docs" / "reference" / "compatibility.md"
SETTINGS = {
    "offsets.topic.replication.factor": 1,
    "transaction.state.log.replication.factor": 1,
    "transaction.state.log.min.isr": 1,
    "share.coordinator.state.topic.replication.factor": 1,
    "share.coordinator.state.topic.min.isr": 1,
    "group.initial.rebalance.delay.ms": 0,
    "metadata.log.max.record.bytes.between.snapshots": 3_000,
}
"""What both servers get beside addresses: nobody waits three seconds for each first member."""


TABLE_WIDTH = 150
"""Narrower than this the table cannot be read."""


def arguments() -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(prog="scripts/compat", description=__doc__)
    parser.add_argument("rows", nargs="*", help="names of rows, or how they begin; all of them")
    parser.add_argument("--list", action="store_true", help="name every row and end")
    parser.add_argument(
        "--peer", action="append", choices=["kafka", "anabranch"], help="only this one: no verdicts"
    )
    parser.add_argument("--json", type=Path, default=RESULTS, help="where everything seen goes")
    return parser.parse_args()


def look(row: Row, peer: Peer) -> Seen:
    """Run a row against a peer; whatever goes wrong in it is the row's failure."""
    peer.said = []
    seen = Seen()
    begin = time.perf_counter()
    try:
        seen.value = row.observe(peer)
    except Failed as failure:
        seen.failure = str(failure)
    except Exception as failure:
        seen.failure = f"{type(failure).__name__}: {failure}"
    seen.seconds = round(time.perf_counter() - begin, 2)
    seen.said = peer.said
    if not peer.server.is_alive:
        seen.failure = f"the server ended: {peer.server.last_words()}"
    return seen


def start(names: Sequence[str], stack: ExitStack) -> dict[str, Peer]:
    """Both servers, and one JVM for the tools; all end with the stack."""
    shutil.rmtree(WORK, ignore_errors=True)
    WORK.mkdir(parents=True)
    driver = ToolDriver(WORK)
    stack.callback(driver.close)
    peers = {}
    for name in names:
        server = SERVERS[name](SETTINGS, WORK)
        stack.callback(server.stop)
        server.start()
        peers[name] = Peer(server, driver, WORK / f"scratch-{name}")
        driver.run(TOPICS, [*peers[name].at, "--list"], "", START_SECONDS)
    return peers


def prepared(row: Row, done: dict[Callable[[], None], str | None]) -> str | None:
    """Fetch what the row needs, once; why not, where that fails."""
    if row.prepare is None:
        return None
    if row.prepare not in done:
        try:
            row.prepare()
            done[row.prepare] = None
        except (Exception, SystemExit) as failure:
            done[row.prepare] = f"not run: {failure}"
    return done[row.prepare]


def run(rows: Sequence[Row], names: Sequence[str], console: Console) -> list[report.Line]:
    """Every row against every peer."""
    found = []
    fetched: dict[Callable[[], None], str | None] = {}
    with ExitStack() as stack:
        peers = start(names, stack)
        for row in rows:
            missing = prepared(row, fetched)
            seen = {
                name: Seen(failure=missing) if missing else look(row, peer)
                for name, peer in peers.items()
            }
            nobody = Seen(failure="not asked")
            line = report.Line(row, seen.get("kafka", nobody), seen.get("anabranch", nobody))
            found.append(line)
            tell(console, line, names)
    return found


def tell(console: Console, line: report.Line, names: Sequence[str]) -> None:
    """A line a row, so that a long run is not silent; all that was seen where one peer runs."""
    if len(names) == 1:
        seen = getattr(line, names[0])
        console.print(f"{line.row.name}: {seen.failure or 'passes'} ({seen.seconds} s)")
        console.print_json(data=[seen.value, seen.said])
        return
    name, _, verdict, seconds, note = report.cells(line)
    console.print(
        f"  {name}: {verdict} ({seconds} s) {note}", style="dim", highlight=False, markup=False
    )


def print_table(console: Console, lines: Sequence[report.Line]) -> None:
    """The one table."""
    table = Table(title=f"Compatibility: {report.summary(lines)}", title_justify="left")
    for heading in report.HEADINGS:
        table.add_column(heading, justify="right" if heading == "seconds" else "left")
    for line in lines:
        style = "red" if line.verdict in report.BAD else "yellow" if line.verdict == "owed" else ""
        table.add_row(*cells_as_text(line), style=style)
    console.print(table)


def cells_as_text(line: report.Line) -> list[str]:
    """Cells whose square brackets are no markup."""
    return [each.replace("[", "\\[") for each in report.cells(line)]


def about() -> dict[str, Any]:
    """What the table depends on."""
    version = re.search(r"<version>(4[\d.]+)</version>", (ROOT / "bench" / "pom.xml").read_text())
    return {
        "kafka": version.group(1) if version else "unknown",
        "clients": versions(),
        "settings": SETTINGS,
        "processors": os.cpu_count(),
        "system": platform.platform(),
        "python": platform.python_version(),
    }


def interrupted(_signal: int, _frame: object) -> None:
    """Ctrl-C and SIGTERM unwind, so that both servers end and their folders go."""
    raise SystemExit("interrupted")


def main() -> int:
    """Run, print, write; 1 where Anabranch fails what Kafka passes."""
    options = arguments()
    for family in FAMILIES:
        importlib.import_module(f"compat.families.{family}")
    rows = chosen(options.rows or os.environ.get("ROWS", "").split())
    console = Console(soft_wrap=True)
    if options.list:
        for row in rows:
            console.print(f"{row.name}: {row.what}", highlight=False, markup=False)
        return 0
    fetch_jars()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, interrupted)
    try:
        lines = run(rows, options.peer or ["kafka", "anabranch"], console)
    finally:
        shutil.rmtree(WORK, ignore_errors=True)
    if options.peer:
        return 0
    print_table(Console(width=max(console.width, TABLE_WIDTH)), lines)
    report.write(options.json, report.json.dumps(report.document(lines, about()), indent=2) + "\n")
    if len(rows) == len(ROWS):
        report.write(PAGE, report.page(lines, about()))
    return report.exit_code(lines)


if __name__ == "__main__":
    sys.exit(main())
