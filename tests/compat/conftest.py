"""A node as a process of its own for clients that nobody here wrote, and Kafka's own tools."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from anabranch.cli.demo.node import Node

ROOT = Path(__file__).resolve().parents[2]
JARS = ROOT / ".cache" / "kafka"

Tool = Callable[..., str]


@pytest.fixture(scope="module")
def java_node(tmp_path_factory) -> Iterator[Node]:
    """A served node; its folder is `log_dir`, its address `bootstrap`."""
    with contextlib.closing(Node(str(tmp_path_factory.mktemp("node")))) as node:
        node.start()
        yield node


@pytest.fixture(scope="session")
def kafka_tool() -> Tool:
    """Runs a main class of Apache Kafka and returns what it printed; a failure fails the test."""
    if not list(JARS.glob("kafka_*.jar")):
        pytest.fail("no jars of Apache Kafka: run scripts/kafka-jars")

    def run(main: str, *arguments: object, text: str | None = None) -> str:
        words = ["java", "-Xmx256m", "-XX:TieredStopAtLevel=1", "-cp", f"{JARS}/*", main]
        done = subprocess.run(
            [*words, *map(str, arguments)],
            input=text,
            capture_output=True,
            text=True,
            timeout=100,
            check=False,
        )
        assert done.returncode == 0, f"{main}: {done.stdout}\n{done.stderr}"
        return done.stdout

    return run
