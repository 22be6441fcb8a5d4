"""A node as a process of its own, which the demo can kill and start again in the same folder.

The node runs in a session of its own, so that Ctrl-C reaches the demo alone and the demo decides
the order of goodbyes. Whatever happens, `close` leaves no process behind.
"""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import click
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

START_SECONDS = 30.0
STOP_SECONDS = 15.0
ASK_AGAIN_SECONDS = 0.02
LOG_TAIL_LINES = 15
QUIET: dict[str, Any] = {
    "log_level": 0,
    "error_cb": lambda _error: None,
    "reconnect.backoff.ms": 20,
    "reconnect.backoff.max.ms": 100,
}
"""A client's own log lines about a node that was killed on purpose would only confuse, and it is
back within a moment."""


def free_port() -> int:
    """A port of the loopback interface that nobody uses now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


class Node:
    """One node of Anabranch in a folder; `bootstrap` is where clients find it."""

    def __init__(self, folder: str, *, port: int = 0) -> None:
        self.log_dir = os.path.join(folder, "node")
        self.bootstrap = f"127.0.0.1:{port or free_port()}"
        self._controller = f"127.0.0.1:{free_port()}"
        self._output = os.path.join(folder, "node.log")
        self._process: subprocess.Popen[bytes] | None = None

    def command(self) -> list[str]:
        """The command line that serves this node."""
        settings = {
            "log.dirs": self.log_dir,
            "listeners": f"PLAINTEXT://{self.bootstrap},CONTROLLER://{self._controller}",
            "num.partitions": "1",
        }
        words = [sys.executable, "-m", "anabranch", "serve"]
        for name, value in settings.items():
            words += ["--set", f"{name}={value}"]
        return words

    def start(self) -> float:
        """Start it and wait until it answers; returns the seconds that took."""
        begin = time.perf_counter()
        with open(self._output, "ab") as output:
            self._process = subprocess.Popen(
                self.command(), stdout=output, stderr=output, start_new_session=True
            )
        admin = AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})
        while True:
            self._must_live()
            try:
                if admin.list_topics(timeout=1.0).brokers:
                    return time.perf_counter() - begin
            except KafkaException:
                if time.perf_counter() - begin > START_SECONDS:
                    raise self._failure(f"did not answer within {START_SECONDS:.0f} s") from None
            time.sleep(ASK_AGAIN_SECONDS)

    def _must_live(self) -> None:
        if self._process is None or self._process.poll() is not None:
            code = self._process.returncode if self._process else None
            raise self._failure(f"ended with exit code {code}")

    def _failure(self, what: str) -> click.ClickException:
        try:
            lines = Path(self._output).read_text(errors="replace").splitlines()[-LOG_TAIL_LINES:]
        except OSError:
            lines = []
        return click.ClickException("\n  ".join([f"the node {what}; its last words:", *lines]))

    def kill(self) -> None:
        """SIGKILL: no goodbye, no flush, no marker."""
        assert self._process is not None
        self._process.send_signal(signal.SIGKILL)
        self._process.wait()

    def close(self) -> None:
        """Ask it to stop; make it stop."""
        if self._process is None or self._process.poll() is not None:
            return
        self._process.terminate()
        try:
            self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()

    def wait(self) -> None:
        """Until the node ends by itself, which it should not, or somebody presses Ctrl-C."""
        assert self._process is not None
        self._process.wait()
        self._must_live()

    def resident_bytes(self) -> int | None:
        """Resident memory of the process, where the system tells."""
        assert self._process is not None
        try:
            status = Path(f"/proc/{self._process.pid}/status").read_text()
        except OSError:
            return None
        for line in status.splitlines():
            if line.startswith("VmRSS:"):
                return int(line.split()[1]) * 1024
        return None

    def disk_bytes(self) -> int:
        """Bytes of everything that the node keeps in its folder."""
        files = (each for each in Path(self.log_dir).rglob("*") if each.is_file())
        return sum(each.stat().st_size for each in files)
