"""Free ports of this machine, for those who start nodes on it.

Rule kept: a port is chosen below those that the system gives to outgoing connections, so that a
node that was killed finds its port free when it starts again, however many clients there are.
"""

from __future__ import annotations

import contextlib
import random
import socket
from pathlib import Path

RANGE = Path("/proc/sys/net/ipv4/ip_local_port_range")
LOWEST = 10_000
ATTEMPTS = 10_000


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody uses now, all different."""
    probes: list[socket.socket] = []
    try:
        for port in _candidates(count):
            probe = socket.socket()
            probes.append(probe)
            try:
                probe.bind(("127.0.0.1", port))
            except OSError:
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
