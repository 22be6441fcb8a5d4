"""A node's life as a process of this machine, which the system can kill and stop.

What: `ProcessLife` starts `node_process.py`, talks with it by lines of JSON, and sends signals.
Rules kept: the process has a group of its own in the test's session, so that Ctrl-C reaches the
test alone, and the system ends the group, stopped or not, when the test dies; what it logs is
appended to one file over all its lives. Not here: which node it is, and what it may be asked when.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import Any

import anabranch
from anabranch.testing.faults import NodeFaults
from anabranch.testing.node_process import STATISTICS
from anabranch.testing.nodes import ClusterError, Life, NodePlan, ServedNode
from anabranch.testing.server_process import ServerProcess

ANSWER_SECONDS = 5.0
LINES_READ = 2_000
"""Of each node's log: a test that fails late still shows how it began."""


class Processes:
    """Begins lives as processes; `logs` is the folder that their output goes to."""

    def __init__(self, logs: str, log_level: str = "info") -> None:
        self._logs = logs
        self._log_level = log_level
        self._tables: dict[int, Any] = {}
        os.makedirs(logs, exist_ok=True)

    def faults(self, broker_id: int) -> NodeFaults:
        """A node's table, in a file without a name that its processes inherit."""
        table = self._tables[broker_id] = tempfile.TemporaryFile()  # noqa: SIM115
        return NodeFaults.shared(table.fileno())

    def begin(self, plan: NodePlan, _faults: NodeFaults) -> Life:
        """Start a process; returns at once."""
        table = self._tables[plan.broker_id].fileno()
        return ProcessLife(plan, table, self.log_file(plan.broker_id), self._log_level)

    def log_file(self, broker_id: int) -> Path:
        """What a node writes to."""
        return Path(self._logs) / f"broker-{broker_id}.log"

    @property
    def log(self) -> str:
        """The lines of all nodes, by their times; lines without one follow theirs."""
        stamped: list[tuple[str, str]] = []
        for broker_id in self._tables:
            stamp = ""
            for line in ServerProcess(self.log_file(broker_id)).last_lines(LINES_READ):
                stamp = line.split(" ", 1)[0] if line[:4].isdigit() else stamp
                stamped.append((stamp, f"broker {broker_id}: {line}"))
        return "\n".join(line for _, line in sorted(stamped, key=lambda each: each[0]))

    def close(self) -> None:
        """Give back the tables."""
        for table in self._tables.values():
            table.close()


class ProcessLife(Life):
    """One process of a node."""

    def __init__(self, plan: NodePlan, table: int, output: Path, log_level: str) -> None:
        self._server = ServerProcess(output)
        self._received = b""
        self._asking = threading.Lock()
        self._serving: ServedNode | None = None
        paths = [str(Path(anabranch.__file__).parent.parent), os.environ.get("PYTHONPATH")]
        self._server.run(
            [*plan.prefix, sys.executable, "-P", "-m", "anabranch.testing.node_process"],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, pass_fds=(table,), process_group=0,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(filter(None, paths))},
        )  # fmt: skip
        assert self._server.process is not None
        self._process = self._server.process
        order = {
            "settings": plan.all_settings,
            "peers": dict(plan.peers),
            "controllers": sorted(plan.controllers),
        }
        self._write({**order, "faults": table, "log_level": log_level})

    @property
    def pid(self) -> int:
        return self._server.pid

    @property
    def is_over(self) -> bool:
        return not self._server.is_alive

    def wait_serving(self, seconds: float) -> ServedNode | None:
        with self._asking:
            if self._serving is None:
                told = self._read(time.monotonic() + seconds)
                self._serving = (
                    None if told is None else ServedNode(told["cluster_id"], told["port"])
                )
            return self._serving

    def why_over(self) -> tuple[str, BaseException | None]:
        code = self._process.returncode
        lines = self._server.last_lines(30)
        errors = [line for line in lines if line.startswith("Error: ")]
        if errors:
            return errors[-1].removeprefix("Error: "), None
        how = f"it was killed by signal {-code}" if code < 0 else f"it ended with exit code {code}"
        words = lines[-1] if lines else "nothing"
        return f"{how}; its last words in {self._server.output}: {words}", None

    def end(self, seconds: float) -> bool:
        """A process that does not end is killed."""
        in_time = self._server.terminate(seconds)
        self._let_go()
        return in_time

    def strike(self) -> None:
        """SIGKILL."""
        self._process.kill()

    def kill(self) -> None:
        self._server.kill()
        self._let_go()

    def pause(self) -> None:
        """SIGSTOP."""
        self._server.pause()

    def resume(self) -> None:
        """SIGCONT."""
        self._server.resume()

    def statistics(self) -> dict[str, Any]:
        with self._asking:
            self._write({"ask": STATISTICS})
            until = time.monotonic() + ANSWER_SECONDS
            while (told := self._read(until)) is not None:
                if STATISTICS in told:
                    found: dict[str, Any] = told[STATISTICS]
                    return found
        raise ClusterError(f"The process {self.pid} does not answer; is it paused?")

    def _write(self, order: dict[str, Any]) -> None:
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):  # it has ended: those who wait are told
            self._process.stdin.write(json.dumps(order).encode() + b"\n")
            self._process.stdin.flush()

    def _read(self, until: float) -> dict[str, Any] | None:
        """The next line it writes, or None when none comes in time or ever."""
        assert self._process.stdout is not None
        while b"\n" not in self._received:
            try:
                pipe, poll = self._process.stdout.fileno(), select.poll()
                poll.register(pipe, select.POLLIN)
                if not poll.poll(max(0.0, until - time.monotonic()) * 1000):
                    return None
                more = os.read(pipe, 1 << 16)
            except (OSError, ValueError):  # closed under our hands by a kill
                return None
            if not more:
                return None
            self._received += more
        line, _, self._received = self._received.partition(b"\n")
        told: dict[str, Any] = json.loads(line)
        return told

    def _let_go(self) -> None:
        with self._asking:
            for pipe in (self._process.stdin, self._process.stdout):
                assert pipe is not None
                with contextlib.suppress(OSError):
                    pipe.close()
