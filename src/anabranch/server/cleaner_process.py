"""A worker process as its node sees it: started with the first order, ended when it idles.

`run` is called in a thread and waits there; `stop` may be called meanwhile, from another one.
Not here: what the process does (`cleaner_worker.py`).
"""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
import threading
from pathlib import Path

import anabranch
from anabranch.core.log.cleaner import PassEnd
from anabranch.core.log.compaction import Outcome
from anabranch.server.cleaner_worker import (
    REPORTS,
    Done,
    Failed,
    Order,
    Progress,
    receive,
    send,
)


class PassFailed(Exception):
    """A pass did not come to its end; `end` says how it ended instead."""

    def __init__(self, end: PassEnd, why: str) -> None:
        super().__init__(why)
        self.end = end


class WorkerGone(PassFailed):
    """The process ended before its pass did: it was stopped, or the system took it."""

    def __init__(self, why: str) -> None:
        super().__init__(PassEnd.GIVEN_UP, why)


class Worker:
    """One process, for one order at a time. `done_bytes` only grows."""

    def __init__(self) -> None:
        self.done_bytes = 0
        self._process: subprocess.Popen[bytes] | None = None
        self._lock = threading.Lock()
        self._stopped = False

    @property
    def is_running(self) -> bool:
        """Whether there is a process."""
        return self._process is not None

    def run(self, order: Order) -> Outcome:
        """Have a pass done and wait for its end; raises PassFailed."""
        process = self._ready()
        assert process.stdin is not None and process.stdout is not None
        try:
            send(process.stdin, order)
            while (encoded := receive(process.stdout)) is not None:
                report = REPORTS.decode(encoded)
                if isinstance(report, Done):
                    return report.outcome
                if isinstance(report, Failed):
                    raise PassFailed(report.end, report.why)
                self._note(report)
        except (BrokenPipeError, ValueError) as fault:  # ValueError: closed under our hands
            raise WorkerGone(str(fault)) from None
        finally:
            if process.poll() is not None:
                self._forget(process)
        self._forget(process)
        raise WorkerGone(f"it ended with code {process.returncode}")

    def _note(self, progress: Progress) -> None:
        self.done_bytes += progress.done_bytes

    def _ready(self) -> subprocess.Popen[bytes]:
        with self._lock:
            if self._stopped:
                raise WorkerGone("the node is stopping")
            if self._process is None:
                try:
                    self._process = _start()
                except OSError as fault:  # there may be memory, or room for a process, later
                    raise WorkerGone(f"it could not be started: {fault}") from None
            return self._process

    def _forget(self, process: subprocess.Popen[bytes]) -> None:
        """Take the ended process off the system's list."""
        with self._lock:
            if self._process is process:
                self._process = None
        process.kill()
        process.wait()
        for stream in (process.stdin, process.stdout):
            if stream is not None:
                with contextlib.suppress(BrokenPipeError):
                    stream.close()

    def kill(self) -> None:
        """Give up the pass that runs; the next order starts another process."""
        with self._lock:
            if self._process is not None:
                self._process.kill()

    def rest(self) -> None:
        """End an idle process; it gives its memory back."""
        if self._process is not None:
            self._forget(self._process)

    def stop(self) -> None:
        """Take no order any more, and give up the one that runs."""
        self._stopped = True
        self.kill()


def _start() -> subprocess.Popen[bytes]:
    """The same interpreter with the same package, wherever the node was started from."""
    root = str(Path(anabranch.__file__).parent.parent)
    paths = [root, *filter(None, [os.environ.get("PYTHONPATH")])]
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "anabranch.server.cleaner_worker"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths)},
    )
