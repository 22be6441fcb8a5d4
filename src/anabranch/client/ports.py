"""Free ports of this machine, for those who start nodes on it.

What: `free_ports`. Rules kept: a port is chosen below those that the system gives to outgoing
connections, so that a node that was killed finds its port free when it starts again, however many
clients there are. And a port that was given is not given again, by no process of this user, until
the process that asked for it has ended: between the choice and the node that listens there lies a
second in which the port looks free. A process therefore locks one byte per port in a file that all
of them share. Source: fcntl(2), record locks: they end with their process, however it ends.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import random
import socket
import tempfile
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
SHARED = Path("/dev/shm")
"""One for all processes of a machine, whatever TMPDIR says, and in memory (Linux)."""
LOWEST = 10_000
ATTEMPTS = 10_000


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that are free now, all different."""
    probes: list[socket.socket] = []
    try:
        for port in _candidates(count):
            probe = socket.socket()
            probes.append(probe)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
                probes.pop().close()
                continue
            if not _GIVEN.take(probe.getsockname()[1]) and port:
                probes.pop().close()
            if len(probes) == count:
                break
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()


def _candidates(count: int) -> list[int]:
    """Ports in the order in which they are tried; 0 is one that the system chooses."""
    end = 0
    with contextlib.suppress(OSError, ValueError):
        end = int(RANGE.read_text().split()[0])
    below = range(LOWEST, max(LOWEST, end))
    return random.SystemRandom().sample(below, min(ATTEMPTS, len(below))) + [0] * count


class _Given:
    """The ports that processes of this user were given."""

    def __init__(self) -> None:
        self._file = -1
        self._owner = 0
        self._here: set[int] = set()

    def take(self, port: int) -> bool:
        """Whether the port is this process's from now on."""
        if self._owner != os.getpid():  # a child has none of its parent's locks
            self._open()
        if port in self._here:
            return False
        try:
            if self._file >= 0:
                fcntl.lockf(self._file, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, port)
        except OSError:
            return False
        self._here.add(port)
        return True

    def _open(self) -> None:
        """Where no file can be made, ports are kept apart within this process alone."""
        folder = str(SHARED) if SHARED.is_dir() else tempfile.gettempdir()
        path = os.path.join(folder, f"anabranch-ports-{os.getuid()}")
        flags = os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW
        self._file, self._owner, self._here = -1, os.getpid(), set()
        with contextlib.suppress(OSError):
            self._file = os.open(path, flags, 0o600)


_GIVEN = _Given()
