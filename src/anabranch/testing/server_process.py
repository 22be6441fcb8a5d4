"""A server as a process of this machine: started, paused, killed and started again.

What: the one manager of node processes, for `anabranch up`, for the clusters of tests, and for
benchmarks, also of other products. Rule kept: what all its lives write goes to one file. Not here:
the command, when it is ready, and who starts it again.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any


class ServerProcess:
    """The process, over all its lives; `output` is the file that gets what it writes."""

    def __init__(self, output: Path) -> None:
        self.output = output
        self.process: subprocess.Popen[bytes] | None = None

    def run(self, command: Sequence[str], **options: Any) -> None:
        """Start the process, by default in a session of its own; returns at once. The options are
        Popen's."""
        with self.output.open("ab") as output:
            streams = {"stdout": output, "stderr": output, **options}
            if "process_group" not in options:
                streams["start_new_session"] = True
            self.process = subprocess.Popen(list(command), **streams)

    @property
    def pid(self) -> int:
        """The process's id; 0 before it was started."""
        return 0 if self.process is None else self.process.pid

    @property
    def is_alive(self) -> bool:
        """Whether the process runs."""
        return self.process is not None and self.process.poll() is None

    def terminate(self, seconds: float) -> bool:
        """SIGTERM, and SIGKILL when it has not ended after so long; whether it ended by itself."""
        if self.process is None or not self.is_alive:
            return True
        self.process.terminate()
        try:
            self.process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.kill()
            return False
        return True

    def kill(self) -> None:
        """SIGKILL, also of a paused process; returns when it has ended."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()

    def pause(self) -> None:
        """SIGSTOP; returns when it stands still. Its connections stay open."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)
        with contextlib.suppress(ChildProcessError):
            os.waitid(os.P_PID, self.pid, os.WSTOPPED | os.WEXITED | os.WNOWAIT)

    def resume(self) -> None:
        """SIGCONT."""
        assert self.process is not None
        self.process.send_signal(signal.SIGCONT)

    def last_lines(self, count: int) -> list[str]:
        """The end of what it has written; nothing when there is no file."""
        try:
            return self.output.read_text(errors="replace").splitlines()[-count:]
        except OSError:
            return []

    def resident_bytes(self) -> int:
        """Resident memory now, with that of its own child processes; 0 where the system does not
        say."""
        pages = 0
        for pid in family_of(self.pid):
            with contextlib.suppress(OSError):
                pages += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
        return pages * os.sysconf("SC_PAGE_SIZE")


def family_of(pid: int) -> list[int]:
    """A process and all processes that it has started."""
    family = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                family += family_of(int(child))
    return family
