"""A mutant changes one decision of the sources as they are, and nothing on disk."""

from __future__ import annotations

import runpy
import subprocess
import sys
from collections.abc import Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
from tests.mutants import hunt
from tests.mutants.forked import forked, run_schedule_with, run_test_with
from tests.mutants.hunt import ROOT, recorded
from tests.mutants.mutant import Mutant, MutantError, changed
from tests.mutants.table import DIRECTED, MUTANTS

from anabranch.sim.schedule import run_schedule


def sample(found: Sequence[Any], step: int) -> list[Any]:
    """As parameters; `make test` runs each of them whose number `step` divides."""
    return [
        pytest.param(each, marks=[pytest.mark.slow] if number % step else [])
        for number, each in enumerate(found)
    ]


RUN = sample(DIRECTED, 20)
"""Each takes a process."""
CLEAN = sample(sorted({mutant.seed for mutant in MUTANTS}), 5)
"""Without a mutant most are as any other schedule."""

NEXT = Mutant(
    name="next-offset",
    rule="the next offset follows the last",
    module="anabranch.core.metadata.image",
    old="return Offset(self.offset + 1)",
    new="return Offset(self.offset + 2)",
    seed=0,
    caught_by="M5",
)
SHOW = """
from tests.mutants.mutant import Mutant, plant
import anabranch.core.metadata.image as sound
plant(Mutant(**{fields!r}))
import anabranch.core.metadata.image as mutant
print(sound.EMPTY.next_offset, mutant.EMPTY.next_offset)
"""


def test_a_planted_mutant_runs_instead_of_the_source():
    fields = {name: getattr(NEXT, name) for name in Mutant.__dataclass_fields__}
    shown = subprocess.run(
        [sys.executable, "-c", SHOW.format(fields=fields)],
        capture_output=True,
        text=True,
        check=True,
        timeout=110,
        cwd=ROOT,
    )
    assert shown.stdout.split() == ["0", "1"]


@pytest.mark.parametrize("source", ["", NEXT.old * 2])
def test_a_mutant_that_does_not_fit_its_module_is_an_error(source):
    with pytest.raises(MutantError, match="not once"):
        changed(source, NEXT)


@pytest.mark.parametrize("mutant", [*MUTANTS, *DIRECTED], ids=lambda mutant: mutant.name)
def test_each_mutant_fits_the_present_source(mutant):
    source = Path(find_spec(mutant.module).origin).read_text()
    compile(changed(source, mutant), mutant.module, "exec")


def test_what_a_hunt_found_is_recorded_for_its_mutant_alone():
    table = "".join(
        f'    Mutant(\n        name="{name}",\n        seed=0,\n        caught_by="",\n    ),\n'
        for name in ("first", "second", "third")
    )
    written = recorded(table, "second", 7, "L4")
    assert written.count("seed=0") == 2
    assert 'name="second",\n        seed=7,\n        caught_by="L4",' in written
    with pytest.raises(ValueError, match="0 times"):
        recorded(table, "fourth", 7, "L4")


def test_what_a_hunt_found_is_written_where_the_mutant_stands(tmp_path, monkeypatch):
    text = '    Mutant(\n        name="{}",\n        seed=0,\n        caught_by="",\n    ),\n'
    rooms = [tmp_path / "log.py", tmp_path / "groups.py"]
    for room in rooms:
        room.write_text(text.format(room.stem))
    monkeypatch.setattr(hunt, "_TABLES", tuple(rooms))
    hunt.record("groups 7 L4")
    hunt.record("log not caught")
    assert rooms[0].read_text() == text.format("log")
    assert 'seed=7,\n        caught_by="L4",' in rooms[1].read_text()


@pytest.mark.parametrize(
    "room",
    [
        "controller.tenure", "controller.moves", "broker.registration", "metadata.following",
        "broker.hosting", "log.compaction",
    ],
)  # fmt: skip
def test_a_schedule_catches_a_broken_rule_of_each_machine(room):
    """What a broker shares with the simulator is not only tested, but simulated under faults."""
    assert any(mutant.module.startswith(f"anabranch.core.{room}") for mutant in MUTANTS)


@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda mutant: mutant.name)
def test_the_recorded_schedule_catches_the_mutant(mutant, tmp_path):
    shown = forked(run_schedule_with, mutant.name, tmp_path / "output")
    assert shown == (0, mutant.caught_by)


CAUGHT = ("AssertionError", "Failed: ", "anabranch.core.log.scan.", "anabranch.core.errors.",
          "anabranch.core.diskless.coordinator.", "anabranch.core.diskless.objects.",
          "anabranch.sim.checks.violation.")  # fmt: skip
"""What a test ends with that catches something: a claim, a fault that the code under it names, or
what a check of the simulator says."""


def test_pytest_finds_each_directed_test_by_its_name():
    """A name whose parameters changed would fail where its mutant is run, which is seldom."""
    asked = {mutant.caught_by for mutant in DIRECTED}
    files = sorted({name.partition("::")[0] for name in asked})
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-n", "0", "-m", ""]
    shown = subprocess.run(
        [*command, *files], capture_output=True, text=True, check=True, timeout=110, cwd=ROOT
    )
    found = set(shown.stdout.splitlines())
    found |= {name.partition("[")[0] for name in found} | set(files)
    assert not asked - found


@pytest.mark.parametrize("mutant", RUN, ids=lambda mutant: mutant.name)
def test_a_directed_test_catches_what_no_schedule_does(mutant, tmp_path):
    code, shown = forked(run_test_with, mutant.name, tmp_path / "output")
    assert code == pytest.ExitCode.TESTS_FAILED, shown
    assert any(each in shown for each in CAUGHT), shown


@pytest.mark.parametrize("seed", CLEAN)
def test_the_same_schedule_is_clean_without_the_mutant(seed):
    outcome = run_schedule(seed)
    assert outcome.ok, outcome.sentence


def test_the_documentation_names_every_mutant_with_its_check():
    page = runpy.run_path(str(ROOT / "scripts/reference.py"))["mutants_page"]()
    for mutant in (*MUTANTS, *DIRECTED):
        check = mutant.caught_by.rpartition("::")[2]
        assert f"| {mutant.rule} | `{mutant.name}` | `{check}`" in page
