"""Hosts with a real distance between them: network namespaces whose packets pass this process.

What: each host, and this process's own namespace, has one TUN device; every packet that leaves it
waits here for the latency of the link and is lost with the given chance, then goes to the host that
it is addressed to. Why not `tc netem`: many kernels are built without it. Rule kept: order within a
direction stays unless the jitter says otherwise, as on a real path. Not here: links that are cut
(`network`).
"""

from __future__ import annotations

import ctypes
import fcntl
import heapq
import itertools
import os
import selectors
import struct
import threading
import time
from collections.abc import Sequence
from random import Random

from chaos.network import CLONE_NEWNET, Host, run

TUNSETIFF = 0x400454CA
IFF_TUN, IFF_NO_PI = 0x0001, 0x1000
MTU = 1500
DEVICE = "tun0"
SUBNETS = "198.18.0.0/16"


class Distance:
    """Every host apart from every other one; a context manager that carries their packets."""

    def __init__(
        self, numbers: Sequence[int], here: int, *,
        latency_ms: float, jitter_ms: float, loss: float, seed: int,
    ) -> None:  # fmt: skip
        self._latency_ms, self._jitter_ms, self._loss = latency_ms, jitter_ms, loss
        self._random = Random(seed)
        self._devices: dict[int, int] = {}
        self.hosts = {each: self._new_host(each) for each in numbers}
        self._devices[here] = _new_device()
        _address((), Host(here, ""))
        self._order = itertools.count()
        self._waiting: list[tuple[float, int, int, bytes]] = []
        self._is_over = False
        self._carrier = threading.Thread(target=self._carry, daemon=True)
        self.carried = self.lost = 0

    def __enter__(self) -> Distance:
        self._carrier.start()
        return self

    def __exit__(self, *_fault: object) -> None:
        self._is_over = True
        self._carrier.join()

    def _new_host(self, number: int) -> Host:
        made: list[tuple[int, int]] = []

        def make() -> None:
            if ctypes.CDLL(None).unshare(CLONE_NEWNET) == 0:  # of this thread alone
                made.append((os.open("/proc/thread-self/ns/net", os.O_RDONLY), _new_device()))

        thread = threading.Thread(target=make)
        thread.start()
        thread.join()
        if not made:
            raise OSError("a network namespace with a TUN device cannot be made")
        (namespace, self._devices[number]) = made[0]
        host = Host(number, f"/proc/{os.getpid()}/fd/{namespace}")
        _address(host.prefix, host)
        return host

    def _carry(self) -> None:
        devices = selectors.DefaultSelector()
        for device in self._devices.values():
            devices.register(device, selectors.EVENT_READ)
        while not self._is_over:
            now = time.monotonic()
            while self._waiting and self._waiting[0][0] <= now:
                _, _, device, packet = heapq.heappop(self._waiting)
                os.write(device, packet)
                self.carried += 1
            due = self._waiting[0][0] - now if self._waiting else 0.1
            for key, _ in devices.select(min(due, 0.1)):
                self._take(key.fd)

    def _take(self, device: int) -> None:
        """Everything that waits at a device."""
        while True:
            try:
                packet = os.read(device, MTU + 100)
            except BlockingIOError:
                return
            target = self._devices.get(packet[18]) if packet[0] >> 4 == 4 else None
            if target is None:
                continue
            if self._random.random() < self._loss:
                self.lost += 1
                continue
            wait_ms = self._latency_ms + self._random.uniform(-1, 1) * self._jitter_ms
            due = time.monotonic() + max(wait_ms, 0) / 1000
            heapq.heappush(self._waiting, (due, next(self._order), target, packet))


def _new_device() -> int:
    """A TUN device in the namespace of the calling thread."""
    device = os.open("/dev/net/tun", os.O_RDWR | os.O_NONBLOCK)
    fcntl.ioctl(device, TUNSETIFF, struct.pack("16sH", DEVICE.encode(), IFF_TUN | IFF_NO_PI))
    return device


def _address(prefix: Sequence[str], host: Host) -> None:
    """Addresses and routes of a host's device."""
    for each in (host.address, host.public):
        run(*prefix, "ip", "addr", "add", f"{each}/32", "dev", DEVICE)
    run(*prefix, "ip", "link", "set", DEVICE, "mtu", str(MTU), "up")
    run(*prefix, "ip", "link", "set", "lo", "up")
    run(*prefix, "ip", "route", "add", SUBNETS, "dev", DEVICE, "src", host.address)
