"""Hosts and file systems of a run's own: links fail one way, disks run out of room, nothing stays."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from chaos import private

ROOT = Path(__file__).resolve().parents[2]
SECONDS = 60
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="namespaces and mounts need root")

NETWORK = """
import subprocess, sys
from chaos.network import Network
network = Network([1, 2])
one, two = network.nodes.values()
LISTEN = '''
import socket, sys
with socket.create_server(("", 9000)) as server:
    print("up", flush=True)
    while True:
        server.accept()[0].close()
'''
DIAL = '''
import socket, sys
try:
    socket.create_connection((sys.argv[1], 9000), 0.5).close()
except TimeoutError:
    sys.exit(3)
'''
server = subprocess.Popen([*two.prefix, sys.executable, "-c", LISTEN], stdout=subprocess.PIPE)
server.stdout.readline()
def reaches(host, address):
    done = subprocess.run([*host.prefix, sys.executable, "-c", DIAL, address])
    assert done.returncode in (0, 3), done
    return done.returncode == 0
told = [
    reaches(one, two.address), reaches(network.clients, two.public),
    reaches(one, two.public), reaches(network.clients, two.address),
]
for pairs in [[(one, two)], [(two, one)]]:
    with network.cut(pairs):
        told += [reaches(one, two.address), reaches(network.clients, two.public)]
told.append(reaches(one, two.address))
server.kill()
print(told)
"""

DISKS = """
import os, sys
from chaos.disks import SmallDisks
folder = sys.argv[1]
disks = SmallDisks({2: folder})
file = open(folder + "/log", "wb", buffering=0)
file.write(b"x" * 10_000)
with disks.full(2, 8192):
    try:
        for _ in range(100):
            file.write(b"y" * 1024)
    except OSError as fault:
        print(fault.errno)
file.write(b"z" * 10_000)
print(os.path.ismount(folder))
file.close()
disks.close()
print(os.path.ismount(folder), os.path.getsize(folder + "/log") > 20_000)
"""


def alone(script: str, *words: str) -> str:
    """What a script says that runs in namespaces of its own."""
    done = subprocess.run(
        ["unshare", "--mount", "--net", "--", sys.executable, "-c", script, *words],
        cwd=ROOT, capture_output=True, text=True, timeout=SECONDS, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def links() -> str:
    return subprocess.run(["ip", "link"], capture_output=True, text=True, check=True).stdout


@needs_root
def test_links_fail_in_one_direction_and_sides_have_addresses_of_their_own():
    before = links()
    both = [True, True, False, False]
    cut_either_way = [False, True] * 2
    assert alone(NETWORK).strip() == str([*both, *cut_either_way, True])
    assert links() == before


@needs_root
def test_a_file_system_runs_out_of_room_and_gets_it_back(tmp_path):
    folder = tmp_path / "broker-2"
    assert alone(DISKS, str(folder)).split() == ["28", "True", "False", "True"]
    assert (folder / "log").exists(), "what a run left is on the machine's disk"
    assert str(folder) not in Path("/proc/mounts").read_text()


def test_what_needs_root_is_left_out_and_said(monkeypatch):
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    monkeypatch.delenv(private.MARK, raising=False)
    said: list[str] = []
    assert private.enter(network=True, say=said.append) == private.Private(False, False)
    assert ["full" in said[0], "network namespaces" in said[1]] == [True, True]
    said.clear()
    private.enter(network=False, say=said.append)
    assert len(said) == 1
