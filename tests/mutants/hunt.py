"""Looks for schedules that catch mutants: `python -m tests.mutants.hunt [NAME…] [SEED…]`.

Two seeds are a range, more are a list, none are the first 2,000. One line a mutant: the first seed
whose checks object, and which did, or that none did. A seed counts when a check objected (an
exception is none) and the sound code passes it. With `--record` the recorded seeds are tried
first, and what is found is written into the module that has the mutant.

A planted mutant stays planted, so each is hunted in a process of its own, as many at a time as
`--jobs` says, and the sound code is asked in another one.
"""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from pathlib import Path
from typing import Any

from tests.mutants.mutant import Mutant, plant
from tests.mutants.table import MUTANTS, ROOMS

from anabranch.sim.plan import SEEDS_OF_PLANS

MOST_SCHEDULES = 2_000
CHANCES = 100
"""How often the plan of a recorded seed is tried with other chance before other plans are."""
LONGEST_SECONDS = 60
"""A mutant may make a schedule endless; such a seed is passed over."""
BUG = "exception"
NOT_CAUGHT = "not caught"
ROOT = Path(__file__).parents[2]
_TABLES = tuple(Path(str(room.__file__)) for room in ROOMS)
_CLEAN = "from anabranch.sim.schedule import run_schedule as r; raise SystemExit(not r({}).ok)"


class EndlessError(BaseException):
    """A schedule did not end. No Exception, so that a schedule does not take it for a finding."""


def violation(seed: int, run: Callable[[int], Any]) -> str:
    """The id of the check that objects to a schedule, "" when none does."""
    signal.signal(signal.SIGALRM, _give_up)
    signal.alarm(LONGEST_SECONDS)
    try:
        found = str(run(seed).violation)
    except EndlessError:
        return ""
    finally:
        signal.alarm(0)
    return "" if found.startswith(BUG) else found


def _give_up(_number: int, _frame: object) -> None:
    raise EndlessError


def hunt(mutant: Mutant, seeds: Iterator[int] | Sequence[int]) -> tuple[int, str] | None:
    """The first seed that catches the mutant, and by which check.

    The package's modules are loaded anew with the mutant in them.
    """
    plant(mutant)
    from anabranch.sim.schedule import run_schedule

    for seed in seeds:
        found = violation(seed, run_schedule)
        if found and is_clean(seed):
            return seed, found
    return None


def is_clean(seed: int) -> bool:
    """Whether the sound code passes a schedule; asked in another process."""
    return subprocess.run([sys.executable, "-c", _CLEAN.format(seed)], check=False).returncode == 0


def recorded_first(mutant: Mutant) -> list[int]:
    """The recorded seed, and the same plan under other chance: what it holds is rare elsewhere."""
    chances = range(CHANCES if mutant.caught_by else 0)
    return [mutant.seed + chance * SEEDS_OF_PLANS for chance in chances]


def hunt_apart(name: str, seeds: Sequence[str]) -> str:
    """Hunt one mutant in another process; the line that it says."""
    command = [sys.executable, "-m", "tests.mutants.hunt", "--here", name, *seeds]
    done = subprocess.run(command, check=False, stdout=subprocess.PIPE, text=True, cwd=ROOT)
    return done.stdout.strip() or f"{name} failed"


def recorded(table: str, name: str, seed: int, caught_by: str) -> str:
    """The table's source with what was found for a mutant."""
    pattern = re.compile(
        rf'(        name="{name}",\n(?:(?!    \),\n).*\n)*?)        seed=\d+,\n'
        r'        caught_by=".*",\n'
    )
    lines = f'        seed={seed},\n        caught_by="{caught_by}",\n'
    written, count = pattern.subn(lambda found: found[1] + lines, table)
    if count != 1:
        raise ValueError(f"{name} stands {count} times in the table")
    return written


def record(line: str) -> None:
    """Write what a hunt said into the table; nothing when it found nothing."""
    name, seed, *caught_by = line.split(" ")
    if seed.isdecimal():
        path = next(path for path in _TABLES if f'name="{name}"' in path.read_text())
        path.write_text(recorded(path.read_text(), name, int(seed), " ".join(caught_by)))


def main(words: list[str] | None = None) -> None:
    """Hunt mutants, all without names, each in a process of its own."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants.hunt", description=__doc__)
    parser.add_argument("words", nargs="*", metavar="NAME|SEED")
    parser.add_argument("--record", action="store_true")
    parser.add_argument("--jobs", type=int, default=2)
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(words)
    numbers = [int(each) for each in options.words if each.isdecimal()]
    names = [each for each in options.words if not each.isdecimal()]
    if len(numbers) == 2:
        numbers = list(range(*numbers))
    known = {each.name: each for each in MUTANTS}
    if options.here:
        mutant = known[names[0]]
        seeds = recorded_first(mutant)
        seeds += numbers or range(MOST_SCHEDULES)
        found = hunt(mutant, seeds)
        sys.stdout.write(f"{mutant.name} {f'{found[0]} {found[1]}' if found else NOT_CAUGHT}\n")
        return
    asked = [each for each in options.words if each.isdecimal()]
    with ThreadPoolExecutor(options.jobs) as pool:
        hunts = [pool.submit(hunt_apart, name, asked) for name in names or known]
        for done in as_completed(hunts):
            sys.stdout.write(f"{done.result()}\n")
            sys.stdout.flush()
            if options.record:
                record(done.result())


if __name__ == "__main__":
    main()
