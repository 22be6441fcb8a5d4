"""A network of hosts on one machine: namespaces, links that fail, addresses that not all reach.

What: each node, the store and the clients get a network namespace of their own, joined to this
process's namespace, which routes between them. Each node has two addresses: one for brokers and
controllers, one for clients; neither side reaches the other's. A link fails by a routing rule that
drops packets without a word, in one direction or in both. Rule kept: the namespaces have no names
and belong to this process alone (`private.py`), so that the kernel removes them with it, however it
ends. Addresses are of 198.18.0.0/15, which RFC 2544 sets apart for tests. Not here: which link
fails when (`plan`, `faults`).
"""

from __future__ import annotations

import contextlib
import ctypes
import itertools
import os
import subprocess
import threading
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

CLONE_NEWNET = 0x40000000
STORE, OBJECTS, CLIENTS = 50, 51, 60
"""The numbers of hosts that are no nodes."""
FIRST_RULE = 1_000
"""Before the rule that looks at the table of routes."""


@dataclass(frozen=True, slots=True)
class Host:
    """One namespace."""

    number: int
    namespace: str
    """Where it can be entered."""

    @property
    def address(self) -> str:
        """Where others of its side find it."""
        return f"198.18.{self.number}.2"

    @property
    def public(self) -> str:
        """Where clients find it, if it is a node."""
        return f"198.18.{self.number}.3"

    @property
    def subnet(self) -> str:
        """All of its addresses."""
        return f"198.18.{self.number}.0/24"

    @property
    def prefix(self) -> tuple[str, ...]:
        """What stands before a command that runs there."""
        return ("nsenter", f"--net={self.namespace}", "--")


class Network:
    """See the module. Only for a process in a network namespace of its own."""

    def __init__(self, nodes: Iterable[int]) -> None:
        self._rules = itertools.count(FIRST_RULE)
        self._lock = threading.Lock()
        run("ip", "link", "set", "lo", "up")
        Path("/proc/sys/net/ipv4/ip_forward").write_text("1")
        self.nodes = {each: _new_host(each) for each in nodes}
        self.store, self.objects = _new_host(STORE), _new_host(OBJECTS)
        self.clients = _new_host(CLIENTS)
        for host in self.nodes.values():
            self._drop(self.clients.subnet, host.address)
            for other in self.nodes.values():
                if other is not host:
                    self._drop(other.subnet, host.public)

    @contextlib.contextmanager
    def cut(self, pairs: Iterable[tuple[Host, Host]]) -> Iterator[None]:
        """No packet passes from the first to the second of each pair."""
        rules = [self._drop(one.subnet, other.subnet) for one, other in pairs]
        try:
            yield
        finally:
            for rule in rules:
                run("ip", "rule", "del", "pref", str(rule))

    def _drop(self, source: str, target: str) -> int:
        with self._lock:
            rule = next(self._rules)
        words = ("from", source, "to", target, "pref", str(rule), "blackhole")
        run("ip", "rule", "add", *words)
        return rule


def _new_host(number: int) -> Host:
    """A namespace with a link to this one, and its addresses."""
    host = Host(number, _new_namespace())
    here, there = f"host{number}", "eth0"
    run("ip", "link", "add", here, "type", "veth", "peer", "name", there, "netns", host.namespace)
    run("ip", "addr", "add", f"198.18.{number}.1/24", "dev", here)
    run("ip", "link", "set", here, "up")
    for address in (host.address, host.public):
        run(*host.prefix, "ip", "addr", "add", f"{address}/24", "dev", there)
    for each in ("lo", there):
        run(*host.prefix, "ip", "link", "set", each, "up")
    run(*host.prefix, "ip", "route", "add", "default", "via", f"198.18.{number}.1")
    return host


def _new_namespace() -> str:
    """A namespace without a name, there as long as this process; where it can be entered."""
    found: list[int] = []
    library = ctypes.CDLL(None, use_errno=True)

    def make() -> None:
        if library.unshare(CLONE_NEWNET) == 0:  # of this thread alone
            found.append(os.open("/proc/thread-self/ns/net", os.O_RDONLY))

    thread = threading.Thread(target=make)
    thread.start()
    thread.join()
    if not found:
        raise OSError("a network namespace cannot be made")
    return f"/proc/{os.getpid()}/fd/{found[0]}"


def run(*words: str) -> None:
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    if done.returncode:
        raise OSError(f"{' '.join(words)}: {done.stderr.strip()}")
