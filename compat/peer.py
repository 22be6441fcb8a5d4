"""One of the two servers, with what a row needs to talk about it.

A row gets a `Peer` and nothing else. `peer.tool` runs one of Kafka's Java tools, `peer.command` any
other program, `peer.background` a program that runs beside the row. `peer.plain` takes out what may
differ; `peer.say` notes a sentence that people see, which is compared softly.
"""

from __future__ import annotations

import re
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from bench.servers import Server

from compat import normal
from compat.java import ToolDriver, java
from compat.row import Failed

TOOL_SECONDS = 100.0
"""Longer than the minute after which a client gives up by itself and says why."""
WAIT_SECONDS = 30.0
STOP_SECONDS = 20.0

T = TypeVar("T")


@dataclass(frozen=True)
class Output:
    """What a program left: its exit code and both streams, made plain."""

    code: int
    out: str
    err: str

    @property
    def lines(self) -> list[str]:
        """Lines of its output with something on them, blanks made single."""
        return normal.lines(self.out)

    def columns(self, *names: str) -> list[list[str]]:
        """Columns of the table that it printed, rows sorted."""
        return normal.columns(self.out, names)

    @property
    def complaint(self) -> str:
        """The line that most likely says why it failed."""
        lines = normal.lines(self.err) + normal.lines(self.out)
        causes = [line for line in lines if re.search(r"\w+(Exception|Error)\b: ", line)]
        telling = causes[-1:] or [line for line in lines if "rror" in line]
        return (telling or lines or ["no word"])[0]


class Peer:
    """A running server, and a folder `scratch` of its own for the rows' files."""

    def __init__(self, server: Server, driver: ToolDriver, scratch: Path) -> None:
        self.server = server
        self.driver = driver
        self.scratch = scratch
        self.said: list[str] = []
        scratch.mkdir(parents=True, exist_ok=True)

    @property
    def name(self) -> str:
        """`kafka` or `anabranch`."""
        return self.server.name

    @property
    def bootstrap(self) -> str:
        """Where clients find it."""
        return self.server.bootstrap

    @property
    def controller(self) -> str:
        """Where its controller listens."""
        return f"127.0.0.1:{self.server.controller_port}"

    @property
    def at(self) -> tuple[str, str]:
        """The words that tell most of Kafka's tools where it is."""
        return "--bootstrap-server", self.bootstrap

    @property
    def log_dir(self) -> Path:
        """Its data folder; segments lie in folders below."""
        return self.server.folder / "data"

    def plain(self, text: str) -> str:
        """The text without addresses, folders, ids and times."""
        names = {
            self.bootstrap: "<broker>",
            self.controller: "<controller>",
            str(self.log_dir): "<data>",
            str(self.scratch): "<scratch>",
            str(self.server.port): "<port>",
            str(self.server.controller_port): "<controller port>",
        }
        return normal.plain(text, names)

    def say(self, text: str) -> None:
        """Note a sentence that people see; other words are a note in the table, not a failure."""
        self.said.append(" ".join(self.plain(text).split()))

    def file(self, name: str, text: str) -> Path:
        """A file with this text in the peer's scratch folder."""
        path = self.scratch / name
        path.write_text(text)
        return path

    def tool(
        self,
        main: str,
        *words: object,
        text: str = "",
        seconds: float = TOOL_SECONDS,
        fails: bool | None = False,
        raw: bool = False,
        alone: bool = False,
    ) -> Output:
        """Run a main class of Kafka's; it must succeed, or fail where `fails` says so, or either
        where that is None.

        The output is made plain unless `raw`. A tool that works on while its JVM ends needs one
        `alone`. Raises `Failed` with the tool's complaint.
        """
        if alone:
            command = java(self.scratch, main, *words)
            return self.command(*command, text=text, seconds=seconds, fails=fails, raw=raw)
        code, out, err = self.driver.run(main, words, text, seconds)
        return self._judge(main.rpartition(".")[2], code, out, err, fails, raw)

    def command(
        self,
        *words: object,
        text: str = "",
        seconds: float = TOOL_SECONDS,
        fails: bool | None = False,
        raw: bool = False,
        **options: Any,
    ) -> Output:
        """Run any program as `tool` runs main classes; `options` go to subprocess.run."""
        command = [str(word) for word in words]
        name = Path(command[0]).name
        try:
            done = subprocess.run(
                command,
                input=text,
                capture_output=True,
                text=True,
                timeout=seconds,
                check=False,
                **options,
            )
        except subprocess.TimeoutExpired:
            raise Failed(f"{name} did not end within {seconds:.0f} s") from None
        except FileNotFoundError:
            raise Failed(f"{name} is not installed") from None
        return self._judge(name, done.returncode, done.stdout, done.stderr, fails, raw)

    def _judge(
        self, name: str, code: int, out: str, err: str, fails: bool | None, raw: bool
    ) -> Output:
        output = Output(code, *((out, err) if raw else (self.plain(out), self.plain(err))))
        if fails and not code:
            raise Failed(f"{name} succeeded: {' '.join(output.lines)[:200]}")
        if code and fails is False:
            raise Failed(f"{name} ended with {code}: {output.complaint}")
        return output

    @contextmanager
    def background(self, *words: object, **options: Any) -> Iterator[Background]:
        """A program that runs while the block does, and is asked to end (SIGINT) with it."""
        with tempfile.NamedTemporaryFile(
            dir=self.scratch, prefix="background-", suffix=".log", delete=False
        ) as output:
            process = subprocess.Popen(
                [str(word) for word in words],
                stdin=subprocess.PIPE,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                **options,
            )
        try:
            yield Background(process, Path(output.name))
        finally:
            stop(process)

    @contextmanager
    def background_tool(self, main: str, *words: object) -> Iterator[Background]:
        """One of Kafka's tools in a JVM of its own while the block runs."""
        with self.background(*java(self.scratch, main, *words)) as running:
            yield running

    def wait(self, ask: Callable[[], T], what: str, seconds: float = WAIT_SECONDS) -> T:
        """Ask again until the answer is true, and return it; `Failed` names `what` otherwise."""
        until = time.monotonic() + seconds
        while not (answer := ask()):
            if time.monotonic() > until:
                raise Failed(f"not within {seconds:.0f} s: {what}")
            time.sleep(0.05)
        return answer


@dataclass(frozen=True)
class Background:
    """A program that runs beside a row."""

    process: subprocess.Popen[bytes]
    path: Path

    @property
    def printed(self) -> str:
        """What it has printed so far, both streams."""
        return self.path.read_text(errors="replace")

    def stop(self) -> str:
        """Ask it to end, wait, and return all that it printed."""
        stop(self.process)
        return self.printed


def stop(process: subprocess.Popen[bytes]) -> None:
    """SIGINT, and SIGKILL where that is not enough."""
    if process.poll() is None:
        process.send_signal(signal.SIGINT)
        try:
            process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
