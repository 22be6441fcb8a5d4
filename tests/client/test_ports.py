"""Ports that were given are given to no other, in this process or in another one."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from anabranch.client import ports

TAKES = "from anabranch.client import ports; import sys; print(ports._GIVEN.take(int(sys.argv[1])))"


def elsewhere(port):
    """Whether another process would be given the port."""
    words = [sys.executable, "-c", TAKES, str(port)]
    return subprocess.run(words, check=True, capture_output=True, text=True).stdout == "True\n"


@pytest.fixture
def few(monkeypatch):
    """Candidates that are soon used up."""
    monkeypatch.setattr(ports, "_candidates", lambda count: [*range(10_000, 10_200), *[0] * count])


def test_ports_of_two_calls_differ(few):
    given = ports.free_ports(60) + ports.free_ports(60)
    assert len(set(given)) == 120


def test_a_port_is_given_to_one_process_until_that_ends():
    (port,) = ports.free_ports(1)
    assert not elsewhere(port)
    script = "from anabranch.client.ports import free_ports; print(*free_ports(1))"
    gone = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True)
    assert elsewhere(int(gone.stdout))


def test_where_all_were_given_the_system_chooses(few):
    given = ports.free_ports(300)
    assert len(set(given)) == 300


def test_without_a_folder_for_the_file_ports_are_still_given(monkeypatch):
    monkeypatch.setattr(ports, "_GIVEN", ports._Given())
    monkeypatch.setattr(ports, "SHARED", Path("/nowhere"))
    monkeypatch.setattr(ports.tempfile, "gettempdir", lambda: "/nowhere")
    assert len(set(ports.free_ports(20))) == 20
