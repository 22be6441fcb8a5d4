"""R5: the demo as people run it, with fewer flights: every promise holds, nothing stays behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import psutil
import pytest

COMMAND = [sys.executable, "-m", "anabranch", "demo", "--no-spark", "--records", "20000"]


def run(folder: Path, *more: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [*COMMAND, *more],
        env={**os.environ, "TMPDIR": str(folder), "COLUMNS": "200"},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )


def test_no_acknowledged_record_is_missing_after_a_kill(tmp_path):
    """The story is for people, on standard error here; what was checked is JSON for programs."""
    done = run(tmp_path, "--json")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "all checks passed" in done.stderr
    assert "SIGKILL for broker" in done.stderr
    assert " NO " not in done.stderr
    told = json.loads(done.stdout)
    assert (told["passed"], told["records"]) == (True, 20_000)
    assert all(each["holds"] for each in told["checks"])
    assert "all 20,000 records were read, each exactly once" in [c["check"] for c in told["checks"]]
    assert list(tmp_path.iterdir()) == [], "the folder of the demo is still there"


def hear_interrupts():
    """As in a terminal: what a shell runs in the background inherits that SIGINT is ignored."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.slow
@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_demo_leaves_no_process_and_no_folder(tmp_path, number):
    demo = subprocess.Popen(
        [*COMMAND, "--keep-serving"],
        env={**os.environ, "TMPDIR": str(tmp_path), "PYTHONUNBUFFERED": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        preexec_fn=hear_interrupts,
    )
    try:
        assert demo.stdout is not None
        lines = []
        for line in demo.stdout:
            lines.append(line)
            if "Ctrl-C" in line:
                break
        shown = subprocess.run(lines[-2], shell=True, capture_output=True, text=True, timeout=60)
        assert len(shown.stdout.splitlines()) == 3, lines[-2] + shown.stderr
        children = psutil.Process(demo.pid).children(recursive=True)
        assert children, "".join(lines)
        demo.send_signal(number)
        demo.wait(60)
    finally:
        demo.kill()
        demo.wait()
    deadline = time.monotonic() + 60
    while any(child.is_running() for child in children) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert not [child for child in children if child.is_running()]
    assert list(tmp_path.iterdir()) == []
