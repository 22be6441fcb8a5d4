"""The one manager of server processes, with a program that says what it is told."""

from __future__ import annotations

import signal
import sys

import pytest

from anabranch.testing.server_process import ServerProcess

STUBBORN = "import signal, time; signal.signal(signal.SIGTERM, lambda *_: print('no', flush=True))"
SLEEP = "import time; print('up', flush=True); time.sleep(600)"


@pytest.fixture
def server(tmp_path):
    server = ServerProcess(tmp_path / "output.log")
    yield server
    server.kill()


def run(server, *lines):
    before = len(server.last_lines(1_000))
    server.run([sys.executable, "-c", "\n".join(lines)])
    while len(server.last_lines(1_000)) == before:
        assert server.is_alive


def state(pid):
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def test_a_process_that_was_never_started_is_none(server):
    assert (server.pid, server.is_alive, server.last_lines(3)) == (0, False, [])
    assert server.terminate(1)
    server.kill()


def test_every_life_writes_to_one_file(server):
    for _ in range(2):
        run(server, SLEEP)
        assert server.is_alive and server.resident_bytes() > 1 << 20
        assert server.terminate(20)
        assert not server.is_alive and server.process.returncode == -signal.SIGTERM
    assert server.last_lines(9) == ["up", "up"]


def test_what_does_not_end_in_time_is_killed(server):
    run(server, STUBBORN, SLEEP)
    assert not server.terminate(0.2)
    assert server.process.returncode == -signal.SIGKILL


def test_a_paused_process_stands_still_and_can_be_killed(server):
    run(server, SLEEP)
    server.pause()
    assert state(server.pid) == "T"
    server.resume()
    assert state(server.pid) != "T"
    server.pause()
    server.kill()
    assert not server.is_alive
