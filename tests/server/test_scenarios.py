"""R17: rehearsals come out on real processes as they were rehearsed.

Each of `tests/golden` and of the shipped ones runs once in the simulator and once on processes
that are killed, stopped and cut off; after each event the same must lead and the same be served,
and the same records must be lost. `anabranch rehearse FILE --real` is the same for a user. `make test` takes
a few of them, `make rehearsals` all.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import pytest
from tests.clients.members import until

from anabranch.sim.rehearsal.library import names, text_of
from anabranch.sim.rehearsal.outcome import differences, rehearsed, table
from anabranch.sim.rehearsal.rehearsal_file import read
from anabranch.testing import ClusterError
from anabranch.testing.rehearsal.actions import performable
from anabranch.testing.rehearsal.stage import performed

FOLDER = Path(__file__).resolve().parents[1] / "golden"
SCENARIOS = sorted(FOLDER.glob("scenario-*.yaml"))
SOME = ("scenario-3-acks-1", "rack-goes-for-good", "object-store-down")


def every_rehearsal():
    """Name -> what the file says; those of tests/golden before shipped ones of the same name."""
    found = {name: text_of(name) for name in names()}
    return found | {path.stem: path.read_text() for path in sorted(FOLDER.glob("*.yaml"))}


REHEARSALS = every_rehearsal()
RUN = sorted(REHEARSALS) if os.environ.get("REHEARSALS") == "all" else SOME
LONGEST_SECONDS = 600
"""An event of a rehearsal takes as long as something moves, on a machine that others use."""

ONE = """
cluster: {brokers: 3}
topics: {orders: {replicas: [[1, 2, 3]]}}
events:
  - {at: 1s, send: {to: orders-0, records: 2, acks: all}}
"""


def test_all_four_scenarios_are_there():
    assert {path.name[: len("scenario-N")] for path in SCENARIOS} == {
        f"scenario-{each}" for each in (1, 2, 3, 4)
    }


@pytest.mark.slow
@pytest.mark.timeout(LONGEST_SECONDS)
@pytest.mark.parametrize("name", RUN)
def test_processes_do_what_was_rehearsed(name):
    plan = performable(read(REHEARSALS[name], f"{name}.yaml"))
    simulated = rehearsed(plan)
    seen = performed(plan, simulated)
    print(*table(simulated, seen), sep="\n")
    assert [each.sentence for each in differences(simulated, seen)] == []


def test_what_comes_out_otherwise_is_shown_and_not_what_was_rehearsed():
    plan, simulated = read(ONE, "one.yaml"), rehearsed(read(ONE, "one.yaml"))
    first, last = simulated.rows
    state = replace(last.state, leader=2, serves="reads")
    other = replace(simulated, rows=[first, replace(last, state=state)], lost=(7,))
    seen = performed(plan, other, patience_seconds=6)
    assert differences(simulated, seen) == []
    assert {each.what for each in differences(other, seen)} == {
        "leader", "served", "offsets of acknowledged records lost",
    }  # fmt: skip


def test_a_run_that_is_ended_leaves_no_process_and_no_folder(tmp_path):
    file, temporary = tmp_path / "one.yaml", tmp_path / "temporary"
    file.write_text(ONE.replace("at: 1s", "at: 100s"))
    temporary.mkdir()
    command = [sys.executable, "-m", "anabranch", "rehearse", str(file), "--real"]
    run = subprocess.Popen(command, env={**os.environ, "TMPDIR": str(temporary)})
    children = Path(f"/proc/{run.pid}/task/{run.pid}/children")
    while len(nodes := children.read_text().split()) < 3:
        assert run.poll() is None
        time.sleep(0.02)
    assert list(temporary.iterdir())
    run.terminate()
    assert run.wait(60) == 128 + signal.SIGTERM
    assert list(temporary.iterdir()) == []
    until(lambda: not any(_runs(each) for each in nodes), "the end of every process", 10)


def _runs(process):
    """Whether a process has not ended: its parent is gone, and another one reaps it when it can."""
    try:
        return Path("/proc", process, "stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (ONE.replace("brokers: 3", "racks: {a: [4, 2, 3]}").replace("[1,", "[4,"), "1, 2, 3"),
        (ONE.replace("brokers: 3", "brokers: 10"), "At most 9 brokers"),
    ],
)
def test_what_processes_cannot_do_is_refused_before_they_start(text, said):
    plan = read(text, "one.yaml")
    with pytest.raises(ClusterError, match=said):
        performed(plan, rehearsed(plan))
