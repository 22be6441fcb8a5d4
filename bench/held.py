"""20,000 connections that are held open and ask nothing, and clients that work beside them.

The connections are dialled by processes of their own, from several addresses of the loopback
network, as one address has some 28,000 ports for one listener; each asks ApiVersions once, as all
clients do, so the server has read from and written to each. A process may have as many files open
as its limit says: where that is below the wanted number and the server's own files, fewer are held,
and the figure says how many.

The rate of the busy client is taken before, twice while the connections are there, and after they
are gone: what the machine does in between falls on both alike. Memory is the server's own, without
the kernel's for the sockets.

This file is also the program that holds: `python held.py PORT COUNT FIRST`.
"""

from __future__ import annotations

import resource
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import lean
import workloads
from scale import scaled
from servers import Server
from workloads import Sample

from anabranch.core.wire.messages.api_versions import ApiVersionsRequest

CONNECTIONS = 20_000
OWN_FILES = 700
"""Files that a server has open besides: Kafka's jars are some 150 of them, its logs the rest."""
HOLDERS = 2
SOURCES = 8
BUSY_BYTES = 150_000_000
BUSY_VALUE_BYTES = 1_000
BUSY_BATCH_BYTES = 16_384
VERSION = 3
WAIT_SECONDS = 120.0


def connections_to_hold(wanted: int, files_at_most: int) -> int:
    """As many as one process may have beside its own files."""
    return max(1, min(wanted, files_at_most - OWN_FILES))


def held_connections(server: Server) -> Sample:
    """Bytes of memory for a connection, and the busy client's rate with and without them."""
    files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    count = connections_to_hold(scaled(CONNECTIONS), files)
    server.start()
    workloads.create_first(server, "busy")
    _rate(server)  # warms up
    without = [_rate(server)]
    before = server.resident_bytes()
    with ExitStack() as stack:
        begin = time.perf_counter()
        for number in range(HOLDERS):
            stack.callback(_end, _hold(server, count // HOLDERS, number))
        seconds = time.perf_counter() - begin
        memory = server.resident_bytes() - before
        beside = [_rate(server), _rate(server)]
    without.append(_rate(server))
    rate_without, cpu_without = _mean(without)
    rate_beside, cpu_beside = _mean(beside)
    held = count // HOLDERS * HOLDERS
    return Sample(
        {
            "connections": float(held),
            "KB a connection": memory / held / 1000,
            "MB/s without": rate_without,
            "MB/s beside": rate_beside,
            "rate kept": rate_beside / rate_without,
            "CPU s/GB without": cpu_without,
            "CPU s/GB beside": cpu_beside,
            "connected/s": held / seconds,
        }
    )


def _mean(rates: list[tuple[float, float]]) -> tuple[float, float]:
    return sum(rate for rate, _ in rates) / len(rates), sum(cpu for _, cpu in rates) / len(rates)


def _rate(server: Server) -> tuple[float, float]:
    """MB/s and CPU s/GB of the busy client."""
    size = scaled(BUSY_BYTES)
    before = server.cpu_seconds()
    seconds = workloads.send(
        server,
        "busy",
        value_bytes=BUSY_VALUE_BYTES,
        total_bytes=size,
        batch_bytes=BUSY_BATCH_BYTES,
    )
    return size / seconds / 1e6, (server.cpu_seconds() - before) / (size / 1e9)


def _hold(server: Server, count: int, number: int) -> subprocess.Popen[str]:
    words = [sys.executable, str(Path(__file__)), str(server.port), str(count), str(number)]
    holder = subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert holder.stdout is not None
    if not holder.stdout.readline():
        raise SystemExit(f"{server.name} did not take {count} more connections: see above")
    return holder


def _end(holder: subprocess.Popen[str]) -> None:
    holder.communicate()  # its input ends, and with it the process


def hold(port: int, count: int, number: int) -> None:
    """Dial `count` connections, ask ApiVersions on each, and keep them until the input ends."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    request = ApiVersionsRequest(client_software_name="bench", client_software_version="1")
    lines = []
    for each in range(count):
        line = lean.dial(port, f"127.0.1.{1 + number * SOURCES + each % SOURCES}")
        lean.ask(line, request, VERSION)
        lines.append(line)
    print("held", flush=True)
    sys.stdin.read()


if __name__ == "__main__":
    hold(*map(int, sys.argv[1:4]))
