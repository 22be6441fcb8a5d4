"""The terminals of a reader: one shell, and one more for each server, in a network of their own.

What: a folder that looks like a checkout, a shell in it whose variables and jobs last as long as
the page, and servers that are waited for until they serve and ended with Ctrl-C. All ports of
the page are free, because the session has a network namespace of its own; where that is not
allowed, no page is run. All processes end with the session, also when the test is killed: they have
a process namespace of their own where that is allowed. Not here: what is run (`page`).
"""

from __future__ import annotations

import os
import re
import select
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
SERVER = re.compile(
    r"\banabranch(?=.* (?:up|serve|run)\b)(?: up\b| serve\b| mirror run\b(?!.*--validate-only))"
    r"|\banabranch spark tier\b.*--every|tests\.pages\.stores|^make up\b",
    re.DOTALL,
)
SERVES = re.compile(r"Stop (?:it|them) with Ctrl-C|INFO node: ready|^ready$|\brows deleted", re.M)
ALONE = re.compile(r"\banabranch up\b")
COMMENT = re.compile(r"\s#\s.*$", re.MULTILINE)
QUIETLY = {"PYTHONUNBUFFERED": "1", "ANABRANCH_PYTHON": "false"}
"""Output comes at once; the verbs of the Makefile leave this environment as it is."""
COMMAND_SECONDS = 600.0
START_SECONDS = 180.0
STOP_SECONDS = 60.0
KILL_JOBS = "for each in $(jobs -p); do kill -KILL -- -$each; done"
NETWORK = ["unshare", "--net"]
PROCESSES = ["--pid", "--fork", "--kill-child", "--mount-proc"]
USER = ["--user", "--map-root-user"]
WITH_THE_TEST = ["setpriv", "--pdeathsig", "KILL", "--"]
"""A session ends when the process that began it does."""
LOOPBACK = ["ip", "link", "set", "lo", "up"]


@cache
def apart() -> list[str]:
    """What stands before a command for a network of its own; empty where that is not allowed."""
    for words in (
        [*WITH_THE_TEST, *NETWORK, *PROCESSES], [*WITH_THE_TEST, *NETWORK, *USER, *PROCESSES],
        NETWORK, [*NETWORK, *USER],
    ):  # fmt: skip
        try:
            subprocess.run([*words, *LOOPBACK], capture_output=True, check=True)
        except (OSError, subprocess.CalledProcessError):
            continue
        return [*words, "--"]
    return []


def serves(command: str) -> bool:
    """Whether it runs until Ctrl-C; what its comment says of servers does not count."""
    return SERVER.search(COMMENT.sub("", command)) is not None


class Failed(Exception):
    """A command that did not do what its page says, with all that it printed."""


class Server:
    """A server in a terminal of its own."""

    def __init__(self, command: str, group: int, output: Path) -> None:
        self.command, self.group, self.output = command, group, output

    def said(self) -> str:
        """What it has printed."""
        return self.output.read_text(errors="replace")


def _hear_ctrl_c() -> None:
    """As in a terminal: what ignores it at its start, as jobs of scripts do, ignores it for good."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


class Terminal:
    """A reader's session. A context: its end ends all that it started."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._servers: list[Server] = []
        self._number = 0

    def __enter__(self) -> Terminal:
        self._checkout()
        self._shell = subprocess.Popen(
            [*apart(), "bash", "--noprofile", "--norc"], cwd=self._folder, text=True,
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
            start_new_session=True, env=self._variables(), preexec_fn=_hear_ctrl_c,
        )  # fmt: skip
        self.run(f"set -m; trap '{KILL_JOBS}' EXIT; {' '.join(LOOPBACK)}")
        return self

    def __exit__(self, *_fault: object) -> None:
        try:
            self.interrupt()
        except Failed:
            pass  # the first fault is the one to tell
        finally:
            self._end_shell()

    def _end_shell(self) -> None:
        """End of input: the shell ends its jobs; its namespace ends the others."""
        assert self._shell.stdin is not None
        self._shell.stdin.close()
        try:
            self._shell.wait(10)
        except subprocess.TimeoutExpired:
            self._shell.kill()
            self._shell.wait()

    def _checkout(self) -> None:
        """The files of the checkout, without what earlier runs have left in it."""
        for each in ROOT.iterdir():
            if each.name != ".cache" and not each.name.startswith(("anabranch-data", "data")):
                (self._folder / each.name).symlink_to(each)

    def _variables(self) -> dict[str, str]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("ANABRANCH_", "PYTEST_"))}
        path = f"{Path(sys.executable).parent}:{kept.get('PATH', '')}"
        return {**kept, "PATH": path, "HOME": str(self._folder), **QUIETLY}

    def run(self, command: str, exit_code: int = 0) -> str:
        """Run a command as far as a reader waits for it; its output."""
        if command == "^C":
            self.interrupt()
            return ""
        if serves(command):
            return self._serve(command)
        output, code = self._answer(command, COMMAND_SECONDS)
        if code != exit_code or "Traceback (most recent call last)" in output:
            raise Failed(f"exit code {code}: {command}\n{output}\n{self._logs()}")
        return output

    def _answer(self, command: str, seconds: float) -> tuple[str, int]:
        """The output and the exit code of a command of the shell."""
        self._number += 1
        end = re.compile(rf"^--end of {self._number}: (\d+)\n", re.M)
        out = self._folder / f".out-{self._number}"
        assert self._shell.stdin is not None and self._shell.stdout is not None
        marker = f"echo '--end of {self._number}:' $?"
        self._shell.stdin.write(f"{{ {command}\n}} > {out} 2>&1 < /dev/null\n{marker}\n")
        self._shell.stdin.flush()
        heard, until = "", time.monotonic() + seconds
        while time.monotonic() < until:
            if select.select([self._shell.stdout], [], [], 1.0)[0]:
                piece = os.read(self._shell.stdout.fileno(), 1 << 16)
                if not piece:
                    raise Failed(f"it ended the shell: {command}")
                heard += piece.decode(errors="replace")  # with what the shell says of its jobs
                if found := end.search(heard):
                    return out.read_text(errors="replace"), int(found[1])
        said = out.read_text(errors="replace") if out.exists() else ""
        raise Failed(f"no end after {seconds:.0f} s: {command}\n{said}\n{self._logs()}")

    def _serve(self, command: str) -> str:
        if ALONE.search(COMMENT.sub("", command)):
            self.interrupt()
        output = self._folder / f".server-{len(self._servers)}-{self._number}"
        output.touch()
        _said, _code = self._answer(
            f"{{ {command}\n}} > {output} 2>&1 < /dev/null & echo $! > {output}.pid", 10
        )
        server = Server(command, int(Path(f"{output}.pid").read_text()), output)
        self._servers.append(server)
        newest = self._folder / ".server"  # what the page's reader sees in that terminal
        newest.unlink(missing_ok=True)
        newest.symlink_to(output)
        until = time.monotonic() + START_SECONDS
        while not SERVES.search(server.said()):
            if not self._is_up(server) or time.monotonic() > until:
                raise Failed(f"did not start: {command}\n{server.said()}")
            time.sleep(0.05)
        return server.said()

    def interrupt(self) -> None:
        """Ctrl-C in the terminal of each server, the newest first."""
        for server in reversed(self._servers):
            self._stop(server)
        self._servers.clear()

    def _is_up(self, server: Server) -> bool:
        """Whether its processes are there."""
        return self._signal(server, "0")

    def _signal(self, server: Server, number: str) -> bool:
        """Send it to the server's processes, whose ids only the shell knows; whether any are there."""
        _said, code = self._answer(f"jobs > /dev/null; kill -{number} -- -{server.group}", 10)
        return code == 0  # `jobs`: the shell collects what has ended

    def _stop(self, server: Server) -> None:
        if not self._signal(server, "INT"):
            raise Failed(f"ended by itself: {server.command}\n{server.said()}")
        until = time.monotonic() + STOP_SECONDS
        while self._is_up(server):
            if time.monotonic() > until:
                self._signal(server, "KILL")
                raise Failed(f"Ctrl-C did not end it: {server.command}\n{server.said()}")
            time.sleep(0.05)
        if "Traceback (most recent call last)" in server.said():
            raise Failed(f"a traceback: {server.command}\n{server.said()}")

    def _logs(self) -> str:
        return "\n".join(f"{each.command}:\n{each.said()[-2000:]}" for each in self._servers)

    def write(self, name: str, text: str) -> None:
        """A file that the page shows."""
        path = self._folder / name
        if path.is_symlink():
            raise Failed(f"the page writes over {name} of the checkout")
        path.parent.mkdir(parents=True, exist_ok=True)
        with path.open("a") as file:  # a page shows a file in pieces
            file.write(text)
