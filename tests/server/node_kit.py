"""Nodes for tests: in a thread of the test's process, or as a process of its own."""

from __future__ import annotations

import asyncio
import os
import socket
import subprocess
import sys
import threading
import time

from anabranch.client.ports import free_ports
from anabranch.server.config import load_config
from anabranch.server.main import new_loop
from anabranch.server.node import Node

START_SECONDS = END_SECONDS = 60
"""On a machine that does much else: six processes that start at once took over twenty seconds."""

LOG_BYTES = 1 << 20
"""What a node may log before somebody reads it: then it would wait."""


def settings_of(folder, port=0, **settings):
    """Settings of a combined node on free loopback ports."""
    values = {
        "log.dirs": str(folder),
        "listeners": f"PLAINTEXT://127.0.0.1:{port},CONTROLLER://127.0.0.1:0",
        **{name.replace("_", "."): value for name, value in settings.items()},
    }
    return [f"{name}={value}" for name, value in values.items()]


class ThreadNode:
    """A node whose event loop runs in a thread; clients in C may block the test meanwhile."""

    def __init__(self, folder, port=0, **settings):
        self._take(load_config(None, settings_of(folder, port, **settings)))

    def _take(self, config):
        self.config = config
        self.node = None
        self.fault = None
        self._started = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._loop = None
        self._stop = None

    @classmethod
    def again(cls, stopped):
        """A node with the configuration of one that was stopped."""
        node = cls.__new__(cls)
        node._take(stopped.config)
        return node

    def start(self):
        self._thread.start()
        assert self._started.wait(START_SECONDS), "the node did not start"
        if self.fault is not None:
            raise self.fault
        return self

    def _run(self):
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(self._serve())

    async def _serve(self):
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        node = Node(self.config)
        try:
            await node.start()
        except Exception as fault:
            self.fault = fault
            self._started.set()
            return
        self.node = node
        self._started.set()
        await self._stop.wait()
        await node.stop()

    @property
    def bootstrap(self):
        return self.node.bootstrap_servers

    def ready(self):
        """It is, once `start` is over: as a process, in one more step."""
        return self

    def close(self):
        """Stop it if it was ever started."""
        if self._thread.ident is not None:
            self.stop()

    def stop(self):
        if self._thread.is_alive() and self._stop is not None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(START_SECONDS)
        assert not self._thread.is_alive(), "the node did not stop"


def free_port():
    """One that is given to no other, and that no outgoing connection takes while its node is not
    there."""
    return free_ports(1)[0]


def check_own_faults(log):
    """Fail when a node says that it had a fault of its own."""
    assert " own_faults: " not in (log or ""), log


class ProcessNode:
    """`anabranch serve` as a user runs it."""

    def __init__(self, folder, port=None, **settings):
        self.port = port or free_port()
        self.bootstrap = f"127.0.0.1:{self.port}"
        self._words = [sys.executable, "-m", "anabranch", "serve"]
        for each in settings_of(folder, self.port, **settings):
            self._words += ["--set", each]
        self.process = None

    def start(self):
        environment = {
            key: text for key, text in os.environ.items() if key != "ANABRANCH_TRACEBACK"
        }
        self.process = subprocess.Popen(
            self._words, stderr=subprocess.PIPE, text=True, env=environment, pipesize=LOG_BYTES
        )
        return self

    def ready(self):
        until = time.monotonic() + START_SECONDS
        while time.monotonic() < until:
            try:
                socket.create_connection(("127.0.0.1", self.port)).close()
            except OSError:
                assert self.process.poll() is None, self.process.stderr.read()
                time.sleep(0.01)
            else:
                return self
        self.close()
        raise AssertionError("the node did not start")

    def ended(self):
        """Exit code and what was written to standard error."""
        _, errors = self.process.communicate(timeout=END_SECONDS)
        check_own_faults(errors)
        return self.process.returncode, errors

    def kill(self):
        self.process.kill()
        self.process.wait()

    def close(self):
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
        if self.process is not None:
            _, errors = self.process.communicate()
            check_own_faults(errors)
