"""Apache Kafka's own Java tools: main classes of its jars, run unchanged.

Most of them run in one JVM that `ToolDriver.java` keeps for the whole table, because a JVM takes
longer to start than a tool takes to work. A tool that does not end in time takes that JVM with it,
and the next tool gets a new one.
"""

from __future__ import annotations

import json
import queue
import subprocess
import threading
from collections.abc import Sequence
from pathlib import Path

from bench.servers import JARS, ROOT

from compat.row import Failed

FLAGS = ("-Xmx384m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
START_SECONDS = 60.0
LOGGING = """<Configuration><Appenders><Console name="err" target="SYSTEM_ERR">
<PatternLayout pattern="[%d] %p %m (%c)%n"/></Console></Appenders>
<Loggers><Root level="ERROR"><AppenderRef ref="err"/></Root></Loggers></Configuration>
"""


def fetch_jars() -> None:
    """Copy Kafka's jars through Maven, once."""
    if subprocess.run([ROOT / "scripts" / "kafka-jars"], check=False).returncode:
        raise SystemExit("no jars of Apache Kafka: `make compat` needs Java 17 and Maven")


def java(folder: Path, *words: object) -> list[str]:
    """The command line of a JVM with Kafka's jars; its log goes to stderr, errors alone."""
    logging = folder / "tools-log4j2.xml"
    logging.write_text(LOGGING)
    log4j = f"-Dlog4j2.configurationFile={logging}"
    return ["java", *FLAGS, log4j, "-cp", f"{JARS}/*", *map(str, words)]


class ToolDriver:
    """One JVM that runs tools one after another."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.process: subprocess.Popen[str] | None = None
        self.answers: queue.Queue[str] = queue.Queue()

    def run(
        self, main: str, arguments: Sequence[object], text: str, seconds: float
    ) -> tuple[int, str, str]:
        """Exit code, output and errors of a main class; `Failed` when it takes too long."""
        if self.process is None or self.process.poll() is not None:
            self.start()
            seconds += START_SECONDS
        assert self.process is not None and self.process.stdin is not None
        request = {"main": main, "arguments": [str(each) for each in arguments], "text": text}
        self.process.stdin.write(json.dumps(request) + "\n")
        self.process.stdin.flush()
        try:
            answer = json.loads(self.answers.get(timeout=seconds))
        except queue.Empty:
            self.close()
            raise Failed(f"{main.rpartition('.')[2]} did not end within {seconds:.0f} s") from None
        return answer["code"], answer["out"], answer["err"]

    def start(self) -> None:
        """Start the JVM; a thread passes its answers on."""
        self.answers = queue.Queue()
        driver = Path(__file__).with_name("ToolDriver.java")
        self.process = subprocess.Popen(
            java(self.folder, driver),
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        threading.Thread(
            target=self._listen, args=(self.process, self.answers), daemon=True
        ).start()

    @staticmethod
    def _listen(process: subprocess.Popen[str], answers: queue.Queue[str]) -> None:
        assert process.stdout is not None
        for line in process.stdout:
            answers.put(line)

    def close(self) -> None:
        """End the JVM."""
        if self.process is not None and self.process.poll() is None:
            self.process.kill()
            self.process.wait()
