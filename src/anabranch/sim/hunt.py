"""Looks for a schedule that catches a mutant: `python -m anabranch.sim.hunt NAME… [FIRST LAST]`.

One line a mutant: the seed of the first schedule whose checks object, and which did, or that none
did. Runs in a process of its own, since a planted mutant stays planted.
"""

from __future__ import annotations

import subprocess
import sys
from dataclasses import asdict
from typing import Any

from anabranch.sim.mutant_table import MUTANTS
from anabranch.sim.mutants import Mutant, plant

MOST_SCHEDULES = 2_000


def hunt(mutant: Mutant, first: int, last: int) -> tuple[int, str] | None:
    """The first seed in [first, last) that catches the mutant, and by which check.

    The package's modules are loaded anew with the mutant in them.
    """
    plant(mutant)
    from anabranch.sim.schedule import run_schedule

    for seed in range(first, last):
        outcome: Any = run_schedule(seed)
        if not outcome.ok and is_clean(seed):
            return seed, str(outcome.violation)
    return None


def is_clean(seed: int) -> bool:
    """Whether the sound code passes a schedule; asked in another process."""
    words = "from anabranch.sim.schedule import run_schedule as r; raise SystemExit(not r({}).ok)"
    return subprocess.run([sys.executable, "-c", words.format(seed)], check=False).returncode == 0


def main(words: list[str]) -> None:
    """Hunt one mutant here, or several (all without names) each in a process of its own."""
    numbers = [int(each) for each in words if each.isdecimal()]
    names = [each for each in words if not each.isdecimal()]
    first, last = numbers if len(numbers) == 2 else (0, MOST_SCHEDULES)
    if len(names) == 1:
        mutant = next(each for each in MUTANTS if each.name == names[0])
        found = hunt(Mutant(**asdict(mutant)), first, last)
        sys.stdout.write(f"{mutant.name} {f'{found[0]} {found[1]}' if found else 'not caught'}\n")
        return
    for name in names or [each.name for each in MUTANTS]:
        command = [sys.executable, "-m", "anabranch.sim.hunt", name, str(first), str(last)]
        subprocess.run(command, check=False)


if __name__ == "__main__":
    main(sys.argv[1:])
