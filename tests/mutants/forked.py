"""Runs a mutant in a process of its own: a planted mutant stays planted.

Each is forked from one process that has imported what all of them need. Modules of the package are
loaded again with the mutant in them, so what is saved is the interpreter, pytest and packages that
others made: half of what a short test takes.
"""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Callable
from pathlib import Path

from tests.mutants.mutant import plant
from tests.mutants.table import DIRECTED, MUTANTS

LONGEST_SECONDS = 110
_BY_NAME = {mutant.name: mutant for mutant in (*MUTANTS, *DIRECTED)}
_FORKS = multiprocessing.get_context("forkserver")
_FORKS.set_forkserver_preload(["anabranch.sim.schedule", "hypothesis", "pytest", __name__])


def run_schedule_with(name: str) -> None:
    """Print which check objects to the mutant's recorded schedule."""
    plant(_BY_NAME[name])
    from anabranch.sim.schedule import run_schedule

    print(run_schedule(_BY_NAME[name].seed).violation, end="")


def run_test_with(name: str) -> int:
    """Run the mutant's directed test; pytest's exit code.

    pytest would import what it rewrites past the mutant, and an installed package's modules are of
    that. A test of random cases has a seed: it would catch its mutant on one machine, and not on
    the next.
    """
    plant(_BY_NAME[name])
    import pytest

    options = ("no:xdist", "no:cacheprovider")
    plugins = [word for option in options for word in ("-p", option)]
    node = _BY_NAME[name].caught_by
    return pytest.main(["-q", "--assert=plain", "--hypothesis-seed=0", *plugins, node])


def forked(run: Callable[[str], int | None], name: str, output: Path) -> tuple[int | None, str]:
    """Run something with a mutant: the exit code and what it printed. None: it did not end."""
    output.touch()
    process = _FORKS.Process(target=_run_into, args=(output, run, name))
    process.start()
    process.join(LONGEST_SECONDS)
    code = process.exitcode
    process.kill()
    return code, output.read_text()


def _run_into(output: Path, run: Callable[[str], int | None], name: str) -> None:
    handle = os.open(output, os.O_WRONLY)
    os.dup2(handle, 1)
    os.close(handle)
    raise SystemExit(run(name) or 0)
