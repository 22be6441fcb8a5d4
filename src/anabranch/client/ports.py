"""Free ports of this machine, for those who start nodes on it."""

from __future__ import annotations

import socket


def free_ports(count: int) -> list[int]:
    """Ports of the loopback interface that nobody uses now, all different."""
    probes = [socket.socket() for _ in range(count)]
    try:
        for probe in probes:
            probe.bind(("127.0.0.1", 0))
        return [probe.getsockname()[1] for probe in probes]
    finally:
        for probe in probes:
            probe.close()
