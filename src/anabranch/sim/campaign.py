"""A campaign: as many schedules as fit into a time, on all cores, and what they found.

What: each process takes the next seeds, runs their schedules, and hands back what became of them.
The count of clean schedules and the seeds they had are kept in a file, so that the next campaign
goes on with the next seed; a count belongs to the code that it was made with and starts again when
core or simulator change. A failure is shrunk and printed as a trace, one line an event.

Rule kept: this file alone knows the machine's clock and its processes; a schedule knows neither.
A mark that no schedule hits is a failure too, once enough have been run: then the clients or the
faults are too weak for the check that waits there.
"""

from __future__ import annotations

import gc
import json
import os
import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import dataclass, field
from hashlib import blake2b
from pathlib import Path
from typing import Any

import anabranch
from anabranch.core.sentences import number_of
from anabranch.sim.checks.marks import MARKS
from anabranch.sim.life import draw_plan
from anabranch.sim.migration.run import MigrationOutcome, run_migration
from anabranch.sim.mirror.run import MirrorOutcome, run_mirror
from anabranch.sim.schedule import Outcome, run_plan
from anabranch.sim.shrink import shrink

BLOCK = 4
"""Seeds that a process takes at once, and finishes also when the time is up."""
ENOUGH_FOR_ALL_MARKS = 2_000
"""Schedules after which a mark that was never hit is a failure."""
MIRROR_EVERY = 4
"""Seeds of which one is of mirrors too: that takes a fifth of the time of another schedule."""
MIGRATION_EVERY = 10
"""Seeds of which one is of a migration too: that takes as long as another schedule."""
SAY_SECONDS = 10.0
MOST_FAILURES = 5
"""A campaign stops early after so many: they are mostly one."""
STATE = Path(".cache") / "sim" / "campaign.json"

Echo = Callable[[str], None]


@dataclass(slots=True)
class Tally:
    """What some schedules came to, added up."""

    schedules: int = 0
    clean: int = 0
    uncounted: int = 0
    """Clean, but not long or hard enough to count."""
    operations: int = 0
    faults: int = 0
    virtual_us: int = 0
    processor_s: float = 0.0
    """What they took of a core."""
    marks: Counter[str] = field(default_factory=Counter)
    losses: Counter[str] = field(default_factory=Counter)
    failures: list[Outcome] = field(default_factory=list)
    mirrors: int = 0
    """Schedules of mirrors, which have seeds of their own."""
    mirror_failures: list[MirrorOutcome] = field(default_factory=list)
    migrations: int = 0
    """Schedules of topics that become diskless, which have seeds of their own too."""
    migration_failures: list[MigrationOutcome] = field(default_factory=list)

    @property
    def failed(self) -> int:
        """Schedules of all kinds that failed."""
        return len(self.failures) + len(self.mirror_failures) + len(self.migration_failures)

    def take(self, outcome: Outcome) -> None:
        """Add one schedule."""
        self.schedules += 1
        self.operations += outcome.operations
        self.faults += outcome.faults
        self.virtual_us += outcome.virtual_us
        self.marks.update(outcome.marks)
        self.losses.update(outcome.losses)
        if not outcome.ok:
            self.failures.append(outcome)
        elif outcome.counts:
            self.clean += 1
        else:
            self.uncounted += 1

    def take_mirror(self, outcome: MirrorOutcome) -> None:
        """Add one schedule of mirrors."""
        self.mirrors += 1
        if not outcome.ok:
            self.mirror_failures.append(outcome)

    def take_migration(self, outcome: MigrationOutcome) -> None:
        """Add one schedule of a migration."""
        self.migrations += 1
        if not outcome.ok:
            self.migration_failures.append(outcome)

    def add(self, other: Tally) -> None:
        """Add what another process did."""
        self.schedules += other.schedules
        self.clean += other.clean
        self.uncounted += other.uncounted
        self.operations += other.operations
        self.faults += other.faults
        self.virtual_us += other.virtual_us
        self.processor_s += other.processor_s
        self.marks.update(other.marks)
        self.losses.update(other.losses)
        self.failures += other.failures
        self.mirrors += other.mirrors
        self.mirror_failures += other.mirror_failures
        self.migrations += other.migrations
        self.migration_failures += other.migration_failures


@dataclass(slots=True)
class Report:
    """What a campaign says at its end."""

    ok: bool
    seconds: float
    first_seed: int
    next_seed: int
    tally: Tally
    marks_missed: list[str]
    clean_in_all: int
    """Clean schedules of all campaigns with this code, from `since_seed` on."""
    since_seed: int


def run_block(first: int, count: int) -> Tally:
    """So many schedules one after another: what one process does."""
    tally, begun_s = Tally(), time.process_time()
    gc.collect()
    gc.freeze()  # what is there now stays: only the knot that each world leaves is looked for
    gc.disable()
    try:
        for seed in range(first, first + count):
            tally.take(run_plan(draw_plan(seed)))
            if seed % MIRROR_EVERY == 0:
                tally.take_mirror(run_mirror(seed))
            if seed % MIGRATION_EVERY == 0:
                tally.take_migration(run_migration(seed))
            gc.collect()
        gc.collect()
    finally:
        gc.unfreeze()
        gc.enable()
    tally.processor_s = time.process_time() - begun_s
    return tally


class Campaign:
    """See the module. `first` None goes on where the last campaign ended."""

    def __init__(
        self,
        *,
        first: int | None = None,
        processes: int | None = None,
        state: Path = STATE,
        block: int = BLOCK,
    ) -> None:
        self.state = state
        self.block = block
        self.processes = processes or os.cpu_count() or 1
        self.code = fingerprint()
        self._kept = _load(state)
        same = self._kept.get("code") == self.code
        following = int(self._kept.get("next_seed", 0))
        self.first = following if first is None else first
        self.goes_on = same and self.first == following
        self.clean_before = int(self._kept.get("clean", 0)) if self.goes_on else 0
        self.since = int(self._kept.get("since_seed", 0)) if self.goes_on else self.first

    def run(self, seconds: float, *, echo: Echo) -> Report:
        """Run schedules for that long, say how it goes, and keep the count."""
        begun = time.monotonic()
        tally = Tally()
        echo(
            f"{number_of(self.processes, 'process', 'processes')} from seed {self.first}, "
            f"{seconds:g} s"
        )
        following = self._work(tally, begun + seconds, echo)
        spent = time.monotonic() - begun
        report = self._report(tally, spent, following)
        self._keep(report)
        for line in sentences(report):
            echo(line)
        for failure in tally.failures[:MOST_FAILURES]:
            for line in explained(failure):
                echo(line)
        return report

    def _work(self, tally: Tally, deadline: float, echo: Echo) -> int:
        """Hand out blocks of seeds until time is up; the seed after the last one."""
        following, said = self.first, time.monotonic()
        running: set[Future[Tally]] = set()
        with ProcessPoolExecutor(self.processes) as pool:
            while True:
                late = time.monotonic() >= deadline or len(tally.failures) >= MOST_FAILURES
                while not late and len(running) < self.processes + 1:
                    running.add(pool.submit(run_block, following, self.block))
                    following += self.block
                if not running:
                    return following
                done, running = wait(running, timeout=1.0, return_when=FIRST_COMPLETED)
                for future in done:
                    block = future.result()
                    tally.add(block)
                    for failure in block.failures:  # explained at the end, which takes a while
                        echo(f"seed {failure.seed}: {failure.violation}: {failure.sentence}")
                    for mirror in block.mirror_failures:
                        echo(f"mirror seed {mirror.seed}: {mirror.sentence}")
                        echo(f"replay: anabranch sim --mirror --seed {mirror.seed}")
                    for each in block.migration_failures:
                        echo(f"migration seed {each.seed}: {each.sentence}")
                        echo(f"replay: anabranch sim --migration --seed {each.seed}")
                if time.monotonic() - said >= SAY_SECONDS:
                    said = time.monotonic()
                    echo(f"{number_of(tally.schedules, 'schedule')}, {tally.failed} failed")

    def _report(self, tally: Tally, seconds: float, following: int) -> Report:
        missed = sorted(set(MARKS) - set(tally.marks))
        tally.failures.sort(key=lambda outcome: outcome.seed)
        enough = tally.schedules >= ENOUGH_FOR_ALL_MARKS
        return Report(
            ok=not (
                tally.failures
                or tally.mirror_failures
                or tally.migration_failures
                or (enough and missed)
            ),
            seconds=seconds,
            first_seed=self.first,
            next_seed=following,
            tally=tally,
            marks_missed=missed,
            clean_in_all=self.clean_before + tally.clean,
            since_seed=self.since,
        )

    def _keep(self, report: Report) -> None:
        kept: dict[str, Any] = {
            "code": self.code,
            "since_seed": report.since_seed,
            "next_seed": report.next_seed,
            "clean": report.clean_in_all,
            "failed": [outcome.seed for outcome in report.tally.failures],
        }
        self.state.parent.mkdir(parents=True, exist_ok=True)
        self.state.write_text(json.dumps(kept, indent=2) + "\n")


def sentences(report: Report) -> list[str]:
    """A campaign's result as lines for people."""
    tally = report.tally
    rate = 60 * tally.schedules / max(report.seconds, 1e-9)
    busy_rate = 60 * tally.schedules / max(tally.processor_s, 1e-9)
    hit = ", ".join(f"{name} {count}" for name, count in sorted(tally.marks.items()))
    losses = ", ".join(f"{name} {count}" for name, count in sorted(tally.losses.items()))
    return [
        f"seeds {report.first_seed} to {report.next_seed - 1}: {tally.clean} clean, "
        f"{len(tally.failures)} failed, {tally.uncounted} with too few operations or faults",
        f"{rate:.0f} schedules a minute, {busy_rate:.0f} a minute of processor time",
        f"{tally.virtual_us / 3.6e9:.1f} simulated hours, "
        f"{number_of(tally.operations, 'operation')}, {number_of(tally.faults, 'fault')}",
        f"schedules of mirrors: {tally.mirrors}, {len(tally.mirror_failures)} failed",
        f"schedules of migrations: {tally.migrations}, {len(tally.migration_failures)} failed",
        f"marks hit: {hit or 'none'}",
        f"marks not hit: {', '.join(report.marks_missed) or 'none'}",
        f"records lost by a rule that allows it: {losses or 'none'}",
        f"clean with this code since seed {report.since_seed}: {report.clean_in_all}",
    ]


def explained(failure: Outcome) -> list[str]:
    """A failure as people can read it: shrunk, one line an event, and how to see it again."""
    found = shrink(
        draw_plan(failure.seed), failure.violation, lambda plan: run_plan(plan).violation
    )
    shown = run_plan(found.plan, keeps_trace=True)
    return [
        "",
        f"seed {failure.seed}: {failure.violation}: {failure.sentence}",
        f"shrunk in {number_of(found.runs, 'run')} to "
        f"{number_of(len(found.plan.faults), 'fault')} and "
        f"{number_of(len(found.plan.operations), 'operation')}:",
        *shown.lines,
        f"replay: anabranch sim --seed {failure.seed} [--shrink]",
    ]


def fingerprint() -> str:
    """What tells one state of core and simulator from another."""
    package = Path(anabranch.__file__).parent
    digest = blake2b(digest_size=12)
    for room in ("core", "sim"):
        for path in sorted((package / room).rglob("*.py")):
            digest.update(str(path.relative_to(package)).encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def _load(path: Path) -> dict[str, Any]:
    try:
        kept = json.loads(path.read_text())
    except (OSError, ValueError):
        return {}
    return kept if isinstance(kept, dict) else {}
