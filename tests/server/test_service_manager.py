"""A service manager is told when a node serves and when it stops."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys

import pytest

from anabranch.client.ports import free_ports
from anabranch.server.service_manager import READY, VARIABLE, notify

SECONDS = 60.0


def manager(address: str) -> socket.socket:
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
    listening.bind("\0" + address[1:] if address[0] == "@" else address)
    listening.settimeout(SECONDS)
    return listening


@pytest.mark.parametrize("abstract", [False, True])
def test_a_manager_is_told(monkeypatch, tmp_path, abstract):
    address = f"@anabranch-{os.getpid()}" if abstract else str(tmp_path / "notify")
    with manager(address) as listening:
        monkeypatch.setenv(VARIABLE, address)
        assert notify(READY, "Node 1 serves.")
        assert listening.recv(1000) == b"READY=1\nSTATUS=Node 1 serves."


@pytest.mark.parametrize("address", ["", "relative", "/nowhere/at/all"])
def test_a_node_does_without_a_manager(monkeypatch, address):
    monkeypatch.setenv(VARIABLE, address)
    assert not notify(READY)


def test_a_node_tells_when_it_serves_and_when_it_stops(tmp_path):
    address = str(tmp_path / "notify")
    (port,) = free_ports(1)
    with manager(address) as listening:
        node = subprocess.Popen(
            [sys.executable, "-m", "anabranch", "serve", "--dir", str(tmp_path / "data"),
             "--port", str(port)],
            env={**os.environ, VARIABLE: address}, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        try:
            told = listening.recv(1000).decode()
            assert told.startswith("READY=1\nSTATUS=Node ") and f":{port}" in told
            socket.create_connection(("127.0.0.1", port), SECONDS).close()
            node.send_signal(signal.SIGTERM)
            assert listening.recv(1000).decode().startswith("STOPPING=1\n")
            assert node.wait(SECONDS) == 0
        finally:
            node.kill()
            node.wait()
